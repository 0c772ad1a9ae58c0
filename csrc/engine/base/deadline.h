// Time limits for compiling and for masks.
#pragma once

#include <chrono>
#include <cstdint>

namespace constrain {

/// Limits the time of its thread's work while it lives; long loops call `check`. The clock starts at the first check
/// that reads it, so that short work costs nothing.
class Deadline {
 public:
  explicit Deadline(uint64_t seconds) : outer_(current_), seconds_(seconds) { current_ = this; }
  ~Deadline() { current_ = outer_; }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

  /// Throws ResourceLimit("max_seconds") once this thread's deadline has passed, if it has one. Cheap: reads the clock
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
