#include "cuda/experts/packed_mlp.cuh"

namespace constrain::cuda {

PackedExpertKernels scaled_float4_experts() { return packed_expert_kernels<ScaledFloat4Codes>(); }

}  // namespace constrain::cuda
