#include <cstdint>
#include <type_traits>

#include "cuda/launch.cuh"
#include "cuda/reduce.cuh"
#include "cuda/sampling.cuh"

namespace constrain::cuda {
namespace {

constexpr const char* kName = "draw";
constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarp;
constexpr int kBins = 2048;
constexpr int kUnroll = 8;    // loads of a thread that are on their way together
constexpr int kSegment = 96;  // tokens of each warp that a list has room for
constexpr float kBinsPerUnit = 64.0f;
constexpr float kGreedyTemperature = 0.01f;

// Unsigned integers in the order of the floats.
__device__ __forceinline__ uint32_t key_of(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float float_of(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// A prefix of the tokens in descending order: all with a larger key, and the first `ties` of the `tied` with this one.
struct Cut {
  uint32_t key = 0;
  uint64_t ties = ~uint64_t{0};
  uint64_t tied = ~uint64_t{0};

  __device__ bool shorter_than(const Cut& other) const {
    return key > other.key || (key == other.key && ties < other.ties);
  }
};

// Where the running sum of the bins reaches a target.
struct Found {
  int bin;
  uint64_t amount;  // in this bin
  uint64_t target;  // within this bin, from 1 to `amount`
};

struct Shared {
  uint64_t bins[kBins];
  uint64_t warps[kWarps];
  float values[kWarps][kSegment];
  int32_t ids[kWarps][kSegment];
  Found found;
  float top;
  int best;
};

// The tokens that a warp looks after: a range of the row, from a multiple of 32 on, or of a list of some of its tokens,
// in the order of their ids.
struct Source {
  const float* values;
  const int32_t* ids;   // null for the row itself
  const int32_t* bits;  // of the tokens of a row that are allowed; null for all
  int begin, end;

  __device__ int id(int i) const { return ids ? ids[i] : i; }

  // The bits of the kUnroll times 32 tokens from `start` on: a word in each of the first lanes.
  __device__ uint32_t words(int start) const {
    if (!bits) return ~0u;
    const int lane = threadIdx.x % kWarp;
    return lane < kUnroll && start + lane * kWarp < end ? bits[start / kWarp + lane] : 0;
  }
};

// Probabilities are kept as integers, 2**32 for the largest, so that sums are exact in any order, and a draw does not
// depend on how threads are scheduled.
struct Scale {
  float top;
  float inverse_temperature;

  __device__ uint64_t weight(float x) const {
    return __float2ull_rn(expf((x - top) * inverse_temperature) * 4294967296.0f);
  }
  // Which of the bins a logit falls into by its distance from the largest, so that tokens are spread over many.
  __device__ int bin(float x) const {
    return static_cast<int>(fminf((top - x) * kBinsPerUnit, static_cast<float>(kBins - 1)));
  }
};

// The logits of kUnroll times 32 tokens from `start` on, whose bits are `words`; what is not allowed is not read, and
// counts as minus infinity, like what is not finite.
__device__ __forceinline__ void load_chunk(const Source& source, int start, uint32_t words, float (&x)[kUnroll]) {
  const int lane = threadIdx.x % kWarp;
  bool taken[kUnroll];
#pragma unroll
  for (int j = 0; j < kUnroll; ++j) taken[j] = start + j * kWarp + lane < source.end;
  if (source.bits) {
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) taken[j] &= __shfl_sync(kAllLanes, words, j) >> lane & 1;
  }
#pragma unroll
  for (int j = 0; j < kUnroll; ++j) x[j] = taken[j] ? source.values[start + j * kWarp + lane] : -INFINITY;
#pragma unroll
  for (int j = 0; j < kUnroll; ++j) x[j] = isfinite(x[j]) ? x[j] : -INFINITY;
}

// Calls `use(logits, start)` for every kUnroll times 32 of the warp's tokens of which any is allowed, until it returns
// false.
template <typename Use>
__device__ __forceinline__ void for_each_chunk(const Source& source, const Use& use) {
  constexpr int kTokens = kUnroll * kWarp;
  uint32_t next = source.words(source.begin);
  for (int start = source.begin; start < source.end; start += kTokens) {
    // Asked for ahead, since the logits cannot be before it is known which.
    const uint32_t words = next;
    next = source.words(start + kTokens);
    if (!__any_sync(kAllLanes, words != 0)) continue;
    float x[kUnroll];
    load_chunk(source, start, words, x);
    if (!use(x, start)) return;
  }
}

// Calls `use(logit, i)` for the warp's tokens, with all lanes at a time, and minus infinity for what does not count.
template <typename Use>
__device__ __forceinline__ void for_each(const Source& source, const Use& use) {
  for_each_chunk(source, [&](const float (&x)[kUnroll], int start) {
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) use(x[j], start + j * kWarp + static_cast<int>(threadIdx.x) % kWarp);
    return true;
  });
}

__device__ __forceinline__ uint64_t warp_inclusive_sum(uint64_t value) {
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const uint64_t below = __shfl_up_sync(kAllLanes, value, offset);
    if (static_cast<int>(threadIdx.x) % kWarp >= offset) value += below;
  }
  return value;
}

__device__ uint64_t block_exclusive_sum(uint64_t value, uint64_t* scratch, uint64_t& total) {
  const int warp = threadIdx.x / kWarp;
  const uint64_t inclusive = warp_inclusive_sum(value);
  __syncthreads();
  if (threadIdx.x % kWarp == kWarp - 1) scratch[warp] = inclusive;
  __syncthreads();
  uint64_t before = 0;
  total = 0;
  for (int w = 0; w < kWarps; ++w) {
    before += w < warp ? scratch[w] : 0;
    total += scratch[w];
  }
  return before + inclusive - value;
}

// Finds where the sum of the bins, from the first on, reaches `target_of(sum of all)`, but 1 at least.
template <typename Amount, typename Target>
__device__ Found find_bin(Shared& shared, const Target& target_of) {
  const auto* bins = reinterpret_cast<const Amount*>(shared.bins);
  const int bin = 2 * threadIdx.x;
  const uint64_t first = bins[bin], second = bins[bin + 1];
  uint64_t total = 0;
  const uint64_t sum = block_exclusive_sum(first + second, shared.warps, total);
  const uint64_t target = min(max(target_of(total), uint64_t{1}), total);
  if (sum < target && sum + first >= target) shared.found = {bin, first, target - sum};
  if (sum + first < target && sum + first + second >= target) shared.found = {bin + 1, second, target - sum - first};
  __syncthreads();
  return shared.found;
}

// Fills the bins with the sums of `measure` over the tokens that `bin_of` puts there; below zero is nowhere.
template <typename Amount, typename BinOf, typename Measure>
__device__ void fill_bins(Shared& shared, const Source& source, const BinOf& bin_of, const Measure& measure) {
  using Word = std::conditional_t<sizeof(Amount) == 8, unsigned long long, unsigned>;
  auto* bins = reinterpret_cast<Word*>(shared.bins);
  __syncthreads();
  for (int i = threadIdx.x; i < kBins; i += kThreads) bins[i] = 0;
  __syncthreads();
  for_each(source, [&](float x, int) {
    const int bin = x == -INFINITY ? -1 : bin_of(x);
    const unsigned counted = __ballot_sync(kAllLanes, bin >= 0);
    if (!counted) return;
    const Amount amount = bin < 0 ? 0 : measure(x);
    // Where a whole warp has one bin, as with equal logits, it adds once.
    const int first = __shfl_sync(kAllLanes, bin, __ffs(counted) - 1);
    if (!__all_sync(kAllLanes, bin < 0 || bin == first)) {
      if (bin >= 0) atomicAdd(bins + bin, static_cast<Word>(amount));
      return;
    }
    const Amount sum = warp_sum(amount);
    if (threadIdx.x % kWarp == 0) atomicAdd(bins + first, static_cast<Word>(sum));
  });
  __syncthreads();
}

// Replaces a row by the list of its tokens in the bins up to `last`, if there is room for them.
__device__ void shorten(Shared& shared, Source& source, const Scale& scale, int last) {
  if (source.ids) return;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  int count = 0;
  for_each(source, [&](float x, int i) {
    const bool taken = x > -INFINITY && scale.bin(x) <= last;
    const unsigned lanes = __ballot_sync(kAllLanes, taken);
    const int at = count + __popc(lanes & ((1u << lane) - 1));
    if (taken && at < kSegment) {
      shared.values[warp][at] = x;
      shared.ids[warp][at] = i;
    }
    count += __popc(lanes);
  });
  if (__syncthreads_or(count > kSegment)) return;
  source = {shared.values[warp], shared.ids[warp], nullptr, 0, count};
}

// The shortest prefix whose measure reaches `target_of(total)`: found first among the bins of `scale`, and within one
// of them by the digits of the keys. May shorten the source to what is left.
template <typename Amount, typename Measure, typename Target>
__device__ Cut shortest_prefix(Shared& shared, Source& source, const Scale& scale, const Measure& measure,
                               const Target& target_of) {
  fill_bins<Amount>(shared, source, [&](float x) { return scale.bin(x); }, measure);
  Found found = find_bin<Amount>(shared, target_of);
  const int bin = found.bin;
  shorten(shared, source, scale, bin);

  uint32_t prefix = 0;
  constexpr int kShifts[3] = {21, 10, 0};
#pragma unroll
  for (int level = 0; level < 3; ++level) {
    const int shift = kShifts[level], above = level == 0 ? 32 : kShifts[level - 1];
    const uint32_t digits = (1u << (above - shift)) - 1;
    const auto digit_of = [&](float x) {
      const uint32_t key = key_of(x);
      if (scale.bin(x) != bin || (level > 0 && key >> above != prefix)) return -1;
      return static_cast<int>(digits - (key >> shift & digits));
    };
    fill_bins<Amount>(shared, source, digit_of, measure);
    found = find_bin<Amount>(shared, [&](uint64_t) { return found.target; });
    prefix = (level == 0 ? 0 : prefix << (above - shift)) | (digits - found.bin);
  }
  // All that are left have the same key, and so the same measure.
  const uint64_t each = measure(float_of(prefix));
  return {prefix, (found.target + each - 1) / each, found.amount / each};
}

__device__ uint64_t philox(uint64_t seed, uint64_t step) {
  uint32_t counter[4] = {static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32), 0, 0};
  uint32_t key[2] = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0], b = uint64_t{0xCD9E8D57u} * counter[2];
    const uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
                              static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
