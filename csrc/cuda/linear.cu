#include <cstdint>
#include <type_traits>

#include "cuda/async_copy.cuh"
#include "cuda/launch.cuh"
#include "cuda/linear.cuh"
#include "cuda/mma.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "product";
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kTile = 16;           // outputs of a block, and of a tensor core's product
constexpr int kSpan = 64;           // inputs that a warp takes in one stage: a cache line of each weight row
constexpr int kChunks = kSpan / 8;  // of 16 bytes, in a cache line
constexpr int kHalves = kSpan / 32;
constexpr int kRingBytes = 64 << 10;

struct Columns {
  uint4 x[kHalves], factor[kHalves];
};

// Index of a chunk of a weight row, swizzled so that the lanes of a load use different banks.
__device__ __forceinline__ int place(int row, int chunk) { return row * kChunks + (chunk ^ (row % 2 * 4)); }

// A block computes 16 outputs, of both matrices where gated. Its warps take turns at spans of the inputs, and their
// sums are added at the end. Every warp has a ring of stages in shared memory for its weights, so that no warp waits
// for another; the ring begins to fill before the preceding kernel has ended. Weights are loaded in whole cache lines
// by eight lanes each.
template <typename T, bool kGated, bool kNorm>
__global__ void __launch_bounds__(kThreads, 2) multiply(Product p) {
  constexpr int kMatrices = kGated ? 2 : 1;
  constexpr int kStage = kTile * kChunks;  // chunks of one matrix
  constexpr int kDepth = kRingBytes / (kWarps * kMatrices * kStage * 16);
  extern __shared__ uint4 rings[];  // [kWarps][kDepth][kMatrices][kStage]
  __shared__ float sums[kMatrices][kWarps][kTile][kMaxProductRows];
  __shared__ float squares[kWarps][kMaxProductRows];

  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, group = lane / 4, member = lane % 4;
  const int first = blockIdx.x * kTile;
  uint4* ring = rings + warp * kDepth * kMatrices * kStage;
  constexpr int kLinesAtOnce = kWarp / kChunks;
  const auto fetch = [&](int d, int stage) {
    const int chunk = lane % kChunks, input = (stage * kWarps + warp) * kSpan + chunk * 8;
    const bool valid = input < p.inputs;
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int i = 0; i < kTile / kLinesAtOnce; ++i) {
        const int row = i * kLinesAtOnce + lane / kChunks;
        const int output = min(first + row, p.outputs - 1) + m * p.outputs;
        const T* from = static_cast<const T*>(p.weight) + int64_t{output} * p.inputs + (valid ? input : 0);
        copy_async(ring + (d * kMatrices + m) * kStage + place(row, chunk), from, valid);
      }
    }
    end_stage();
  };
  // The lane's part of the rows of x, which are the columns of the product, for one stage.
  const auto load_columns = [&](int stage) {
    Columns columns;
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const int input = (stage * kWarps + warp) * kSpan + h * 32 + member * 8;
      const T* x = static_cast<const T*>(p.x) + group * p.x_stride + input;
      const T* factor = static_cast<const T*>(p.norm_weight) + input;
      const bool valid = group < p.rows && input < p.inputs;
      columns.x[h] = valid ? *reinterpret_cast<const uint4*>(x) : make_uint4(0, 0, 0, 0);
      if constexpr (kNorm) columns.factor[h] = valid ? *reinterpret_cast<const uint4*>(factor) : make_uint4(0, 0, 0, 0);
    }
    return columns;
  };

#pragma unroll
  for (int d = 0; d < kDepth; ++d) fetch(d, d);
  wait_for_predecessor();
  release_successor();

  float sum[kMatrices][4] = {};
  float square = 0;
  const int stages = (p.inputs + kWarps * kSpan - 1) / (kWarps * kSpan);
  Columns next = load_columns(0);
  for (int start = 0; start < stages; start += kDepth) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      Columns columns = next;
      next = load_columns(start + d + 1);
      wait_for_stage<kDepth - 1>();
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        if constexpr (kNorm) columns.x[h] = multiply8<T>(columns.x[h], columns.factor[h], square);
#pragma unroll
        for (int m = 0; m < kMatrices; ++m) {
          const uint4* stage = ring + (d * kMatrices + m) * kStage;
          const uint4 row = stage[place(group, h * 4 + member)], row8 = stage[place(group + 8, h * 4 + member)];
          multiply_add_packs<T>(sum[m], row, row8, columns.x[h]);
        }
      }
      __syncwarp();
      fetch(d, start + d + kDepth);
    }
  }

#pragma unroll
  for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[m][warp][group + i / 2 * 8][member * 2 + i % 2] = sum[m][i];
  }
  if constexpr (kNorm) {
    square += __shfl_xor_sync(kAllLanes, square, 1);
    square += __shfl_xor_sync(kAllLanes, square, 2);
    if (member == 0) squares[warp][group] = square;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTile * kMaxProductRows; i += kThreads) {
    const int output = first + i % kTile, row = i / kTile;
    if (output >= p.outputs || row >= p.rows) continue;
    float scale = 1.0f;
    if constexpr (kNorm) {
      float all = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) all += squares[w][row];
      scale = rsqrtf(all / p.inputs + p.eps);
    }
    float total[kMatrices] = {};
#pragma unroll
    for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
      for (int w = 0; w < kWarps; ++w) total[m] += sums[m][w][i % kTile][row];
      total[m] *= scale;
      if (p.bias) total[m] += to_float(static_cast<const T*>(p.bias)[output + m * p.outputs]);
    }
    float value = total[0];
    if constexpr (kGated) value = activate(value, p.gate) * total[1];
    if (p.residual) value += to_float(static_cast<const T*>(p.residual)[row * p.residual_stride + output]);
    static_cast<T*>(p.out)[row * p.out_stride + output] = from_float<T>(value);
  }
}

template <typename T, bool kGated>
void launch_norm(const Product& p, cudaStream_t stream) {
  const LaunchShape shape{dim3((p.outputs + kTile - 1) / kTile), kThreads, kRingBytes};
  if (!p.norm_weight) return launch(kName, multiply<T, kGated, false>, shape, stream, p);
  // The norm's weight multiplies before the root divides, which float16 has no range for.
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return launch(kName, multiply<T, kGated, true>, shape, stream, p);
  require(false, kName, "a norm takes bfloat16");
}

void check(const Product& p) {
  require(p.x && p.weight && p.out, kName, "null pointer");
  for (const void* pointer : {p.x, p.norm_weight, p.weight}) require(aligned(pointer, 16), kName, "misaligned pointer");
  require(p.rows <= kMaxProductRows, kName, "too many rows");
  require(p.inputs > 0 && p.inputs % 8 == 0 && p.x_stride % 8 == 0, kName, "inputs must be a multiple of 8");
  require(p.outputs > 0 && p.outputs <= INT32_MAX / 2 - kTile, kName, "outputs out of range");
  require(p.inputs <= INT32_MAX / 4, kName, "inputs out of range");
}

}  // namespace

void product(const Product& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  check(p);
  with_half_type(p.type, kName, [&](auto element) {
    if (p.gated)
      launch_norm<decltype(element), true>(p, stream);
    else
      launch_norm<decltype(element), false>(p, stream);
  });
}

}  // namespace constrain::cuda
