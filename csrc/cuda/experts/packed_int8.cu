#include "cuda/experts/packed_mlp.cuh"

namespace constrain::cuda {

PackedExpertKernels int8_experts() { return packed_expert_kernels<Int8Codes>(); }

}  // namespace constrain::cuda
