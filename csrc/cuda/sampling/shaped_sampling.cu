#include <cfloat>
#include <cstdint>

#include "cuda/launch.cuh"
#include "cuda/reduce.cuh"
#include "cuda/sampling/philox.cuh"
#include "cuda/sampling/row_scan.cuh"
#include "cuda/sampling/sampling.cuh"
#include "cuda/sampling/selection.cuh"
#include "cuda/sampling/shaping.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "sample_shaped";
static_assert(kMostCandidates == kSampleThreads, "a thread has one candidate");

// The candidates of a row. Thread t has the t-th most likely of them.
struct Candidates {
  // These three lie over the bins of the selection, so that they can be filled while its lists are read.
  uint64_t keys[kMostCandidates];   // to be sorted by
  int32_t order[kMostCandidates];   // indices, sorted with the keys
  int32_t ids[kMostCandidates];     // ascending
  double scratch[kSampleWarps];     // of block sums
  double probs[kMostCandidates];    // in descending order at the start
  double by_id[kMostCandidates];    // probabilities in the order of `ids`
  int32_t ranked[kMostCandidates];  // ids in the order of `probs`
  uint8_t present[2 * kMostCandidates];
  int32_t index;
  double value;
};

union Shared {
  Selection selection;
  Candidates candidates;
};
static_assert(sizeof(Candidates::keys) + sizeof(Candidates::order) + sizeof(Candidates::ids) <= sizeof(Selection::bins),
              "candidates are collected into the bins");

// The smallest value of all threads.
__device__ int block_min(int value, int32_t& cell) {
  __syncthreads();  // an earlier result may still be read
  if (threadIdx.x == 0) cell = INT32_MAX;
  __syncthreads();
  if (value != INT32_MAX) atomicMin(&cell, value);
  __syncthreads();
  return cell;
}

// The value of the thread that has it, in all threads.
__device__ double broadcast(double value, bool is_source, double& cell) {
  __syncthreads();  // an earlier result may still be read
  if (is_source) cell = value;
  __syncthreads();
  return cell;
}

// Copies the tokens within the cut into `keys`, `order` and `ids`, in the order of their ids. Returns their number.
__device__ int collect(Selection& selection, Candidates& c, const Source& source, const Cut& cut) {
  const int lane = threadIdx.x % kWarp;
  uint64_t larger = 0, ties = 0;
  for_each(source, [&](float x, int) {
    if (x == -INFINITY) return;
    const uint32_t key = key_of(x);
    larger += key > cut.key;
    ties += key == cut.key;
  });
  larger = warp_sum(larger);
  ties = warp_sum(ties);
  uint64_t total = 0;
  const uint64_t ties_before =
      __shfl_sync(kAllLanes, block_exclusive_sum(lane == 0 ? ties : 0, selection.warps, total), 0);
  const uint64_t kept_ties = min(ties, cut.ties - min(cut.ties, ties_before));
  const uint64_t first =
      __shfl_sync(kAllLanes, block_exclusive_sum(lane == 0 ? larger + kept_ties : 0, selection.warps, total), 0);
  int count = static_cast<int>(first);
  uint64_t tie = 0;
  for_each(source, [&](float x, int i) {
    const uint32_t key = key_of(x);
    const bool is_tie = x > -INFINITY && key == cut.key;
    const unsigned tied = __ballot_sync(kAllLanes, is_tie), below = (1u << lane) - 1;
    const bool taken = x > -INFINITY && (key > cut.key || (is_tie && tie + __popc(tied & below) < kept_ties));
    const unsigned lanes = __ballot_sync(kAllLanes, taken);
    const int at = count + __popc(lanes & below);
    if (taken && at < kMostCandidates) {
      c.keys[at] = key;
      c.order[at] = at;
      c.ids[at] = source.id(i);
    }
    tie += __popc(tied);
    count += __popc(lanes);
  });
  __syncthreads();
  return static_cast<int>(min(total, static_cast<uint64_t>(kMostCandidates)));
}

// The result of `select`: `keys`, `order` and `ids` hold `listed` tokens in the order of their ids, of which the
// `found` most likely are the candidates.
struct Selected {
  int listed = 0, found = 0;
};

