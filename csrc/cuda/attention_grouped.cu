#include "cuda/attention_kernel.cuh"

namespace constrain::cuda {
namespace {

template <typename T, int kKeyBits, int kValueBits>
void launch_dim(const AttentionLaunch& a, const AttentionShape& shape, cudaStream_t stream) {
  using Keys = Grouped<kKeyBits>;
  using Values = Grouped<kValueBits>;
  switch (a.p.pages.head_dim) {
    case 64:
      return launch_attention<T, Keys, Values, 64>(a, shape, stream);
    case 128:
      return launch_attention<T, Keys, Values, 128>(a, shape, stream);
    default:
      return launch_attention<T, Keys, Values, 256>(a, shape, stream);
  }
}

}  // namespace

void launch_grouped_attention(const AttentionLaunch& a, const AttentionShape& shape, cudaStream_t stream) {
  with_half_type(a.p.type, kAttentionName, [&](auto element) {
    using T = decltype(element);
    const int bits = a.p.pages.key_bits * 16 + a.p.pages.value_bits;
    if (bits == 0x88) return launch_dim<T, 8, 8>(a, shape, stream);
    if (bits == 0x84) return launch_dim<T, 8, 4>(a, shape, stream);
    if (bits == 0x44) return launch_dim<T, 4, 4>(a, shape, stream);
    require(false, kAttentionName, "no kernel for codes of these bits");
  });
}

}  // namespace constrain::cuda
