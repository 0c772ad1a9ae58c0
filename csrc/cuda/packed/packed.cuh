// Products with weights of few bits, and the order of these weights in memory.
//
// A weight (outputs, inputs) is cut into tiles of 16 outputs, and tiles into spans of 128 inputs. A span of a tile is a
// record: its codes, in the order in which the lanes of a warp need them as operands of tensor cores, then the scales
// of its groups, then a byte for each group if it has any. Records of a tile follow one another, so a warp reads memory
// in order. Rows and inputs that fill up the last tile and span have scales of zero.
//
//   codes   (part, lane, 16): of each quarter of the span, which is 32 inputs, lane 4 g + t has the codes of rows g and
//           g + 8 at the inputs 8 t to 8 t + 7; a part is one quarter of codes of eight bits, or two of four
//   scales  (group, 8, 2): rows g and g + 8 side by side
//   bytes   (group, 8, 2): likewise; zero points of integers, or scales of their own of groups of 16 floats
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/activation.cuh"
#include "cuda/types.cuh"

namespace constrain::cuda {

constexpr const char* kPackedName = "packed product";
constexpr int kPackedTile = 16;
constexpr int kPackedSpan = 128;
constexpr int kQuarters = 4;
constexpr int kMostPackedRows = 64;  // with more, dequantisation and a large product are faster

// int4, int8: unsigned integers; weight = (code - zero) * scale. float8: E4M3, float4: E2M1; weight = code * scale.
// scaled_float4: E2M1 with a scale in E4M3 for each 16 inputs; weight = code * (that scale / 512) * scale.
enum class Codes { int4, int8, float8, float4, scaled_float4 };
constexpr int kSubgroup = 16;

// The form of records.
struct RecordShape {
  Codes codes;
  int group;         // inputs of a scale: 32 or 128; scales of other groups are repeated. 128 for scaled_float4
  FloatType scales;  // their type
  bool zeros;        // whether integers have zero points; without, they are 8 or 128

  __host__ __device__ int code_bytes() const {
    return kPackedTile * kPackedSpan / (codes == Codes::int8 || codes == Codes::float8 ? 1 : 2);
  }
  __host__ __device__ int groups() const { return kPackedSpan / group; }
  __host__ __device__ int scale_bytes() const { return kPackedTile * (scales == FloatType::float32 ? 4 : 2); }
  __host__ __device__ int byte_groups() const {
    return codes == Codes::scaled_float4 ? kPackedSpan / kSubgroup : zeros ? groups() : 0;
  }
  __host__ __device__ int bytes() const {
    return code_bytes() + groups() * scale_bytes() + byte_groups() * kPackedTile;
  }
};

struct PackedWeight {
  const void* records;  // (tiles, spans, bytes of a record), aligned to 16 bytes
  RecordShape shape;
  int outputs;
  int inputs;

  __host__ __device__ int tiles() const { return (outputs + kPackedTile - 1) / kPackedTile; }
  __host__ __device__ int spans() const { return (inputs + kPackedSpan - 1) / kPackedSpan; }
};

// As `Product` in linear/product.cuh, with at most kMostPackedRows rows. Gated: the weight has an even number of tiles
// without rows that fill up, and half of its outputs are those of the gate.
struct PackedProduct {
  const void* x;
  const void* norm_weight;
  PackedWeight weight;
  const void* bias;
  const void* residual;
  void* out;
  int64_t x_stride;
  int64_t residual_stride;
  int64_t out_stride;
  int rows;
  float eps;
  bool gated;
  Gate gate;
  FloatType type;
};

// The weight as (outputs, inputs) of a 16-bit type, contiguous.
struct Unpacking {
  PackedWeight weight;
  void* out;
  FloatType type;
};

// Queue a product, with sums in a fixed order, and the dequantisation of a weight. They throw std::invalid_argument
// where the arguments cannot be right, std::runtime_error where CUDA refuses the launch.
void packed_product(const PackedProduct& product, cudaStream_t stream);
void unpack_weight(const Unpacking& unpacking, cudaStream_t stream);

}  // namespace constrain::cuda
