#include "cuda/packed/codes.cuh"
#include "cuda/packed/launch.cuh"

namespace constrain::cuda {

void int8_product(const PackedProduct& product, cudaStream_t stream) { launch_product<Int8Codes>(product, stream); }

}  // namespace constrain::cuda
