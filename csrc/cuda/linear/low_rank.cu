#include "cuda/launch.cuh"
#include "cuda/linear/low_rank.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "low_rank_product";
constexpr int kOutputs = kProductWarps * kTile;  // of a block

// A block projects eight rows of x by 16 ranks and a slice of the inputs.
template <typename T>
__global__ void __launch_bounds__(kProductThreads, 2) project_rows(Product p) {
  extern __shared__ uint4 rings[];
  project<T, false>(p, blockIdx.x, blockIdx.y * kMaxProductRows, rings);
}

template <typename T>
__device__ __forceinline__ void write_sum(const Product& p, int row, int output, float value) {
  if (row >= p.rows || output >= p.outputs) return;
  if (p.bias) value += to_float(static_cast<const T*>(p.bias)[output]);
  if (p.residual) value += to_float(static_cast<const T*>(p.residual)[row * p.residual_stride + output]);
  static_cast<T*>(p.out)[row * p.out_stride + output] = from_float<T>(value);
}

// A warp computes 16 outputs of eight rows from what has been projected.
template <typename T>
__global__ void __launch_bounds__(kProductThreads) expand_rows(Product p) {
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, group = lane / 4, member = lane % 4;
  const int first = blockIdx.x * kOutputs + warp * kTile, first_row = blockIdx.y * kMaxProductRows;
  const auto up_row = [&](int i) {
    return static_cast<const T*>(p.update.up) + int64_t{min(first + i, p.outputs - 1)} * p.update.rank;
  };
  if (lane < kTile) asm volatile("prefetch.global.L2 [%0];" ::"l"(up_row(lane)));
  wait_for_predecessor();
  release_successor();

  float sum[4] = {};
  for (int start = 0; start < p.update.rank; start += kRankSpan) {
    const int rank = start + member * 8;
    const bool valid = rank < p.update.rank;
    const uint4 row = load_once<uint4>(up_row(group) + rank, valid);
    const uint4 row8 = load_once<uint4>(up_row(group + 8) + rank, valid);
    const bool projected = valid && first_row + group < p.rows;
    const uint4 column = projected ? load_projected<T>(p, first_row + group, rank) : make_uint4(0, 0, 0, 0);
    multiply_add_packs<T>(sum, row, row8, column);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) write_sum<T>(p, first_row + member * 2 + i % 2, first + group + i / 2 * 8, sum[i]);
}

}  // namespace

int64_t projected_floats(int rows, int inputs, int rank) { return int64_t{num_slices(inputs)} * rows * rank; }

void low_rank_product(const Product& p, cudaStream_t stream) {
  const unsigned groups = (p.rows + kMaxProductRows - 1) / kMaxProductRows;
  const unsigned projections = num_projections(p), blocks = (p.outputs + kOutputs - 1) / kOutputs;
  with_half_type(p.type, kName, [&](auto element) {
    using T = decltype(element);
    launch(kName, project_rows<T>, {dim3(projections, groups), kProductThreads, kRingBytes}, stream, p);
    launch(kName, expand_rows<T>, {dim3(blocks, groups), kProductThreads}, stream, p);
  });
}

}  // namespace constrain::cuda
