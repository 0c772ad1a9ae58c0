#include "engine/json/source_text.h"

#include <utility>

#include "engine/automata/lazy.h"
#include "engine/base/errors.h"

namespace constrain::json {

namespace {

class Strings final : public LazyAutomaton {
 public:
  explicit Strings(SourceTextPtr source) : source_(std::move(source)) {}

  constrain::State start() override { return SourceText::kRoot; }
  bool accepting(constrain::State state) override { return source_->is_whole(state); }

 private:
  void fill_row(constrain::State state, Transitions& row) override {
    source_->substrings().for_each_step(state, [&](uint8_t byte, SourceText::State target) {
      if (source_->step(state, byte) != SourceText::kNone) row.set(byte, target);
    });
  }

  SourceTextPtr source_;
};

/// Bytes that a content byte takes in a JSON string with minimal escapes.
uint32_t escaped_bytes(uint8_t byte) {
  switch (byte) {
    case '"':
    case '\\':
    case '\b':
    case '\f':
    case '\n':
    case '\r':
    case '\t':
      return 2;
    default:
      return byte < 0x20 ? 6 : 1;
  }
}

}  // namespace

SourceText::SourceText(std::string text) : text_(std::move(text)), substrings_(text_) {
  memory_.add(text_.size() * (1 + 3 * sizeof(uint32_t)));
  begun_.reserve(text_.size() + 1), escaped_.reserve(text_.size() + 1);
  uint32_t escaped = 0;
  for (size_t i = 0; i <= text_.size(); ++i) {
    begun_.push_back(static_cast<uint32_t>(starts_.size()));
    escaped_.push_back(escaped);
    if (starts_at(i)) starts_.push_back(static_cast<uint32_t>(i));
    if (i < text_.size()) escaped += escaped_bytes(static_cast<uint8_t>(text_[i]));
  }
}

void check_source_size(const std::string& text) {
  if (text.size() > SourceText::kMaxBytes) {
    throw ResourceLimit("source_bytes", SourceText::kMaxBytes, "by a text that strings are to be taken from");
  }
}

AutomatonPtr strings_of(SourceTextPtr source) { return std::make_shared<Strings>(std::move(source)); }

}  // namespace constrain::json
