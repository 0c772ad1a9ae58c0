#include "cuda/attention_kernel.cuh"

namespace constrain::cuda {

void launch_float8_attention(const AttentionLaunch& a, const AttentionShape& shape, cudaStream_t stream) {
  with_half_type(a.p.type, kAttentionName, [&](auto element) {
    using T = decltype(element);
    if (a.p.pages.head_dim <= 64) return launch_attention<T, Float8, Float8, 64>(a, shape, stream);
    if (a.p.pages.head_dim <= 128) return launch_attention<T, Float8, Float8, 128>(a, shape, stream);
    launch_attention<T, Float8, Float8, 256>(a, shape, stream);
  });
}

}  // namespace constrain::cuda
