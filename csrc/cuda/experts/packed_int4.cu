#include "cuda/experts/packed_mlp.cuh"

namespace constrain::cuda {

PackedExpertKernels int4_experts() { return packed_expert_kernels<Int4Codes>(); }

}  // namespace constrain::cuda
