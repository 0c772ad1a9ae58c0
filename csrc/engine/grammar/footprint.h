// Dependencies of a mask: frames that were inspected beyond their outlines.
#pragma once

#include <cstdint>
#include <vector>

namespace constrain {

class Rule;

/// The frames of a configuration whose mask is computed, with what their guards asked for. The mask is cached for all
/// configurations that agree on the answers.
struct Footprint {
  struct Frame {
    const Rule* rule;
    uint32_t depth;          ///< parent frames
    bool consulted = false;  ///< some guard needed more than MaskHints::outline
  };
  std::vector<Frame> frames;
  uint64_t asked = 0;  ///< number of calls of `consult` that matched a frame

  void consult(const Rule* rule, uint32_t depth) {
    for (Frame& frame : frames) {
      if (frame.rule != rule || frame.depth != depth) continue;
      frame.consulted = true;
      ++asked;
    }
  }
};

}  // namespace constrain
