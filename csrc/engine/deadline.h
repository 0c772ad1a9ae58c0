// A bound on the time that compiling takes.
#pragma once

#include <chrono>
#include <cstdint>

namespace constrain {

/// Bounds, while it lives, the time of what its thread does; loops that may take long call `check`.
class Deadline {
 public:
  explicit Deadline(uint64_t seconds);
  ~Deadline();
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  /// Throws ResourceLimit("max_seconds") beyond the deadline of this thread, if it has one. Cheap: the clock is read
  /// once in many calls.
  static void check();

 private:
  static thread_local Deadline* current_;

  Deadline* outer_;
  uint64_t seconds_;
  std::chrono::steady_clock::time_point end_;
  uint32_t calls_ = 0;
};

}  // namespace constrain
