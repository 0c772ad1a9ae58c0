// A kernel that only reads, to measure the bandwidth of a device.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace constrain::cuda {

// Reads `bytes`, a multiple of 16, at `data`, which is aligned to 16 bytes; `out` is a word that may be written, so
// that the compiler cannot drop the loads. Throws std::invalid_argument or std::runtime_error.
void read_all(const void* data, int64_t bytes, uint32_t* out, cudaStream_t stream);

}  // namespace constrain::cuda