#pragma unroll
    for (int i = 0; i < 4; ++i) counter[i] = next[i];
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return uint64_t{counter[1]} << 32 | counter[0];
}

// Finds the largest logit, and the first token that has it; returns the largest of this thread.
__device__ float find_top(Shared& shared, const Source& source) {
  float top = -INFINITY;
  int best = INT32_MAX;
  const auto join = [&](float x, int i) {
    if (x > top || (x == top && i < best)) {
      top = x;
      best = i;
    }
  };
  const auto join_lanes = [&] {
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      join(__shfl_xor_sync(kAllLanes, top, offset), __shfl_xor_sync(kAllLanes, best, offset));
  };
  for_each(source, join);
  const float own = top;
  join_lanes();
  const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
  if (lane == 0) {
    shared.values[warp][0] = top;
    shared.ids[warp][0] = best;
  }
  __syncthreads();
  if (warp == 0) {
    top = shared.values[lane][0];
    best = shared.ids[lane][0];
    join_lanes();
    if (lane == 0) {
      shared.top = top;
      shared.best = best;
    }
  }
  __syncthreads();
  return own;
}

// Leaves out tokens that cannot be among the `count` most likely, if there is room for the others. `own` is the largest
// logit of this thread: what is below the `count`-th of all threads' cannot be among them.
__device__ void leave_out(Shared& shared, Source& source, const Scale& scale, float own, int count) {
  auto* bins = reinterpret_cast<unsigned*>(shared.bins);
  for (int i = threadIdx.x; i < kBins; i += kThreads) bins[i] = 0;
  __syncthreads();
  if (own > -INFINITY) atomicAdd(bins + scale.bin(own), 1u);
  __syncthreads();
  uint64_t threads = 0;
  const Found found = find_bin<uint32_t>(shared, [&](uint64_t total) {
    threads = total;
    return static_cast<uint64_t>(count);
  });
  shorten(shared, source, scale, threads < static_cast<uint64_t>(count) ? kBins - 1 : found.bin);
}

