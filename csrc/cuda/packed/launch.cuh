// Choice of the kernel for a product with a packed weight. Each file of one kind of codes compiles its own.
#pragma once

#include <type_traits>

#include "cuda/packed/few_rows.cuh"
#include "cuda/packed/many_rows.cuh"
#include "cuda/packed/one_row.cuh"
#include "cuda/packed/warpgroup_rows.cuh"

namespace constrain::cuda {

template <typename T, typename Format, int kTiles>
void launch_norm(const PackedProduct& p, cudaStream_t stream) {
  if (!p.norm_weight) return launch_few_rows<T, Format, kTiles, false>(p, stream);
  // The norm's weight multiplies before the root divides, which float16 has no range for.
  if constexpr (std::is_same_v<T, __nv_bfloat16>) return launch_few_rows<T, Format, kTiles, true>(p, stream);
  require(false, kPackedName, "a norm takes bfloat16");
}

// Queues the product of one row by integers where there is a kernel, and room for it.
template <typename T, typename Format>
bool launch_integers(const PackedProduct& p, cudaStream_t stream) {
  if constexpr (Format::kCodes == Codes::int4) {
    if (p.rows > 1 || device_attribute(cudaDevAttrComputeCapabilityMajor, kPackedName) < 9) return false;
    if (!p.norm_weight)
      return p.gated ? launch_one_row<T, Format, 2, false>(p, stream) : launch_one_row<T, Format, 1, false>(p, stream);
    if constexpr (std::is_same_v<T, __nv_bfloat16>)
      return p.gated ? launch_one_row<T, Format, 2, true>(p, stream) : launch_one_row<T, Format, 1, true>(p, stream);
  }
  return false;
}

template <typename T, typename Format>
void launch_format(const PackedProduct& p, cudaStream_t stream) {
  if constexpr (Format::kGroup == kPackedSpan && Format::kSteps == 4) {
    if (warpgroups_take(p)) return launch_warpgroup_rows<T, Format>(p, stream);
  }
  if (launch_integers<T, Format>(p, stream)) return;
  const bool clusters = device_attribute(cudaDevAttrComputeCapabilityMajor, kPackedName) >= 9;
  // A norm's kernel multiplies before the sum of squares is known; that costs too much where many blocks repeat it.
  if (p.rows > kRowsOfProduct && clusters && !p.norm_weight) {
    if (p.rows <= 2 * kRowsOfProduct) return launch_many_rows<T, Format, 2>(p, stream);
    return launch_many_rows<T, Format, 4>(p, stream);
  }
  if (p.gated) return launch_norm<T, Format, 2>(p, stream);
  launch_norm<T, Format, 1>(p, stream);
}

template <typename Kind>
void launch_product(const PackedProduct& p, cudaStream_t stream) {
  with_half_type(p.type, kPackedName, [&](auto element) {
    with_groups<Kind>(p.weight.shape,
                      [&](auto format) { launch_format<decltype(element), decltype(format)>(p, stream); });
  });
}

void int4_product(const PackedProduct& product, cudaStream_t stream);
void int8_product(const PackedProduct& product, cudaStream_t stream);
void float8_product(const PackedProduct& product, cudaStream_t stream);
void float4_product(const PackedProduct& product, cudaStream_t stream);
void scaled_float4_product(const PackedProduct& product, cudaStream_t stream);

}  // namespace constrain::cuda
