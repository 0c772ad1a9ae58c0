#include "engine/deadline.h"

#include "engine/errors.h"

namespace constrain {

namespace {

constexpr uint32_t kCallsPerLook = 64;

}  // namespace

thread_local Deadline* Deadline::current_ = nullptr;

Deadline::Deadline(uint64_t seconds)
    : outer_(current_), seconds_(seconds), end_(std::chrono::steady_clock::now() + std::chrono::seconds(seconds)) {
  current_ = this;
}

Deadline::~Deadline() { current_ = outer_; }

void Deadline::check() {
  Deadline* const deadline = current_;
  if (!deadline || ++deadline->calls_ % kCallsPerLook != 0 || std::chrono::steady_clock::now() < deadline->end_) return;
  throw ResourceLimit("max_seconds", deadline->seconds_, "by the time that compiling takes");
}

}  // namespace constrain
