#include "cuda/launch.cuh"
#include "cuda/penalties.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "penalise";
constexpr int kThreads = 512;

// What is known of a token: one more than the place of its latest occurrence, the number of its occurrences, and by how
// many steps they have faded together. Integers, so that the sums do not depend on the order of the threads.
struct Seen {
  int32_t latest, count, steps;
};

__global__ void __launch_bounds__(kThreads) penalise_rows(Penalties p) {
  wait_for_predecessor();
  release_successor();
  const int r = blockIdx.x;
  const int length = p.lengths[r];
  const int full = p.ranges[r] < 0 ? length : min(p.ranges[r], length);
  const int fading = min(p.decays[r], length - full);
  const int count = full + fading;
  const int64_t* ids = p.ids + r * p.ids_stride + (length - count);
  float* logits = p.logits + r * p.logits_stride;
  Seen* seen = reinterpret_cast<Seen*>(p.scratch) + int64_t{r} * p.width;
  const auto known = [&](int i) { return ids[i] >= 0 && ids[i] < p.width; };
  const auto steps_of = [&](int i) { return i < fading ? fading - 1 - i : 0; };
  const float step = fading > 0 ? 1.0f / p.decays[r] : 0.0f;

  for (int i = threadIdx.x; i < count; i += kThreads) {
    if (!known(i)) continue;
    Seen& token = seen[ids[i]];
    atomicMax(&token.latest, i + 1);
    atomicAdd(&token.count, 1);
    if (steps_of(i) > 0) atomicAdd(&token.steps, steps_of(i));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += kThreads) {
    if (!known(i) || __ldcg(&seen[ids[i]].latest) != i + 1) continue;
    Seen& token = seen[ids[i]];
    const float latest = 1.0f - steps_of(i) * step;
    const float all = __ldcg(&token.count) - __ldcg(&token.steps) * step;
    const float factor = 1.0f + (p.repetition[r] - 1.0f) * latest;
    const float old = logits[ids[i]];
    logits[ids[i]] = (old > 0 ? old / factor : old * factor) - p.presence[r] * latest - p.frequency[r] * all;
    token = {};
  }
}

}  // namespace

void penalise(const Penalties& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  require(
      p.logits && p.ids && p.lengths && p.repetition && p.ranges && p.decays && p.frequency && p.presence && p.scratch,
      kName, "null pointer");
  require(p.width > 0, kName, "width out of range");
  launch(kName, penalise_rows, {dim3(p.rows), kThreads}, stream, p);
}

}  // namespace constrain::cuda
