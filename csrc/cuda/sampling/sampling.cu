#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/sampling/row_scan.cuh"
#include "cuda/sampling/sampling.cuh"
#include "cuda/sampling/selection.cuh"
#include "cuda/sampling/shaping.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "sample";

// Samples from the tokens within the cut: inverts their distribution function in the order of their ids.
__device__ void sample_within(Selection& shared, const Team& team, const Source& source, const Scale& scale,
                              const Cut& cut, uint64_t random, int64_t* token, float* probability) {
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
      __shfl_sync(kAllLanes, team_exclusive_sum(shared, team, lane == 0 ? ties : 0, 0, total), 0);
  const uint64_t kept_ties = min(ties, cut.ties - min(cut.ties, ties_before));
  weight = warp_sum(weight) + (kept_ties > 0 ? kept_ties * scale.weight(float_of(cut.key)) : 0);
  uint64_t sum = __shfl_sync(kAllLanes, team_exclusive_sum(shared, team, lane == 0 ? weight : 0, 1, total), 0);
  if (team.size > 1) team.synchronize();  // the others may still read this block's sums
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

// The truncations of a row, which are off where they keep all tokens.
struct Truncation {
  int top_k;           // 0: off
  float top_p;         // 0: off
  uint64_t top_p_sum;  // of the weights to reach, where `top_k` is off
  uint32_t min_key;    // 0: off

  __device__ uint64_t share_of(uint64_t total) const {
    return max(static_cast<uint64_t>(ceil(static_cast<double>(top_p) * total)), uint64_t{1});
  }
};

// The shortest prefix that the truncations leave.
__device__ Cut truncate(Selection& shared, const Source& source, const Scale& scale, const Truncation& t) {
  Cut cut;
  if (t.top_k > 0) {
    cut = shortest_prefix<uint32_t>(
        shared, source, scale, [](float) { return 1u; },
        [&](uint64_t total) { return min(static_cast<uint64_t>(t.top_k), total); });
  }
  if (t.top_p > 0) {
    // Sums include all tokens tied at the end of the top k, but some of those are not within the cut.
    const uint64_t left_out = cut.key > 0 ? (cut.tied - cut.ties) * scale.weight(float_of(cut.key)) : 0;
    const Cut by_sum = shortest_prefix<uint64_t>(
        shared, source, scale, [&](float x) { return key_of(x) >= cut.key ? scale.weight(x) : 0; },
        [&](uint64_t total) { return t.top_k > 0 ? t.share_of(total - left_out) : t.top_p_sum; });
    if (by_sum.shorter_than(cut)) cut = by_sum;
  }
  const Cut by_ratio{t.min_key};
  return t.min_key > 0 && by_ratio.shorter_than(cut) ? by_ratio : cut;
}

// Samples from a list of at most one token a thread. Sorting it takes less time than finding the cut.
__device__ void sample_list(Selection& shared, int count, const Scale& scale, const Truncation& truncation,
                            uint64_t random, int64_t* token, float* probability) {
  const int t = threadIdx.x;
  SortedKeys& sorted = shared.sorted;
  int size = 1;
  while (size < count) size *= 2;
  sorted.keys[t] = t < count ? key_of(shared.values[t]) : 0;
  sorted.order[t] = t;
  sort_descending(sorted.keys, sorted.order, size);

  // Thread t has the t-th most likely token.
  const auto key = static_cast<uint32_t>(sorted.keys[t]);
  bool kept = t < (truncation.top_k > 0 ? min(truncation.top_k, count) : count) && key >= truncation.min_key;
  const bool among_top_k = t < count && (truncation.top_k == 0 || t < truncation.top_k);
  const uint64_t weight = among_top_k ? scale.weight(float_of(key)) : 0;
  uint64_t total = 0;
  uint64_t sum = block_inclusive_sum(weight, shared.warps, total);
  if (truncation.top_p > 0)
    kept = kept && sum - weight < (truncation.top_k > 0 ? truncation.share_of(total) : truncation.top_p_sum);
  shared.weights[sorted.order[t]] = kept ? weight : 0;
  __syncthreads();

  // It has the t-th token in the order of ids.
  const uint64_t own = shared.weights[t];
  sum = block_inclusive_sum(own, shared.warps, total);
  const uint64_t target = __umul64hi(total, random);
  if (target >= sum || target < sum - own) return;
  *token = shared.ids[t];
  *probability = static_cast<float>(static_cast<double>(own) / static_cast<double>(total));
}

__global__ void __launch_bounds__(kSampleThreads) sample_rows(Sampling p, Shaping s) {
  __shared__ Selection shared;
  wait_for_predecessor();
  release_successor();
  const Team team{cluster_rank(), cluster_size()};
  const int r = blockIdx.x / team.size;
  if (is_shaped(p, s, r)) return;
  const Source source = source_of(p, r, team);
  const float own = find_top(shared, team, source);
  const float temperature = p.temperature[r], top_p = p.top_p[r], min_p = p.min_p[r];
  const int top_k = p.top_k[r];
  if (shared.top == -INFINITY || temperature < kGreedyTemperature || top_k == 1) {
    if (team.rank == 0 && threadIdx.x == 0) {
      p.tokens[r] = shared.top == -INFINITY ? -1 : shared.best;
      p.probabilities[r] = shared.top == -INFINITY ? 0.0f : 1.0f;
    }
    if (team.size > 1) team.synchronize();  // the others may still read what this block has seen
    return;
  }

  const Scale scale{shared.top, 1.0f / temperature};
  Truncation truncation{};
  if (top_k > 0 && top_k < p.width) truncation.top_k = top_k;
  if (is_share(top_p)) truncation.top_p = top_p;
  if (is_share(min_p)) truncation.min_key = key_of(scale.top + temperature * logf(min_p));
  const uint64_t random = random_bits(p, r);
  if (truncation.top_k == 0 && truncation.top_p == 0) {
    sample_within(shared, team, source, scale, Cut{truncation.min_key}, random, p.tokens + r, p.probabilities + r);
    return;
  }

  int last = 0;
  if (truncation.top_k > 0) {
    last = last_bin(shared, team, scale, own, top_k);
  } else {
    fill_bins<uint64_t>(
        shared, team, source, [&](float x) { return scale.bin(x); }, [&](float x) { return scale.weight(x); });
    const auto share_of = [&](uint64_t total) { return truncation.top_p_sum = truncation.share_of(total); };
    last = find_bin<uint64_t>(shared, team, share_of).bin;
  }
  const Gathered gathered = gather(shared, p, r, team, scale, last);
  if (team.rank > 0) return;
  if (gathered.count >= 0 && gathered.count <= kSampleThreads) {
    sample_list(shared, gathered.count, scale, truncation, random, p.tokens + r, p.probabilities + r);
    return;
  }
  const Cut cut = truncate(shared, gathered.source, scale, truncation);
  sample_within(shared, Team{}, gathered.source, scale, cut, random, p.tokens + r, p.probabilities + r);
}

}  // namespace

void sample(const Sampling& p, const Shaping* shaping, cudaStream_t stream) {
  if (p.rows <= 0) return;
  require(p.logits && p.temperature && p.top_k && p.top_p && p.min_p && p.tokens && p.probabilities, kName,
          "null pointer");
  require(p.uniform || (p.seeds && p.positions), kName, "neither seeds and positions nor uniform numbers");
  require(p.width > 0 && p.width <= INT32_MAX - kSampleThreads * kMostClusterBlocks, kName, "width out of range");
  const bool several = p.rows > 1 || p.allowed.chosen;
  require(!p.allowed.data || !several || p.allowed.stride >= (p.width + 31) / 32, kName, "rows overlap");
  launch_rows(kName, sample_rows, p.rows, stream, p, shaping ? *shaping : Shaping{});
  if (shaping) sample_shaped(p, *shaping, stream);
}

}  // namespace constrain::cuda
