#include "cuda/packed_codes.cuh"
#include "cuda/packed_launch.cuh"

namespace constrain::cuda {

void float4_product(const PackedProduct& product, cudaStream_t stream) { launch_product<Float4Codes>(product, stream); }

}  // namespace constrain::cuda
