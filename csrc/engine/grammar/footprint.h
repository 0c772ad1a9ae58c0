// Which frames a computation had to look at more closely than their outlines.
#pragma once

#include <cstdint>
#include <vector>

namespace constrain {

class Rule;

/// The frames that are there when a mask is begun. What rules ask of them is recorded, so that the mask can be kept for
/// all places where the answers are the same.
struct Footprint {
  struct Frame {
    const Rule* rule;
    uint32_t depth;          ///< frames below it
    bool consulted = false;  ///< MaskHints::outline does not tell all that was asked
  };
  std::vector<Frame> frames;
  uint64_t asked = 0;  ///< how often one of them was consulted

  void consult(const Rule* rule, uint32_t depth) {
    for (Frame& frame : frames) {
      if (frame.rule != rule || frame.depth != depth) continue;
      frame.consulted = true;
      ++asked;
    }
  }
};

}  // namespace constrain
