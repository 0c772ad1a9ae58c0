#include "engine/json/object/key_language.h"

namespace constrain::json {

const std::optional<WordBounds>& KeyLanguage::bounds(uint64_t taken) {
  constexpr size_t kMaxStates = 1024;
  if (!bounds_) {
    bounds_ = word_bounds(*automaton_, taken, kMaxStates,
                          [](uint8_t byte) { return escaped_length({reinterpret_cast<const char*>(&byte), 1}); });
  }
  return *bounds_;
}

}  // namespace constrain::json