// Finds the candidates of a row, the `top_k` most likely tokens, for the team's first block. The other blocks may end.
__device__ Selected select(Shared& shared, const Sampling& p, int r, const Team& team, int top_k) {
  Selection& selection = shared.selection;
  Candidates& c = shared.candidates;
  const int t = threadIdx.x;
  const float own = find_top(selection, team, source_of(p, r, team));
  const float top = selection.top;
  if (top == -INFINITY || top_k == 1) {
    if (team.size > 1) team.synchronize();  // the others may still read what this block has seen
    const int best = selection.best;
    __syncthreads();
    if (top == -INFINITY) return {};
    if (t == 0) {
      c.keys[0] = key_of(top);
      c.order[0] = 0;
      c.ids[0] = best;
    }
    return {1, 1};
  }
  const Scale scale{top, 1.0f};
  const int last = top_k < p.width ? last_bin(selection, team, scale, own, top_k) : kBins - 1;
  const Gathered gathered = gather(selection, p, r, team, scale, last);
  if (team.rank > 0) return {};
  if (gathered.count >= 0 && gathered.count <= kMostCandidates) {
    if (t < gathered.count) {
      c.keys[t] = key_of(selection.values[t]);
      c.order[t] = t;
      c.ids[t] = selection.ids[t];
    }
    return {gathered.count, min(top_k, gathered.count)};
  }
  Cut cut;
  if (top_k < p.width) {
    cut = shortest_prefix<uint32_t>(
        selection, gathered.source, scale, [](float) { return 1u; },
        [&](uint64_t total) { return min(static_cast<uint64_t>(top_k), total); });
  }
  const int found = collect(selection, c, gathered.source, cut);
  return {found, found};
}

// The candidate of a thread, and the steps that leave candidates out; all threads must call them together.
struct Candidate {
  Candidates& c;
  double p;
  bool kept;

  // Leaves this candidate out where `keep` is false, and makes the probabilities of the others add up to 1.
  __device__ void keep_if(bool keep) {
    kept = kept && keep;
    const double total = block_sum(kept ? p : 0.0, c.scratch);
    p = kept ? p / total : 0.0;
  }

  __device__ int count() const { return __syncthreads_count(kept); }

  __device__ int first() const { return block_min(kept ? static_cast<int>(threadIdx.x) : INT32_MAX, c.index); }

  __device__ double inclusive_sum(double value, double& total) const {
    return block_inclusive_sum(value, c.scratch, total);
  }

  // Keeps the most likely candidate, and those whose probability reaches a threshold.
  __device__ void at_least(double threshold, int first) {
    keep_if(p >= threshold || static_cast<int>(threadIdx.x) == first);
  }

  __device__ double largest() const { return broadcast(p, threadIdx.x == 0, c.value); }

  __device__ void top_p(double threshold) {
    double total = 0;
    const double before = inclusive_sum(p, total) - p;
    keep_if(before < threshold);
  }

  __device__ void tail_free(double threshold) {
    const int t = threadIdx.x, size = count();
    if (size < 3) return;
    c.probs[t] = p;
    __syncthreads();
    const bool has_curvature = t + 2 < size;
    const double curvature =
        has_curvature ? fabs((c.probs[t + 2] - c.probs[t + 1]) - (c.probs[t + 1] - c.probs[t])) : 0.0;
    double total = 0;
    const double sum = inclusive_sum(curvature, total);
    if (total == 0) return;
    const int flat = __syncthreads_count(has_curvature && sum / total <= threshold);
    keep_if(t < 1 + flat);
  }

  __device__ void typical(double threshold, int size) {
    const int t = threadIdx.x;
    const double surprise = -log(fmax(p, DBL_MIN));
    const double entropy = block_sum(p * surprise, c.scratch);
    const double distance = fabs(surprise - entropy);
    c.probs[t] = p;
    c.keys[t] = kept ? ~static_cast<uint64_t>(__double_as_longlong(distance)) : 0;
    c.order[t] = t;
    sort_descending(c.keys, c.order, size);
    const double sorted = t < size ? c.probs[c.order[t]] : 0.0;
    double total = 0;
    const double before = inclusive_sum(sorted, total) - sorted;
    if (t < size) c.keys[c.order[t]] = before < threshold;
    __syncthreads();
    keep_if(t < size && c.keys[t] != 0);
  }

  __device__ void reheat(double temperature) {
    if (temperature < kGreedyTemperature) {
      keep_if(static_cast<int>(threadIdx.x) == first());
      return;
    }
    const int top = first();
    const double most = broadcast(p, static_cast<int>(threadIdx.x) == top, c.value);
    p = kept ? exp((log(p) - log(most)) / temperature) : 0.0;
    keep_if(true);
  }

