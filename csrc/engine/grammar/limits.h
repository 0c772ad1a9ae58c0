// Bounds on the cost of untrusted grammars.
#pragma once

#include <cstdint>

namespace constrain {

/// Reaching a limit throws ResourceLimit with the name of the field.
struct Limits {
  uint64_t max_states = 500'000;      ///< states of all rules of a grammar
  uint64_t max_stack_depth = 10'000;  ///< nested frames
  uint64_t max_frames = 4'096;        ///< simultaneous parse threads
  uint64_t max_work = 4'000'000;      ///< frames made for one byte or one mask; four times as many within a budget
  uint64_t max_nesting = 512;         ///< depth of a schema
  uint64_t max_cells = 20'000;        ///< alternatives of a schema after normalisation
  uint64_t max_bytes = 16 << 20;      ///< size of a schema as text
  uint64_t max_seconds = 10;          ///< time for compiling, and for each mask and each token
  uint64_t max_memory = 512 << 20;    ///< bytes of the states of a grammar, without masks
  uint64_t mask_bytes = 32 << 20;     ///< capacity of a grammar's mask cache, in bytes
};

}  // namespace constrain
