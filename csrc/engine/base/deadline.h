// A bound on the time that compiling takes, or a mask.
#pragma once

#include <chrono>
#include <cstdint>

namespace constrain {

/// Bounds, while it lives, the time of what its thread does; loops that may take long call `check`. The time runs from
/// the first look at the clock, so that what is over by then costs nothing.
class Deadline {
 public:
  explicit Deadline(uint64_t seconds) : outer_(current_), seconds_(seconds) { current_ = this; }
  ~Deadline() { current_ = outer_; }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  /// Throws ResourceLimit("max_seconds") beyond the deadline of this thread, if it has one. Cheap: the clock is read
  /// once in many calls.
  static void check() {
    if (current_ && ++current_->calls_ % kCallsPerLook == 0) current_->look();
  }

 private:
  static constexpr uint32_t kCallsPerLook = 64;

  void look();

  static thread_local Deadline* current_;

  Deadline* outer_;
  uint64_t seconds_;
  std::chrono::steady_clock::time_point end_;
  uint32_t calls_ = 0;
};

}  // namespace constrain
