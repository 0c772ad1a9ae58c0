#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/sampling.cuh"
#include "cuda/selection.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "sample";

// Samples from the tokens within the cut: inverts their distribution function in the order of their ids.
__device__ void sample_within(Selection& shared, const Source& source, const Scale& scale, const Cut& cut,
                              uint64_t random, int64_t* token, float* probability) {
  const int lane = threadIdx.x % kWarp;
  uint64_t weight = 0, ties = 0;
  for_each(source, [&](float x, int) {
    const uint32_t key = key_of(x);
    if (x == -INFINITY || key < cut.key) return;
    if (key == cut.key)
      ++ties;
    else
      weight += scale.weight(x);
  });
  ties = warp_sum(ties);
  uint64_t total = 0;
  const uint64_t ties_before =
      __shfl_sync(kAllLanes, block_exclusive_sum(lane == 0 ? ties : 0, shared.warps, total), 0);
  const uint64_t kept_ties = min(ties, cut.ties - min(cut.ties, ties_before));
  weight = warp_sum(weight) + (kept_ties > 0 ? kept_ties * scale.weight(float_of(cut.key)) : 0);
  uint64_t sum = __shfl_sync(kAllLanes, block_exclusive_sum(lane == 0 ? weight : 0, shared.warps, total), 0);
  const uint64_t target = __umul64hi(total, random);
  if (target < sum || target >= sum + weight) return;

  uint64_t tie = 0;
  for_each_chunk(source, [&](const float (&x)[kUnroll], int start) {
    uint64_t own[kUnroll], lane_sum = 0;
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const bool tied = x[j] > -INFINITY && key_of(x[j]) == cut.key;
      const unsigned tied_lanes = __ballot_sync(kAllLanes, tied);
      const uint64_t rank = tie + __popc(tied_lanes & ((1u << lane) - 1));
      const bool kept = x[j] > -INFINITY && (key_of(x[j]) > cut.key || (tied && rank < kept_ties));
      own[j] = kept ? scale.weight(x[j]) : 0;
      lane_sum += own[j];
      tie += __popc(tied_lanes);
    }
    const uint64_t chunk = warp_sum(lane_sum);
    if (target >= sum + chunk) {
      sum += chunk;
      return true;
    }
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) {
      const uint64_t inclusive = sum + warp_inclusive_sum(own[j]);
      if (target < inclusive && target >= inclusive - own[j]) {
        *token = source.id(start + j * kWarp + lane);
        *probability = static_cast<float>(static_cast<double>(own[j]) / static_cast<double>(total));
      }
      sum = __shfl_sync(kAllLanes, inclusive, kWarp - 1);
    }
    return false;
  });
}

__global__ void __launch_bounds__(kSampleThreads) sample_rows(Sampling p) {
  __shared__ Selection shared;
  wait_for_predecessor();
  release_successor();
  const int r = blockIdx.x;
  Source source = source_of(p, r);
  const float own = find_top(shared, source);
  const float temperature = p.temperature[r];
  const int top_k = p.top_k[r];
  if (shared.top == -INFINITY || temperature < kGreedyTemperature || top_k == 1) {
    if (threadIdx.x == 0) {
      p.tokens[r] = shared.top == -INFINITY ? -1 : shared.best;
      p.probabilities[r] = shared.top == -INFINITY ? 0.0f : 1.0f;
    }
    return;
  }

  const Scale scale{shared.top, 1.0f / temperature};
  Cut cut;
  if (top_k > 0 && top_k < p.width) {
    if (top_k <= kSampleThreads) leave_out(shared, source, scale, own, top_k);
    cut = shortest_prefix<uint32_t>(
        shared, source, scale, [](float) { return 1u; },
        [&](uint64_t total) { return min(static_cast<uint64_t>(top_k), total); });
  }
  const float top_p = p.top_p[r];
  if (top_p > 0 && top_p < 1) {
    // Sums include all tokens tied at the end of the top k, but some of those are not within the cut.
    const uint64_t left_out = cut.key > 0 ? (cut.tied - cut.ties) * scale.weight(float_of(cut.key)) : 0;
    const Cut by_sum = shortest_prefix<uint64_t>(
        shared, source, scale, [&](float x) { return key_of(x) >= cut.key ? scale.weight(x) : 0; },
        [&](uint64_t total) { return static_cast<uint64_t>(ceil(static_cast<double>(top_p) * (total - left_out))); });
    if (by_sum.shorter_than(cut)) cut = by_sum;
  }
  const float min_p = p.min_p[r];
  if (min_p > 0 && min_p < 1) {
    const Cut by_ratio{key_of(scale.top + temperature * logf(min_p))};
    if (by_ratio.shorter_than(cut)) cut = by_ratio;
  }
  sample_within(shared, source, scale, cut, random_bits(p, r), p.tokens + r, p.probabilities + r);
}

}  // namespace

void check_sampling(const Sampling& p, const char* name) {
  require(p.logits && p.temperature && p.top_k && p.top_p && p.min_p && p.tokens && p.probabilities, name,
          "null pointer");
  require(p.uniform || (p.seeds && p.positions), name, "neither seeds and positions nor uniform numbers");
  require(p.width > 0 && p.width <= INT32_MAX - kSampleThreads, name, "width out of range");
  const bool several = p.rows > 1 || p.allowed.chosen;
  require(!p.allowed.data || !several || p.allowed.stride >= (p.width + 31) / 32, name, "rows overlap");
}

void sample(const Sampling& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  check_sampling(p, kName);
  launch(kName, sample_rows, {dim3(p.rows), kSampleThreads}, stream, p);
}

}  // namespace constrain::cuda
