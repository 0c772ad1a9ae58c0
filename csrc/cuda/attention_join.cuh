// Joins the results of the warps of a block, and of the splits of a sequence.
#pragma once

#include "cuda/attention_launch.cuh"
#include "cuda/attention_tile.cuh"

namespace constrain::cuda {

constexpr int kSplitsAtOnce = 16;
// Floats between rows of outputs in shared memory, padded so that lanes write to different banks.
template <int kDim>
constexpr int kOutputStride = kDim + 8;

// Four outputs of one row, not yet divided by the sum of its softmax.
struct Part {
  Softmax softmax;
  float4 out = {0, 0, 0, 0};
};

__device__ __forceinline__ float4 scaled(const float4& x, float factor) {
  return make_float4(factor * x.x, factor * x.y, factor * x.z, factor * x.w);
}

__device__ __forceinline__ float4 normalised(const Part& part) {
  return scaled(part.out, part.softmax.sum > 0 ? 1.0f / part.softmax.sum : 0.0f);
}

template <int kCount>
__device__ __forceinline__ Part join(const Part (&parts)[kCount]) {
  Part total;
#pragma unroll
  for (const Part& part : parts) total.softmax.top = fmaxf(total.softmax.top, part.softmax.top);
#pragma unroll
  for (const Part& part : parts) {
    const float factor = rescale(part.softmax.top, total.softmax.top);
    const float4 out = scaled(part.out, factor);
    total.softmax.sum += factor * part.softmax.sum;
    total.out.x += out.x;
    total.out.y += out.y;
    total.out.z += out.z;
    total.out.w += out.w;
  }
  return total;
}

// Results of the warps of a block, in shared memory.
template <int kDim, int kWarps>
struct WarpParts {
  float* outputs;  // [warps][row_count][kOutputStride]
  Softmax (&softmaxes)[kWarps][kAttentionRows];
  int row_count;

  __device__ __forceinline__ float* row(int warp, int r) const {
    return outputs + (warp * row_count + r) * kOutputStride<kDim>;
  }

  __device__ __forceinline__ void leave(int warp, RowSums<kDim>& rows) const {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      Softmax softmax = rows.softmax[half];
      softmax.sum += __shfl_xor_sync(kAllLanes, softmax.sum, 1);
      softmax.sum += __shfl_xor_sync(kAllLanes, softmax.sum, 2);
      const int r = lane_group() + 8 * half;
      if (r >= row_count) continue;
      if (lane_member() == 0) softmaxes[warp][r] = softmax;
#pragma unroll
      for (int n = 0; n < kDim / 8; n += 4) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int e = half * 2 + i, feature = n / 8 * 64 + (2 * lane_member() + i) * 8 + n % 8;
          *reinterpret_cast<float4*>(row(warp, r) + feature) =
              make_float4(rows.out[n][e], rows.out[n + 1][e], rows.out[n + 2][e], rows.out[n + 3][e]);
        }
      }
    }
  }

  // Joins the warps' results for four outputs, from the i-th of all rows on.
  __device__ __forceinline__ Part joined(int warps, int i) const {
    Part parts[kWarps];
#pragma unroll
    for (int w = 0; w < kWarps; ++w) {
      if (w >= warps) break;
      parts[w] = {softmaxes[w][i / kDim], *reinterpret_cast<const float4*>(row(w, i / kDim) + i % kDim)};
    }
    return join(parts);
  }
};

// Results of a split, in global memory; the block that ends last joins them (Dao et al. 2023, Flash-Decoding).
template <int kDim>
struct SplitParts {
  float4 outputs[kAttentionRows * kDim / 4];
  Softmax softmaxes[kAttentionRows];

  __device__ __forceinline__ void leave(int i, const Part& part) {
    outputs[i / 4] = part.out;
    if (i % kDim == 0) softmaxes[i / kDim] = part.softmax;
  }

  __device__ __forceinline__ Part load(int i) const {
    const float2 softmax = __ldcg(reinterpret_cast<const float2*>(softmaxes + i / kDim));
    return {{softmax.x, softmax.y}, __ldcg(outputs + i / 4)};
  }
};

template <int kDim>
__device__ __forceinline__ Part join_splits(const SplitParts<kDim>* splits, int count, int i) {
  Part parts[kSplitsAtOnce + 1];  // the last is the join of earlier ones
  for (int first = 0; first < count; first += kSplitsAtOnce) {
#pragma unroll
    for (int j = 0; j < kSplitsAtOnce; ++j) parts[j] = first + j < count ? splits[first + j].load(i) : Part{};
    parts[kSplitsAtOnce] = join(parts);
  }
  return parts[kSplitsAtOnce];
}

}  // namespace constrain::cuda
