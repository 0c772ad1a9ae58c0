#include <cstdint>

#include "cuda/experts/experts.cuh"
#include "cuda/launch.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "expert_mlp";

void check(const ExpertMlp& p) {
  for (const void* pointer : {p.x, p.gate_up, p.down, static_cast<const void*>(p.inner)})
    require(pointer && aligned(pointer, 16), kName, "null or misaligned pointer");
  require(p.experts && p.weights && p.out, kName, "null pointer");
  require(p.rows <= kMaxExpertRows, kName, "too many rows");
  require(p.count > 0 && p.count <= kMaxExperts, kName, "unsupported number of experts");
  require(p.chosen > 0 && p.chosen <= p.count && p.chosen <= kMaxChosen, kName, "unsupported number of chosen experts");
  require(p.size > 0 && p.size % 8 == 0 && p.x_stride % 8 == 0, kName, "the size must be a multiple of 8");
  require(p.width > 0 && p.width % 8 == 0, kName, "the width must be a multiple of 8");
  require(p.size <= INT32_MAX / 4 && p.width <= INT32_MAX / 4, kName, "sizes out of range");
}

}  // namespace

void expert_mlp(const ExpertMlp& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  check(p);
  multiply_gate_up(p, stream);
  multiply_down(p, stream);
}

}  // namespace constrain::cuda
