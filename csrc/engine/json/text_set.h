// Texts and sets of texts as register values: immutable, and sharing what they have in common.
#pragma once

#include <string_view>
#include <vector>

#include "engine/grammar/registers.h"

namespace constrain::json {

/// A text, as a handle.
Reg make_text(std::string_view text, Registers& registers);
std::string_view text_of(Reg text);

/// A set of texts: a binary trie over their hashes, so that equal sets are the same register. 0 is the empty one.
class TextSet {
 public:
  explicit TextSet(Reg root = 0) : root_(root) {}

  Reg root() const { return root_; }
  bool contains(std::string_view text) const;

  /// The set with one more text.
  TextSet with(std::string_view text, Registers& registers) const;

  /// All texts, as handles, in an order of their own.
  std::vector<Reg> texts() const;

 private:
  Reg root_;
};

}  // namespace constrain::json
