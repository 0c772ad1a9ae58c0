#include "cuda/activation.cuh"
#include "cuda/launch.cuh"
#include "cuda/linear/low_rank.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kProject = "project_rows";
constexpr const char* kAdd = "add_projected";
constexpr int kOutputs = kProductWarps * kTile;  // of a block

// A block projects eight rows of x by 16 ranks and a slice of the inputs.
template <typename T>
__global__ void __launch_bounds__(kProductThreads, 2) project_kernel(Product p) {
  extern __shared__ uint4 rings[];
  project<T, false>(p, blockIdx.x, blockIdx.y * kMaxProductRows, rings);
}

// What an output's update is added to.
template <bool kGated>
struct Addends {
  float products[kGated ? 2 : 1];
  float residual;
};

template <typename T, bool kGated>
__device__ __forceinline__ Addends<kGated> load_addends(const Product& p, const T* base, int row, int output) {
  if (row >= p.rows || output >= p.outputs) return {};
  const T* products = base + int64_t{row} * p.outputs * (kGated ? 2 : 1) + output;
  Addends<kGated> addends = {};
  addends.products[0] = to_float(products[0]);
  if constexpr (kGated) addends.products[1] = to_float(products[p.outputs]);
  if (p.residual) addends.residual = to_float(static_cast<const T*>(p.residual)[row * p.residual_stride + output]);
  return addends;
}

template <typename T, bool kGated>
__device__ __forceinline__ void write_sum(const Product& p, const Addends<kGated>& addends, int row, int output,
                                          const float (&sum)[kGated ? 2 : 1]) {
  if (row >= p.rows || output >= p.outputs) return;
  float value = sum[0] + addends.products[0];
  if constexpr (kGated) value = gated(value, sum[1] + addends.products[1], p.gate);
  static_cast<T*>(p.out)[row * p.out_stride + output] = from_float<T>(value + addends.residual);
}

// A warp computes 16 outputs of eight rows from what has been projected.
template <typename T, bool kGated>
__global__ void __launch_bounds__(kProductThreads) add_kernel(Product p, const T* base) {
  constexpr int kMatrices = kGated ? 2 : 1;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, group = lane / 4, member = lane % 4;
  const int first = blockIdx.x * kOutputs + warp * kTile, first_row = blockIdx.y * kMaxProductRows;
  const auto row_of = [&](int i) { return first_row + member * 2 + i % 2; };
  const auto output_of = [&](int i) { return first + group + i / 2 * 8; };
  const auto up_row = [&](int m, int i) {
    return static_cast<const T*>(p.update.up) +
           (min(first + i, p.outputs - 1) + int64_t{m} * p.outputs) * p.update.rank;
  };
  wait_for_predecessor();
  release_successor();

  // All before the first is written: `out` may be the memory of the products, so that later ones would wait for it.
  Addends<kGated> addends[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) addends[i] = load_addends<T, kGated>(p, base, row_of(i), output_of(i));

  float sum[kMatrices][4] = {};
  for (int start = 0; start < p.update.rank; start += kRankSpan) {
    const int rank = start + member * 8;
    const bool valid = rank < p.update.rank;
    const bool projected = valid && first_row + group < p.rows;
    uint4 up_rows[kMatrices][2];  // requested first: they come from device memory, what is projected from the cache
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
      up_rows[m][0] = load_once<uint4>(up_row(m, group) + rank, valid);
      up_rows[m][1] = load_once<uint4>(up_row(m, group + 8) + rank, valid);
    }
    const uint4 column = projected ? load_projected<T>(p, first_row + group, rank) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) multiply_add_packs<T>(sum[m], up_rows[m][0], up_rows[m][1], column);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    float each[kMatrices];
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) each[m] = sum[m][i];
    write_sum<T, kGated>(p, addends[i], row_of(i), output_of(i), each);
  }
}

template <typename T, bool kGated>
void launch_add(const Product& p, const void* base, cudaStream_t stream) {
  const unsigned blocks = (p.outputs + kOutputs - 1) / kOutputs;
  const unsigned groups = (p.rows + kMaxProductRows - 1) / kMaxProductRows;
  launch(kAdd, add_kernel<T, kGated>, {dim3(blocks, groups), kProductThreads}, stream, p, static_cast<const T*>(base));
}

}  // namespace

int64_t projected_floats(int rows, int inputs, int rank) { return int64_t{num_slices(inputs)} * rows * rank; }

void project_rows(const Product& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  check(p.update, kProject);
  require(p.x && aligned(p.x, 16), kProject, "null or misaligned pointer");
  require(p.inputs > 0 && p.inputs % 8 == 0 && p.x_stride % 8 == 0, kProject, "inputs must be a multiple of 8");
  const unsigned groups = (p.rows + kMaxProductRows - 1) / kMaxProductRows;
  const unsigned projections = num_projections(p);
  with_half_type(p.type, kProject, [&](auto element) {
    using T = decltype(element);
    launch(kProject, project_kernel<T>, {dim3(projections, groups), kProductThreads, kRingBytes, false}, stream, p);
  });
}

void add_projected(const Product& p, const void* base, cudaStream_t stream) {
  if (p.rows <= 0) return;
  check(p.update, kAdd);
  require(base && p.out, kAdd, "null pointer");
  require(p.inputs > 0 && p.outputs > 0 && p.outputs <= INT32_MAX / 2, kAdd, "sizes out of range");
  with_half_type(p.type, kAdd, [&](auto element) {
    using T = decltype(element);
    if (p.gated)
      launch_add<T, true>(p, base, stream);
    else
      launch_add<T, false>(p, base, stream);
  });
}

}  // namespace constrain::cuda
