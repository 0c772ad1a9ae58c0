#include <cstdint>

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
constexpr int kColumns = 8;         // rows of x in a tensor core's product, where they are the columns
constexpr int kSpan = 64;           // inputs that a warp takes in one stage: a cache line of each weight row
constexpr int kChunks = kSpan / 8;  // of 16 bytes, in a cache line
constexpr int kHalves = kSpan / 32;
constexpr int kRingBytes = 64 << 10;

// Copies 16 bytes to shared memory in the background, or zeros where not `valid`. Unlike a load into registers, which
// the compiler moves behind the wait for the kernel in front, this begins at once.
__device__ __forceinline__ void copy_async(uint4* to, const void* from, bool valid) {
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(static_cast<uint32_t>(__cvta_generic_to_shared(to))),
      "l"(from), "r"(valid ? 16 : 0)
      : "memory");
}

__device__ __forceinline__ void end_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until all but the last `kLeft` stages of this thread have arrived.
template <int kLeft>
__device__ __forceinline__ void wait_for_stage() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}

// Where a chunk of a weight row is kept: the lanes of a load find their chunks in different banks.
__device__ __forceinline__ int place(int row, int chunk) { return row * kChunks + (chunk ^ (row % 2 * 4)); }

// A block computes 16 outputs, of both matrices where gated. Its warps take turns at spans of the inputs, and add up
// their sums at the end. Every warp has a ring of stages in shared memory for the weights that it is going to use, so
// that no warp ever waits for another; it begins to fill before the kernel in front has ended. Weights are asked for in
// whole cache lines, eight lanes for each.
template <typename T, int kColumnTiles, bool kGated, bool kNorm>
__global__ void __launch_bounds__(kThreads, 2) multiply(Product p) {
  constexpr int kMatrices = kGated ? 2 : 1;
  constexpr int kStage = kTile * kChunks;  // chunks of one matrix
  constexpr int kDepth = kRingBytes / (kWarps * kMatrices * kStage * 16);
  constexpr int kBatch = kColumnTiles * kColumns;
  extern __shared__ uint4 rings[];  // [kWarps][kDepth][kMatrices][kStage]
  __shared__ float sums[kMatrices][kWarps][kTile][kBatch];
  __shared__ float squares[kWarps][kBatch];

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
  const auto input_of = [&](int stage, int h) { return (stage * kWarps + warp) * kSpan + h * 32 + member * 8; };

#pragma unroll
  for (int d = 0; d < kDepth; ++d) fetch(d, d);
  wait_for_predecessor();
  release_successor();

  float sum[kMatrices][kColumnTiles][4] = {};
  float square[kColumnTiles] = {};
  const int stages = (p.inputs + kWarps * kSpan - 1) / (kWarps * kSpan);
  for (int start = 0; start < stages; start += kDepth) {
#pragma unroll
    for (int d = 0; d < kDepth; ++d) {
      uint4 columns[kColumnTiles][kHalves];
#pragma unroll
      for (int t = 0; t < kColumnTiles; ++t) {
        const int column = t * kColumns + group;
        const T* x = static_cast<const T*>(p.x) + column * p.x_stride;
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
          const int input = input_of(start + d, h);
          columns[t][h] = make_uint4(0, 0, 0, 0);
          if (column >= p.rows || input >= p.inputs) continue;
          columns[t][h] = *reinterpret_cast<const uint4*>(x + input);
          if constexpr (kNorm) {
            const auto* factors = reinterpret_cast<const uint4*>(static_cast<const T*>(p.norm_weight) + input);
            columns[t][h] = multiply8<T>(columns[t][h], *factors, square[t]);
          }
        }
      }
      wait_for_stage<kDepth - 1>();
      __syncwarp();
#pragma unroll
      for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
        for (int h = 0; h < kHalves; ++h) {
          const uint4* stage = ring + (d * kMatrices + m) * kStage;
          const uint4 row = stage[place(group, h * 4 + member)], row8 = stage[place(group + 8, h * 4 + member)];
#pragma unroll
          for (int t = 0; t < kColumnTiles; ++t) multiply_add_packs<T>(sum[m][t], row, row8, columns[t][h]);
        }
      }
      __syncwarp();
      fetch(d, start + d + kDepth);
    }
  }

#pragma unroll
  for (int m = 0; m < kMatrices; ++m) {
#pragma unroll
    for (int t = 0; t < kColumnTiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[m][warp][group + i / 2 * 8][t * kColumns + member * 2 + i % 2] = sum[m][t][i];
    }
  }
  if constexpr (kNorm) {
#pragma unroll
    for (int t = 0; t < kColumnTiles; ++t) {
      square[t] += __shfl_xor_sync(kAllLanes, square[t], 1);
      square[t] += __shfl_xor_sync(kAllLanes, square[t], 2);
      if (member == 0) squares[warp][t * kColumns + group] = square[t];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kTile * kBatch; i += kThreads) {
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

template <typename T, bool kGated, bool kNorm>
void launch_tiles(const Product& p, cudaStream_t stream) {
  const LaunchShape shape{dim3((p.outputs + kTile - 1) / kTile), kThreads, kRingBytes};
  if (p.rows <= kColumns)
    launch(kName, multiply<T, 1, kGated, kNorm>, shape, stream, p);
  else
    launch(kName, multiply<T, 2, kGated, kNorm>, shape, stream, p);
}

template <typename T, bool kGated>
void launch_norm(const Product& p, cudaStream_t stream) {
  if (p.norm_weight)
    launch_tiles<T, kGated, true>(p, stream);
  else
    launch_tiles<T, kGated, false>(p, stream);
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
