#include "cuda/experts/packed_mlp.cuh"

namespace constrain::cuda {

PackedExpertKernels float4_experts() { return packed_expert_kernels<Float4Codes>(); }

}  // namespace constrain::cuda
