// Selection of a row's most likely tokens without sorting: shared by the kernels that sample.
#pragma once

#include <cstdint>
#include <type_traits>

#include "cuda/cluster.cuh"
#include "cuda/reduce.cuh"
#include "cuda/sampling/philox.cuh"
#include "cuda/sampling/row_scan.cuh"
#include "cuda/sampling/sampling.cuh"

namespace constrain::cuda {

constexpr int kBins = 2048;
constexpr int kSegment = 96;  // capacity of a warp's list of tokens
constexpr int kMostGathered = kSampleWarps * kSegment;
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

// Keys in descending order, and the index of each in the list of tokens.
struct SortedKeys {
  uint64_t keys[kSampleThreads];
  int32_t order[kSampleThreads];
};

// Shared memory of a selection.
struct Selection {
  union {
    uint64_t bins[kBins];  // histogram
    SortedKeys sorted;
  };
  uint64_t warps[kSampleWarps];  // scratch of block sums
  union {
    float values[kMostGathered];       // a list of tokens for each warp, then in the first block one of the whole row
    uint64_t weights[kSampleThreads];  // of the tokens of that list
  };
  int32_t ids[kMostGathered];  // ascending
  uint64_t sums[2];            // read by the other blocks of the team, as the next two
  float block_top;             // the largest logit of the block's part of the row, and its token
  int block_best;
  Found found;
  float top;  // of the row
  int best;
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

// The sum of the values of all threads of a team before this one. Successive calls take different cells.
__device__ __forceinline__ uint64_t team_exclusive_sum(Selection& shared, const Team& team, uint64_t value, int cell,
                                                       uint64_t& total) {
  uint64_t sum = block_exclusive_sum(value, shared.warps, total);
  if (team.size == 1) return sum;
  if (threadIdx.x == 0) shared.sums[cell] = total;
  team.synchronize();
  total = 0;
  for (int block = 0; block < team.size; ++block) {
    const uint64_t amount = *in_block(shared.sums + cell, block);
    total += amount;
    if (block < team.rank) sum += amount;
  }
  return sum;
}

// Finds the bin in which the running sum over the bins of all blocks reaches `target_of(total)`, or 1 if that is less.
template <typename Amount, typename Target>
__device__ Found find_bin(Selection& shared, const Team& team, const Target& target_of) {
  const int bin = 2 * threadIdx.x;
  const auto* own = reinterpret_cast<const Amount*>(shared.bins) + bin;
  uint64_t first = 0, second = 0, total = 0;
#pragma unroll
  for (int block = 0; block < kMostClusterBlocks; ++block) {
    if (block >= team.size) break;
    const auto* bins = in_block(own, block);
    first += bins[0];
    second += bins[1];
  }
  const uint64_t sum = block_exclusive_sum(first + second, shared.warps, total);
  const uint64_t target = min(max(target_of(total), uint64_t{1}), total);
  if (sum < target && sum + first >= target) shared.found = {bin, first, target - sum};
  if (sum + first < target && sum + first + second >= target) shared.found = {bin + 1, second, target - sum - first};
  __syncthreads();
  return shared.found;
}

template <typename Amount>
__device__ Amount* clear_bins(Selection& shared) {
  auto* bins = reinterpret_cast<Amount*>(shared.bins);
  __syncthreads();
  for (int i = threadIdx.x; i < kBins; i += kSampleThreads) bins[i] = 0;
  __syncthreads();
  return bins;
}

// Fills the bins with the sums of `measure` over their tokens. Tokens of which `bin_of` is negative are in none.
template <typename Amount, typename BinOf, typename Measure>
__device__ void fill_bins(Selection& shared, const Team& team, const Source& source, const BinOf& bin_of,
                          const Measure& measure) {
  using Word = std::conditional_t<sizeof(Amount) == 8, unsigned long long, unsigned>;
  Word* bins = clear_bins<Word>(shared);
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
  team.synchronize();
}

// Finds the shortest prefix whose measure reaches `target_of(total)`: the bin of its last token first, and within that
// bin, by a radix search over the keys, the key of that token. For one block.
template <typename Amount, typename Measure, typename Target>
__device__ Cut shortest_prefix(Selection& shared, const Source& source, const Scale& scale, const Measure& measure,
                               const Target& target_of) {
  fill_bins<Amount>(shared, Team{}, source, [&](float x) { return scale.bin(x); }, measure);
  Found found = find_bin<Amount>(shared, Team{}, target_of);
  const int bin = found.bin;

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
    fill_bins<Amount>(shared, Team{}, source, digit_of, measure);
    found = find_bin<Amount>(shared, Team{}, [&](uint64_t) { return found.target; });
    prefix = (level == 0 ? 0 : prefix << (above - shift)) | (digits - found.bin);
  }
  // The tokens that remain have the same key, and so the same measure.
  const uint64_t each = measure(float_of(prefix));
  return {prefix, (found.target + each - 1) / each, found.amount / each};
}

// Finds the row's largest logit and the first token that has it; returns the largest logit of this thread.
__device__ inline float find_top(Selection& shared, const Team& team, const Source& source) {
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
    shared.values[warp] = top;
    shared.ids[warp] = best;
  }
  __syncthreads();
  if (warp == 0) {
    top = shared.values[lane];
    best = shared.ids[lane];
    join_lanes();
    if (lane == 0) {
      shared.block_top = top;
      shared.block_best = best;
    }
  }
  team.synchronize();
  if (warp == 0) {
    if (lane < team.size) join(*in_block(&shared.block_top, lane), *in_block(&shared.block_best, lane));
    join_lanes();
    if (lane == 0) {
      shared.top = top;
      shared.best = best;
    }
  }
  __syncthreads();
  return own;
}

