// Persistent sets of texts as register values.
#pragma once

#include <string_view>
#include <vector>

#include "engine/grammar/registers.h"

namespace constrain::json {

/// Stores a text, and returns its handle.
Reg make_text(std::string_view text, Registers& registers);
std::string_view text_of(Reg text);

/// A persistent set of texts: a binary trie over their hashes. Equal sets are the same register; 0 is the empty set.
class TextSet {
 public:
  explicit TextSet(Reg root = 0) : root_(root) {}

  Reg root() const { return root_; }
  bool contains(std::string_view text) const;

  /// Returns the set with one more text.
  TextSet with(std::string_view text, Registers& registers) const;

  /// Returns all texts as handles, in unspecified order.
  std::vector<Reg> texts() const;

 private:
  Reg root_;
};

}  // namespace constrain::json