  __device__ double entropy() const { return block_sum(p > 0 ? -p * log(p) : 0.0, c.scratch); }

  __device__ void exclude_top_choices(double probability, double threshold, bool is_protected) {
    const int t = threadIdx.x;
    const bool is_likely = kept && p >= threshold && !is_protected;
    const int last = -block_min(is_likely ? -t : INT32_MAX, c.index);
    const bool is_removed = is_likely && t < last;
    const double x = block_sum(is_removed ? p : 0.0, c.scratch);
    if (x >= 1) return;
    p = is_removed ? p * (1 - probability) : p * (1 + probability * x / (1 - x));
  }
};

// Writes the most likely candidates; `ranked` and `probs` have them in the order of `order`. Where there are fewer, the
// smallest other ids follow with probability 0.
__device__ void write_top(Candidate& mine, const Sampling& p, const Shaping& s, int r, int count, int id) {
  Candidates& c = mine.c;
  const int t = threadIdx.x;
  int64_t* ids = s.top_ids + int64_t{r} * s.top_columns;
  float* probs = s.top_probabilities + int64_t{r} * s.top_columns;
  if (t < s.top_columns && t < count) {
    ids[t] = c.ranked[c.order[t]];
    probs[t] = static_cast<float>(c.probs[c.order[t]]);
  }
  if (count >= s.top_columns) return;
  c.present[2 * t] = c.present[2 * t + 1] = 0;
  __syncthreads();
  if (mine.kept && id < 2 * kMostCandidates) c.present[id] = 1;
  __syncthreads();
  const bool absent[2] = {!c.present[2 * t] && 2 * t < p.width, !c.present[2 * t + 1] && 2 * t + 1 < p.width};
  double total = 0;
  const int after = count + static_cast<int>(mine.inclusive_sum(double(absent[0]) + double(absent[1]), total));
  const int columns[2] = {after - absent[0] - absent[1], after - absent[1]};
  for (int i = 0; i < 2; ++i) {
    if (!absent[i] || columns[i] >= s.top_columns) continue;
    ids[columns[i]] = 2 * t + i;
    probs[columns[i]] = 0;
  }
}

