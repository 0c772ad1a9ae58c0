#include <cstdint>

#include "cuda/experts/choose.cuh"
#include "cuda/experts/experts.cuh"
#include "cuda/launch.cuh"
#include "cuda/reduce.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "route_experts";

// One warp chooses for a row.
template <typename T, int kEach>
__global__ void __launch_bounds__(kWarp) route_experts(Routing p) {
  wait_for_predecessor();
  release_successor();
  const int row = blockIdx.x;
  const T* logits = static_cast<const T*>(p.logits) + row * p.stride;
  choose_experts<kEach>(p, row, [&](int expert) { return to_float(logits[expert]); });
}

}  // namespace

void check_routing(const Routing& p, int most, const char* name) {
  require(p.experts && p.weights, name, "null pointer");
  require(p.count > 0 && p.count <= most, name, "unsupported number of experts");
  require(p.chosen > 0 && p.chosen <= p.count && p.chosen <= kMaxChosen, name, "unsupported number of chosen experts");
}

void route(const Routing& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  require(p.logits, kName, "null pointer");
  check_routing(p, kMaxExperts, kName);
  with_half_type(p.type, kName, [&](auto element) {
    using T = decltype(element);
    constexpr int kFew = 4, kMany = kMaxExperts / kWarp;
    const LaunchShape shape{dim3(static_cast<unsigned>(p.rows)), kWarp};
    if (p.count <= kFew * kWarp)
      launch(kName, route_experts<T, kFew>, shape, stream, p);
    else
      launch(kName, route_experts<T, kMany>, shape, stream, p);
  });
}

}  // namespace constrain::cuda
