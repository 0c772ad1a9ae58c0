#include "engine/masks/compiled_grammar.h"

#include <utility>

namespace constrain {

CompiledGrammar::CompiledGrammar(Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary, const Limits& limits)
    : ParseTable(std::move(grammar),
                 {.longest = vocabulary->longest_token(), .reach = vocabulary->reach(), .quoted = vocabulary->quoted()},
                 limits),
      vocabulary_(std::move(vocabulary)),
      masks_(limits.mask_bytes),
      frame_tokens_(limits.mask_bytes) {}

size_t CompiledGrammar::bytes() const {
  const size_t bytes = ParseTable::bytes() + masks_.bytes() + frame_tokens_.bytes();
  const std::lock_guard lock(stage_mutex_);
  return stage_ ? bytes + stage_->bytes() : bytes;
}

}  // namespace constrain
