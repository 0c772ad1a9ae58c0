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
    const KVFormat keys = a.p.pages.key_format, values = a.p.pages.value_format;
    if (keys == KVFormat::group8 && values == KVFormat::group8) return launch_dim<T, 8, 8>(a, shape, stream);
    if (keys == KVFormat::group8 && values == KVFormat::group4) return launch_dim<T, 8, 4>(a, shape, stream);
    if (keys == KVFormat::group4 && values == KVFormat::group4) return launch_dim<T, 4, 4>(a, shape, stream);
    require(false, kAttentionName, "no kernel for keys and values of these formats");
  });
}

}  // namespace constrain::cuda