// Draws among the tokens within the cut, in the order of their ids.
__device__ void draw_within(Shared& shared, const Source& source, const Scale& scale, const Cut& cut, uint64_t random,
                            int64_t* token, float* probability) {
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

__global__ void __launch_bounds__(kThreads) draw_rows(Draw p) {
  __shared__ Shared shared;
  wait_for_predecessor();
  release_successor();
  const int r = blockIdx.x, warp = threadIdx.x / kWarp;
  const int range = (p.width + kThreads - 1) / kThreads * kWarp;
  const int64_t chosen = !p.allowed.data ? -1 : p.allowed.chosen ? p.allowed.chosen[r] : r;
  const int32_t* bits = chosen < 0 ? nullptr : p.allowed.data + chosen * p.allowed.stride;
  Source source{p.logits + r * p.stride, nullptr, bits, min(warp * range, p.width), min((warp + 1) * range, p.width)};
  const float own = find_top(shared, source);
  const float temperature = p.temperatures[r];
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
    if (top_k <= kThreads) leave_out(shared, source, scale, own, top_k);
    cut = shortest_prefix<uint32_t>(
        shared, source, scale, [](float) { return 1u; },
        [&](uint64_t total) { return min(static_cast<uint64_t>(top_k), total); });
  }
  const float top_p = p.top_p[r];
  if (top_p > 0 && top_p < 1) {
    // Sums go over all that are tied at the end of the top k, of which some have to go.
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
  draw_within(shared, source, scale, cut, philox(p.seeds[r], p.steps[r]), p.tokens + r, p.probabilities + r);
}

}  // namespace

void draw(const Draw& p, cudaStream_t stream) {
  if (p.rows <= 0) return;
  require(
      p.logits && p.temperatures && p.top_k && p.top_p && p.min_p && p.seeds && p.steps && p.tokens && p.probabilities,
      kName, "null pointer");
  require(p.width > 0 && p.width <= INT32_MAX - kThreads, kName, "width out of range");
  const bool several = p.rows > 1 || p.allowed.chosen;
  require(!p.allowed.data || !several || p.allowed.stride >= (p.width + 31) / 32, kName, "rows overlap");
  launch(kName, draw_rows, {dim3(p.rows), kThreads}, stream, p);
}

}  // namespace constrain::cuda
