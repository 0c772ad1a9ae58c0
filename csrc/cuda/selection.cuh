// Selection of a row's most likely tokens by one block, without sorting: shared by the kernels that sample.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/philox.cuh"
#include "cuda/reduce.cuh"
#include "cuda/sampling.cuh"

namespace constrain::cuda {

constexpr int kSampleThreads = 1024;  // threads of a block, which has one row
constexpr int kSampleWarps = kSampleThreads / kWarp;
constexpr int kBins = 2048;
constexpr int kUnroll = 8;    // loads that a thread has in flight together
constexpr int kSegment = 96;  // capacity of a warp's list of tokens
constexpr float kBinsPerUnit = 64.0f;
constexpr float kGreedyTemperature = 0.01f;

// Maps floats to unsigned integers of the same order.
__device__ __forceinline__ uint32_t key_of(float x) {
  const uint32_t bits = __float_as_uint(x);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

__device__ __forceinline__ float float_of(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
}

// A prefix of the tokens in descending order of their logits: those whose key is larger than `key`, and the first
// `ties`, in the order of their ids, of the `tied` tokens whose key is equal.
struct Cut {
  uint32_t key = 0;
  uint64_t ties = ~uint64_t{0};
  uint64_t tied = ~uint64_t{0};

  __device__ bool shorter_than(const Cut& other) const {
    return key > other.key || (key == other.key && ties < other.ties);
  }
};

// The bin in which the running sum reaches a target.
struct Found {
  int bin;
  uint64_t amount;  // sum of this bin
  uint64_t target;  // sum within this bin at which the target is reached, from 1 to `amount`
};

// Shared memory of a selection: histogram, scratch of block sums, and one list of tokens a warp.
struct Selection {
  uint64_t bins[kBins];
  uint64_t warps[kSampleWarps];
  float values[kSampleWarps][kSegment];
  int32_t ids[kSampleWarps][kSegment];
  Found found;
  float top;
  int best;
};

// The tokens that a warp works on, in the order of their ids: a range of the row that begins at a multiple of 32, or
// the warp's list of those that may still be selected.
struct Source {
  const float* values;
  const int32_t* ids;   // ids of the list; null for the row itself
  const int32_t* bits;  // bitmask of the tokens of a row that are allowed; null for all
  int begin, end;

  __device__ int id(int i) const { return ids ? ids[i] : i; }

  // The bitmask of the kUnroll * 32 tokens from `start` on, a word in each of the first kUnroll lanes.
  __device__ uint32_t words(int start) const {
    if (!bits) return ~0u;
    const int lane = threadIdx.x % kWarp;
    return lane < kUnroll && start + lane * kWarp < end ? bits[start / kWarp + lane] : 0;
  }
};

// Probabilities are integers, scaled so that the largest is 2**32: their sums are exact in any order, and a sampled
// token does not depend on how threads are scheduled.
struct Scale {
  float top;
  float inverse_temperature;

  __device__ uint64_t weight(float x) const {
    return __float2ull_rn(expf((x - top) * inverse_temperature) * 4294967296.0f);
  }
  // Bin of a logit by its distance from the largest.
  __device__ int bin(float x) const {
    return static_cast<int>(fminf((top - x) * kBinsPerUnit, static_cast<float>(kBins - 1)));
  }
};

// Loads the logits of kUnroll * 32 tokens from `start` on, whose bitmask is `words`. Logits of excluded tokens are not
// read; they count as minus infinity, as those do that are not finite.
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
  for (int j = 0; j < kUnroll; ++j) x[j] = isfinite(x[j]) ? x[j] + 0.0f : -INFINITY;  // -0 becomes 0
}

// Calls `use(logits, start)` for each chunk of kUnroll * 32 tokens of the warp, until it returns false. Chunks without
// an allowed token are skipped.
template <typename Use>
__device__ __forceinline__ void for_each_chunk(const Source& source, const Use& use) {
  constexpr int kTokens = kUnroll * kWarp;
  uint32_t next = source.words(source.begin);
  for (int start = source.begin; start < source.end; start += kTokens) {
    // The bitmask is loaded one chunk ahead: which logits to load depends on it.
    const uint32_t words = next;
    next = source.words(start + kTokens);
    if (!__any_sync(kAllLanes, words != 0)) continue;
    float x[kUnroll];
    load_chunk(source, start, words, x);
    if (!use(x, start)) return;
  }
}

// Calls `use(logit, i)` for the warp's tokens, 32 at a time with all lanes active; the logit is minus infinity for
// tokens that do not count.
template <typename Use>
__device__ __forceinline__ void for_each(const Source& source, const Use& use) {
  for_each_chunk(source, [&](const float (&x)[kUnroll], int start) {
#pragma unroll
    for (int j = 0; j < kUnroll; ++j) use(x[j], start + j * kWarp + static_cast<int>(threadIdx.x) % kWarp);
    return true;
  });
}

template <typename Value>
__device__ __forceinline__ Value warp_inclusive_sum(Value value) {
#pragma unroll
  for (int offset = 1; offset < kWarp; offset *= 2) {
    const Value below = __shfl_up_sync(kAllLanes, value, offset);
    if (static_cast<int>(threadIdx.x) % kWarp >= offset) value += below;
  }
  return value;
}

// The sum of the values of this thread and all before it; `total` is that of the last. `scratch` holds a value a warp.
template <typename Value>
__device__ __forceinline__ Value block_inclusive_sum(Value value, Value* scratch, Value& total) {
  const int warp = threadIdx.x / kWarp;
  const Value inclusive = warp_inclusive_sum(value);
  __syncthreads();  // an earlier sum may still be read
  if (threadIdx.x % kWarp == kWarp - 1) scratch[warp] = inclusive;
  __syncthreads();
  Value before = 0;
  total = 0;
  for (int w = 0; w < kSampleWarps; ++w) {
    before += w < warp ? scratch[w] : Value{0};
    total += scratch[w];
  }
  return before + inclusive;
}

__device__ __forceinline__ uint64_t block_exclusive_sum(uint64_t value, uint64_t* scratch, uint64_t& total) {
  return block_inclusive_sum(value, scratch, total) - value;
}

// Finds the bin in which the running sum reaches `target_of(total)`, or 1 if that is less.
template <typename Amount, typename Target>
__device__ Found find_bin(Selection& shared, const Target& target_of) {
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

// Fills the bins with the sums of `measure` over their tokens. Tokens of which `bin_of` is negative are in none.
template <typename Amount, typename BinOf, typename Measure>
__device__ void fill_bins(Selection& shared, const Source& source, const BinOf& bin_of, const Measure& measure) {
  using Word = std::conditional_t<sizeof(Amount) == 8, unsigned long long, unsigned>;
  auto* bins = reinterpret_cast<Word*>(shared.bins);
  __syncthreads();
  for (int i = threadIdx.x; i < kBins; i += kSampleThreads) bins[i] = 0;
  __syncthreads();
  for_each(source, [&](float x, int) {
    const int bin = x == -INFINITY ? -1 : bin_of(x);
    const unsigned counted = __ballot_sync(kAllLanes, bin >= 0);
    if (!counted) return;
    const Amount amount = bin < 0 ? 0 : measure(x);
    // One atomic addition where a whole warp has the same bin, as it has with equal logits.
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

// Replaces the row by lists of its tokens in the bins up to `last`, if no warp has more than its list can hold.
__device__ inline void shorten(Selection& shared, Source& source, const Scale& scale, int last) {
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

// Finds the shortest prefix whose measure reaches `target_of(total)`: the bin of its last token first, and within that
// bin, by a radix search over the keys, the key of that token. May replace the source by lists.
template <typename Amount, typename Measure, typename Target>
__device__ Cut shortest_prefix(Selection& shared, Source& source, const Scale& scale, const Measure& measure,
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
  // The tokens that remain have the same key, and so the same measure.
  const uint64_t each = measure(float_of(prefix));
  return {prefix, (found.target + each - 1) / each, found.amount / each};
}

// Finds the largest logit and the first token that has it; returns the largest logit of this thread.
__device__ inline float find_top(Selection& shared, const Source& source) {
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

// Drops tokens that cannot be among the `count` most likely, if the lists can hold the others. `own` is the largest
// logit of this thread: tokens below the `count`-th largest of these are not among them.
__device__ inline void leave_out(Selection& shared, Source& source, const Scale& scale, float own, int count) {
  auto* bins = reinterpret_cast<unsigned*>(shared.bins);
  for (int i = threadIdx.x; i < kBins; i += kSampleThreads) bins[i] = 0;
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

// The random number of a row, as 64 bits after the binary point.
__device__ __forceinline__ uint64_t random_bits(const Sampling& p, int r) {
  return p.uniform ? __double2ull_rz(p.uniform[r] * 0x1p64) : philox(p.seeds[r], p.positions[r]);
}

// This warp's part of row `r`.
__device__ __forceinline__ Source source_of(const Sampling& p, int r) {
  const int warp = threadIdx.x / kWarp, range = (p.width + kSampleThreads - 1) / kSampleThreads * kWarp;
  const int32_t* bits = bits_of(p.allowed, r);
  return {p.logits + r * p.stride, nullptr, bits, min(warp * range, p.width), min((warp + 1) * range, p.width)};
}

}  // namespace constrain::cuda
