#include "engine/base/deadline.h"

#include "engine/base/errors.h"

namespace constrain {

thread_local Deadline* Deadline::current_ = nullptr;

void Deadline::look() {
  const auto now = std::chrono::steady_clock::now();
  if (calls_ == kCallsPerLook) end_ = now + std::chrono::seconds(seconds_);
  if (now >= end_) throw ResourceLimit("max_seconds", seconds_, "by the time that it takes");
}

}  // namespace constrain
