// Sampling of tokens from logits.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "cuda/bitmask.cuh"

namespace constrain::cuda {

// `logits` is (rows, width) float32, the last dimension contiguous, `stride` in elements. For each row: the logits are
// divided by `temperature` (below 0.01: the most likely token is taken); the `top_k` most likely tokens are kept (0:
// all), then the fewest of them that reach the probability `top_p` (0, or 1 and above: all), then those with at least
// `min_p` times the largest probability (0, or 1 and above: all). Tokens of equal logits count in the order of their
// ids, and logits that are not finite as minus infinity.
//
// The token is the one in whose share of [0, 1), in the order of ids, a random number falls: Philox of `seeds` and
// `positions`, or `uniform` where that is not null. `tokens` and `probabilities` get the token and its probability
// among those that were kept; -1 and 0 where no logit is finite. Only the logits of tokens that `allowed` allows are
// read.
struct Sampling {
  const float* logits;
  int64_t stride;
  const float* temperature;
  const int32_t* top_k;
  const float* top_p;
  const float* min_p;
  const int64_t* seeds;
  const int32_t* positions;
  const double* uniform;
  int64_t* tokens;
  float* probabilities;
  BitmaskView allowed;
  int rows;
  int width;
};

// Settings whose steps need the candidates of a row in descending order; null where they are off for all rows. See
// constrain/kernels/sampling_tensors.py for the meaning of each.
struct Shaping {
  const float* smoothing_factor;
  const float* top_a;
  const float* tfs;
  const float* typical;
  const float* skew;
  const float* min_temp;
  const float* max_temp;
  const float* temp_exponent;
  const float* xtc_probability;
  const float* xtc_threshold;
  const float* mirostat_mu;
  const int32_t* temperature_last;
  BitmaskView protected_tokens;  // XTC leaves those alone whose bit is set; a row without bits protects none
  int64_t* top_ids;              // (rows, top_columns): the most likely candidates of rows whose top_counts is positive
  float* top_probabilities;
  const int32_t* top_counts;
  int top_columns;
  int most_candidates;  // of a row, 1024 at most; also for rows whose top_k is 0 or more
};

constexpr int kMostCandidates = 1024;

// These throw std::invalid_argument where the arguments cannot be right, std::runtime_error where CUDA refuses the
// launch.

// Without `shaping`, or where all of its settings are off for a row, the row is sampled without sorting.
void sample(const Sampling& sampling, const Shaping* shaping, cudaStream_t stream);

// The other rows: called by `sample`.
void sample_shaped(const Sampling& sampling, const Shaping& shaping, cudaStream_t stream);

// numbers[r] = philox(seeds[r], positions[r]) / 2**64.
void philox_uniform(const int64_t* seeds, const int32_t* positions, double* numbers, int rows, cudaStream_t stream);

}  // namespace constrain::cuda
