#include "cuda/experts/packed_mlp.cuh"

namespace constrain::cuda {

PackedExpertKernels float8_experts() { return packed_expert_kernels<Float8Codes>(); }

}  // namespace constrain::cuda