// Returns a bin that the `count` most likely tokens do not exceed: that of the `count`-th largest `own`, the largest
// logit of each thread.
__device__ inline int last_bin(Selection& shared, const Team& team, const Scale& scale, float own, int count) {
  auto* bins = clear_bins<unsigned>(shared);
  if (own > -INFINITY) atomicAdd(bins + scale.bin(own), 1u);
  team.synchronize();
  uint64_t threads = 0;
  const Found found = find_bin<uint32_t>(shared, team, [&](uint64_t total) {
    threads = total;
    return static_cast<uint64_t>(count);
  });
  return threads < static_cast<uint64_t>(count) ? kBins - 1 : found.bin;
}

// The tokens with which a team's first block continues: a list, or the whole row if they are too many for one.
struct Gathered {
  Source source;  // this warp's part
  int count;      // of the list; -1 for the row
};

// Gathers the tokens of row `r` in the bins up to `last` in the team's first block. The other blocks may end then.
__device__ inline Gathered gather(Selection& shared, const Sampling& p, int r, const Team& team, const Scale& scale,
                                  int last) {
  constexpr int kOfLane = kSegment / kWarp;
  const int lane = threadIdx.x % kWarp, segment = static_cast<int>(threadIdx.x) / kWarp * kSegment;
  int count = 0;
  for_each(source_of(p, r, team), [&](float x, int i) {
    const bool taken = x > -INFINITY && scale.bin(x) <= last;
    const unsigned lanes = __ballot_sync(kAllLanes, taken);
    const int at = count + __popc(lanes & ((1u << lane) - 1));
    if (taken && at < kSegment) {
      shared.values[segment + at] = x;
      shared.ids[segment + at] = i;
    }
    count += __popc(lanes);
  });
  __syncwarp();
  float x[kOfLane];
  int32_t ids[kOfLane];
#pragma unroll
  for (int j = 0; j < kOfLane; ++j) {
    x[j] = shared.values[segment + j * kWarp + lane];
    ids[j] = shared.ids[segment + j * kWarp + lane];
  }
  const int amount = count > kSegment ? kMostGathered + 1 : count;
  uint64_t total = 0;
  const uint64_t sum = team_exclusive_sum(shared, team, lane == 0 ? amount : 0, 0, total);
  const int before = static_cast<int>(__shfl_sync(kAllLanes, sum, 0));
  const bool fits = total <= kMostGathered;
  if (fits) {
#pragma unroll
    for (int j = 0; j < kOfLane; ++j) {
      if (j * kWarp + lane >= count) continue;
      const int place = before + j * kWarp + lane;
      *in_block(shared.values + place, 0) = x[j];
      *in_block(shared.ids + place, 0) = ids[j];
    }
  }
  team.synchronize();
  if (!fits) return {source_of(p, r, Team{}), -1};
  const int listed = static_cast<int>(total);
  return {part_of(Team{}, shared.values, shared.ids, nullptr, listed), listed};
}

// Sorts the first `size` keys, a power of two, in descending order, and the places with them; equal keys by place.
// Places must differ. A bitonic sort (Batcher 1968).
__device__ inline void sort_descending(uint64_t* keys, int32_t* order, int size) {
  const int i = threadIdx.x;
  for (int span = 2; span <= size; span *= 2) {
    for (int step = span / 2; step > 0; step /= 2) {
      __syncthreads();
      const int j = i ^ step;
      if (j <= i || i >= size) continue;
      const uint64_t a = keys[i], b = keys[j];
      const int32_t order_a = order[i], order_b = order[j];
      const bool is_sorted = a > b || (a == b && order_a < order_b);
      if (is_sorted == ((i & span) == 0)) continue;
      keys[i] = b;
      keys[j] = a;
      order[i] = order_b;
      order[j] = order_a;
    }
  }
  __syncthreads();
}

// The random number of a row, as 64 bits after the binary point.
__device__ __forceinline__ uint64_t random_bits(const Sampling& p, int r) {
  return p.uniform ? __double2ull_rz(p.uniform[r] * 0x1p64) : philox(p.seeds[r], p.positions[r]);
}

}  // namespace constrain::cuda
