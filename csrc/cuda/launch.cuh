// Launches of kernels: checked, and such that a kernel may begin before the preceding one has ended.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <stdexcept>
#include <string>

namespace constrain::cuda {

// Programmatic dependent launch (compute capability 9.0 and later). A kernel launched by `launch` may start while its
// predecessor on the stream is still running. Before it calls `wait_for_predecessor`, it must not touch memory that
// other kernels write. Every kernel must call it: the chain stays in order because each predecessor has waited for its
// own.
__device__ __forceinline__ void wait_for_predecessor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Allows the next kernel to start. To be called after the wait, so that no more than two kernels overlap.
__device__ __forceinline__ void release_successor() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

inline void check_cuda(cudaError_t error, const char* name) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw std::runtime_error(std::string(name) + ": " + cudaGetErrorString(error));
}

inline void require(bool condition, const char* name, const char* problem) {
  if (!condition) throw std::invalid_argument(std::string(name) + ": " + problem);
}

inline bool aligned(const void* pointer, size_t bytes) { return reinterpret_cast<uintptr_t>(pointer) % bytes == 0; }

inline int device_attribute(cudaDeviceAttr attribute, const char* name) {
  int device = 0, value = 0;
  check_cuda(cudaGetDevice(&device), name);
  check_cuda(cudaDeviceGetAttribute(&value, attribute, device), name);
  return value;
}

struct LaunchShape {
  dim3 grid;
  unsigned threads;
  size_t shared_bytes = 0;
  bool may_overlap = true;     // not for a kernel that begins the work of a second stream
  dim3 cluster = {1, 1, 1};    // blocks that share their memory, for compute capability 9.0 and later
  bool leaves_shared = false;  // multiprocessors have all the shared memory they can, for blocks of other kernels too
};

// The launch of a kernel, whose attributes `attributes` holds.
template <typename... Parameters>
cudaLaunchConfig_t configure(const char* name, void (*kernel)(Parameters...), const LaunchShape& shape,
                             cudaStream_t stream, cudaLaunchAttribute (&attributes)[2]) {
  // Without this attribute a block has 48 KiB, static variables included.
  constexpr size_t kSharedByDefault = 32 << 10;
  const auto* function = reinterpret_cast<const void*>(kernel);
  if (shape.shared_bytes > kSharedByDefault)
    check_cuda(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shape.shared_bytes)),
               name);
  if (shape.leaves_shared)
    check_cuda(
        cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
        name);
  const bool in_cluster = shape.cluster.x * shape.cluster.y * shape.cluster.z > 1;
  unsigned count = 0;
  if (shape.may_overlap) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (in_cluster) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {shape.cluster.x, shape.cluster.y, shape.cluster.z};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = device_attribute(cudaDevAttrComputeCapabilityMajor, name) >= 9 ? count : 0;
  return config;
}

template <typename... Parameters>
void launch(const char* name, void (*kernel)(Parameters...), const LaunchShape& shape, cudaStream_t stream,
            Parameters... arguments) {
  cudaLaunchAttribute attributes[2]{};
  const cudaLaunchConfig_t config = configure(name, kernel, shape, stream, attributes);
  check_cuda(cudaLaunchKernelEx(&config, kernel, arguments...), name);
}

// Clusters of the shape that the device runs at the same time.
template <typename... Parameters>
int count_clusters(const char* name, void (*kernel)(Parameters...), const LaunchShape& shape) {
  cudaLaunchAttribute attributes[2]{};
  const cudaLaunchConfig_t config = configure(name, kernel, shape, nullptr, attributes);
  int clusters = 0;
  check_cuda(cudaOccupancyMaxActiveClusters(&clusters, kernel, &config), name);
  return clusters;
}

}  // namespace constrain::cuda
