// Which settings of a row need its candidates in descending order.
#pragma once

#include <cmath>

#include "cuda/sampling/sampling.cuh"

namespace constrain::cuda {

__device__ __forceinline__ float setting(const float* values, int row, float off) { return values ? values[row] : off; }

__device__ __forceinline__ bool is_share(float x) { return x > 0 && x < 1; }

__device__ __forceinline__ bool is_late(const Shaping& s, int r) {
  return s.temperature_last && s.temperature_last[r] != 0;
}

__device__ __forceinline__ bool has_dynamic_temperature(const Shaping& s, int r) {
  return setting(s.max_temp, r, 0) > setting(s.min_temp, r, 0);
}

__device__ __forceinline__ bool wants_top(const Shaping& s, int r) { return s.top_counts && s.top_counts[r] > 0; }

__device__ __forceinline__ bool is_shaped(const Sampling& p, const Shaping& s, int r) {
  return wants_top(s, r) || setting(s.smoothing_factor, r, 0) > 0 || setting(s.top_a, r, 0) > 0 ||
         is_share(setting(s.tfs, r, 0)) || is_share(setting(s.typical, r, 0)) || setting(s.skew, r, 0) != 0 ||
         has_dynamic_temperature(s, r) || setting(s.xtc_probability, r, 0) > 0 ||
         setting(s.mirostat_mu, r, INFINITY) < INFINITY || (is_late(s, r) && p.temperature[r] != 1);
}

}  // namespace constrain::cuda