__global__ void __launch_bounds__(kSampleThreads) sample_shaped_rows(Sampling p, Shaping s) {
  __shared__ Shared shared;
  wait_for_predecessor();
  release_successor();
  const Team team{cluster_rank(), cluster_size()};
  const int r = blockIdx.x / team.size, t = threadIdx.x;
  if (!is_shaped(p, s, r)) return;
  const bool late = is_late(s, r);
  const float temperature = p.temperature[r];
  const bool greedy = temperature < kGreedyTemperature && !late;
  const int top_k = p.top_k[r] > 0 ? min(p.top_k[r], s.most_candidates) : s.most_candidates;
  const auto [listed, found] = select(shared, p, r, team, greedy ? 1 : top_k);
  if (team.rank > 0) return;
  Candidates& c = shared.candidates;
  int size = 1;
  while (size < listed) size *= 2;
  if (t >= listed) {
    c.keys[t] = 0;  // below that of every logit
    c.order[t] = t;
    c.ids[t] = INT32_MAX;
  }
  sort_descending(c.keys, c.order, size);

  // The softmax.
  const int place = c.order[t], id = c.ids[place];
  const double top = float_of(static_cast<uint32_t>(c.keys[0]));
  double score = t < found ? float_of(static_cast<uint32_t>(c.keys[t])) - top : 0.0;
  const double smoothing = setting(s.smoothing_factor, r, 0);
  if (smoothing > 0) score = -smoothing * score * score;
  const double weight = t < found ? exp(score / (late || greedy ? 1.0 : temperature)) : 0.0;
  Candidate mine{c, weight, t < found};
  c.ranked[t] = id;
  mine.keep_if(true);

  // Truncations.
  if (is_share(p.top_p[r])) mine.top_p(p.top_p[r]);
  if (const double top_a = setting(s.top_a, r, 0); top_a > 0) {
    const double most = mine.largest();
    mine.at_least(top_a * most * most, 0);
  }
  if (is_share(p.min_p[r])) mine.at_least(p.min_p[r] * mine.largest(), 0);
  if (const float tfs = setting(s.tfs, r, 0); is_share(tfs)) mine.tail_free(tfs);
  if (const float typical = setting(s.typical, r, 0); is_share(typical)) mine.typical(typical, size);
  if (const float mu = setting(s.mirostat_mu, r, INFINITY); mu < INFINITY)
    mine.at_least(exp2(-static_cast<double>(mu)), mine.first());

  // Temperature after the truncations.
  int count = mine.count();
  if (count > 1 && has_dynamic_temperature(s, r)) {
    const double low = setting(s.min_temp, r, 0), high = setting(s.max_temp, r, 0);
    const double share = fmax(mine.entropy() / log(static_cast<double>(count)), 0.0);
    const double scaled = pow(share, static_cast<double>(setting(s.temp_exponent, r, 1)));
    mine.reheat(low + (high - low) * fmin(scaled, static_cast<double>(FLT_MAX)));
  } else if (count > 1 && late && temperature != 1) {
    mine.reheat(temperature);
  }
  if (const double probability = setting(s.xtc_probability, r, 0); probability > 0) {
    const int32_t* bits = bits_of(s.protected_tokens, r);
    const bool is_protected = bits && mine.kept && (bits[id / 32] >> (id % 32) & 1);
    mine.exclude_top_choices(probability, setting(s.xtc_threshold, r, 0), is_protected);
  }

  // The descending order after XTC.
  count = mine.count();
  const double skew = setting(s.skew, r, 0);
  c.probs[t] = mine.p;
  if (t < listed) c.by_id[place] = mine.p;
  c.keys[t] = mine.kept ? static_cast<uint64_t>(__double_as_longlong(mine.p)) + 1 : 0;
  c.order[t] = t;
  if (skew != 0 || wants_top(s, r)) sort_descending(c.keys, c.order, size);
  __syncthreads();

  // The token: the first at which the distribution function exceeds the random number.
  const int candidate = skew != 0 ? c.order[t] : t;
  const double share = t >= listed ? 0.0 : skew != 0 ? c.probs[candidate] : c.by_id[t];
  double total = 0;
  const double sum = mine.inclusive_sum(share, total);
  double u = p.uniform ? p.uniform[r] : philox_uniform(p.seeds[r], p.positions[r]);
  if (skew != 0) u = pow(u, exp(-skew));
  int chosen = block_min(share > 0 && sum > u * total ? t : INT32_MAX, c.index);
  if (chosen == INT32_MAX) chosen = -block_min(share > 0 ? -t : INT32_MAX, c.index);  // u was rounded to 1
  if (t == chosen) {
    p.tokens[r] = skew != 0 ? c.ranked[candidate] : c.ids[t];
    p.probabilities[r] = static_cast<float>(share / total);
  }
  if (found == 0 && t == 0) {
    p.tokens[r] = -1;
    p.probabilities[r] = 0;
  }
  if (wants_top(s, r)) write_top(mine, p, s, r, count, id);
}

__global__ void philox_rows(const int64_t* seeds, const int32_t* positions, double* numbers, int rows) {
  wait_for_predecessor();
  release_successor();
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r < rows) numbers[r] = philox_uniform(seeds[r], positions[r]);
}

}  // namespace

void sample_shaped(const Sampling& p, const Shaping& s, cudaStream_t stream) {
  require(s.most_candidates > 0 && s.most_candidates <= kMostCandidates, kName, "most_candidates out of range");
  require(!s.top_counts || (s.top_ids && s.top_probabilities), kName, "null pointer");
  require(!s.top_counts || (s.top_columns <= kMostCandidates && s.top_columns <= p.width), kName,
          "too many top tokens");
  const bool several = p.rows > 1 || s.protected_tokens.chosen;
  require(!s.protected_tokens.data || !several || s.protected_tokens.stride >= (p.width + 31) / 32, kName,
          "rows overlap");
  launch_rows(kName, sample_shaped_rows, p.rows, stream, p, s);
}

void philox_uniform(const int64_t* seeds, const int32_t* positions, double* numbers, int rows, cudaStream_t stream) {
  if (rows <= 0) return;
  require(seeds && positions && numbers, "philox_uniform", "null pointer");
  constexpr int kThreads = 128;
  launch("philox_uniform", philox_rows, {dim3((rows + kThreads - 1) / kThreads), kThreads}, stream, seeds, positions,
         numbers, rows);
}

}  // namespace constrain::cuda
