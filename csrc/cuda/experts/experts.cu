#include <cstdint>
#include <stdexcept>

#include "cuda/experts/experts.cuh"
#include "cuda/experts/packed_mlp.cuh"
#include "cuda/launch.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "expert_mlp";

void check(const ExpertMlp& p, int most_rows) {
  for (const void* pointer : {p.x, static_cast<const void*>(p.inner)})
    require(pointer && aligned(pointer, 16), kName, "null or misaligned pointer");
  require(p.experts && p.weights && p.out, kName, "null pointer");
  require(p.rows <= most_rows, kName, "too many rows");
  require(p.count > 0 && p.count <= kMaxExperts, kName, "unsupported number of experts");
  require(p.chosen > 0 && p.chosen <= p.count && p.chosen <= kMaxChosen, kName, "unsupported number of chosen experts");
  require(p.size > 0 && p.size % 8 == 0 && p.x_stride % 8 == 0, kName, "the size must be a multiple of 8");
  require(p.width > 0 && p.width % 8 == 0, kName, "the width must be a multiple of 8");
  require(p.size <= INT32_MAX / 4 && p.width <= INT32_MAX / 4, kName, "sizes out of range");
}

void check_records(const PackedWeight& weight, int64_t outputs, int inputs) {
  require(weight.records && aligned(weight.records, 16), kName, "null or misaligned pointer");
  require(weight.outputs == outputs && weight.inputs == inputs, kName, "weights of another shape");
}

// Gathers the inputs of `weight` for each pick from rows of tokens or, `of_picks`, of picks.
void gather(const PackedExpertMlp& p, const void* x, int64_t x_stride, bool of_picks, const int* order,
            const PackedWeight& weight, cudaStream_t stream) {
  gather_picks(PickGather{x, p.mlp.experts, order, p.gathered, x_stride, of_picks, p.mlp.rows, p.mlp.chosen,
                          weight.inputs, p.mlp.type},
               stream);
}

PackedExpertKernels kernels_of(Codes codes) {
  switch (codes) {
    case Codes::int4:
      return int4_experts();
    case Codes::int8:
      return int8_experts();
    case Codes::float8:
      return float8_experts();
    case Codes::float4:
      return float4_experts();
    case Codes::scaled_float4:
      return scaled_float4_experts();
  }
  throw std::invalid_argument("packed_expert_mlp: unknown codes");
}

}  // namespace

void expert_mlp(const ExpertMlp& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  check(p, kMaxExpertRows);
  for (const void* matrices : {p.gate_up, p.down})
    require(matrices && aligned(matrices, 16), kName, "null or misaligned pointer");
  multiply_gate_up(p, stream);
  multiply_down(p, stream);
}

void packed_expert_mlp(const PackedExpertMlp& p, cudaStream_t stream) {
  if (p.mlp.rows <= 0) return;
  check(p.mlp, kMaxPackedExpertRows);
  const int64_t count = p.mlp.count;
  require(p.mlp.size % kPackedTile == 0 && p.mlp.width % kPackedTile == 0, kName, "sizes must be multiples of 16");
  check_records(p.gate_up, count * 2 * p.mlp.width, p.gate_up_order ? p.gate_up.inputs : p.mlp.size);
  check_records(p.down, count * p.mlp.size, p.down_order ? p.down.inputs : p.mlp.width);
  PackedExpertMlp given = p;
  if (p.gate_up_order) {
    gather(p, p.mlp.x, p.mlp.x_stride, false, p.gate_up_order, p.gate_up, stream);
    given.mlp.x = p.gathered, given.mlp.x_stride = p.gate_up.inputs;
  }
  kernels_of(p.gate_up.shape.codes).gate_up(given, stream);
  if (p.down_order) {
    gather(p, p.mlp.inner, p.mlp.width, true, p.down_order, p.down, stream);
    given.mlp.inner = p.gathered;
  }
  kernels_of(p.down.shape.codes).down(given, stream);
}

}  // namespace constrain::cuda
