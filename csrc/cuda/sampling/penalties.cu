#include "cuda/launch.cuh"
#include "cuda/sampling/penalties.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "penalise";
constexpr int kThreads = 512;

// Occurrences of a token: one more than the index of the latest; of those that count for frequency and presence, their
// number, and the sum of the steps by which they have faded. Integers, so that the sums do not depend on the order of
// the threads.
struct Seen {
  int32_t latest, count, steps;
};

__global__ void __launch_bounds__(kThreads) penalise_rows(Penalties p) {
  wait_for_predecessor();
  release_successor();
  const int r = blockIdx.x;
  if (p.repetition[r] == 1.0f && p.frequency[r] == 0.0f && p.presence[r] == 0.0f) return;
  const int length = p.lengths[r];
  const int full = p.ranges[r] < 0 ? length : min(p.ranges[r], length);
  const int fading = min(p.decays[r], length - full);
  const int count = full + fading;
  const int start = p.starts[r] - (length - count);
  const int32_t* pages = p.block_table + r * p.block_table_stride;
  const auto id_of = [&](int i) {
    const int at = length - count + i;
    return p.text[int64_t{pages[at / p.page_size]} * p.page_size + at % p.page_size];
  };
  float* logits = p.logits + r * p.logits_stride;
  Seen* seen = reinterpret_cast<Seen*>(p.scratch) + int64_t{r} * p.width;
  const auto known = [&](int id) { return id >= 0 && id < p.width; };
  const auto steps_of = [&](int i) { return i < fading ? fading - 1 - i : 0; };
  const float step = fading > 0 ? 1.0f / p.decays[r] : 0.0f;

  for (int i = threadIdx.x; i < count; i += kThreads) {
    const int id = id_of(i);
    if (!known(id)) continue;
    Seen& token = seen[id];
    atomicMax(&token.latest, i + 1);
    if (i < start) continue;
    atomicAdd(&token.count, 1);
    if (steps_of(i) > 0) atomicAdd(&token.steps, steps_of(i));
  }
  __syncthreads();
  for (int i = threadIdx.x; i < count; i += kThreads) {
    const int id = id_of(i);
    if (!known(id) || __ldcg(&seen[id].latest) != i + 1) continue;
    Seen& token = seen[id];
    const float latest = 1.0f - steps_of(i) * step;
    const float all = __ldcg(&token.count) - __ldcg(&token.steps) * step;
    const float factor = 1.0f + (p.repetition[r] - 1.0f) * latest;
    const float old = logits[id];
    const float presence = i < start ? 0.0f : p.presence[r] * latest;
    logits[id] = (old > 0 ? old / factor : old * factor) - presence - p.frequency[r] * all;
    token = {};
  }
}

}  // namespace

void penalise(const Penalties& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  require(p.logits && p.text && p.block_table && p.lengths && p.repetition && p.ranges && p.decays && p.frequency &&
              p.presence && p.starts && p.scratch,
          kName, "null pointer");
  require(p.width > 0 && p.page_size > 0, kName, "width or page size out of range");
  launch(kName, penalise_rows, {dim3(p.rows), kThreads}, stream, p);
}

}  // namespace constrain::cuda
