#include "cuda/packed/codes.cuh"
#include "cuda/packed/launch.cuh"

namespace constrain::cuda {

void scaled_float4_product(const PackedProduct& product, cudaStream_t stream) {
  launch_product<ScaledFloat4Codes>(product, stream);
}

}  // namespace constrain::cuda
