// Forced text: the continuation of a text that leaves no choice.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/masks/compiled_grammar.h"

namespace constrain {

/// Computes the forced bytes after a text, and the tokens that every tokenization of a longer text starts with.
///
/// A token may reach over the end of the forced bytes, if the grammar allows the rest of it. Whatever follows, the
/// tokenizer makes its first cut of that kind at the start of such a token, or at the end of the forced bytes. So the
/// common prefix of the tokenizations up to all these places is certain. Where the bytes end within a character, the
/// text ends before it.
class ForcedText {
 public:
  /// `store` and `registers` intern, and outlive this.
  ForcedText(const CompiledGrammar& grammar, ConfigurationStore& store, Registers& registers,
             const Configuration& from);

  /// Special tokens are contained in their encoding: see special_token.h.
  const std::string& bytes() const { return bytes_; }

  /// Tokenizes the forced bytes. `before` holds the last tokens of the text, starting with a whole character. Empty if
  /// the tokenizer would not have chosen these.
  std::vector<TokenId> tokens(std::vector<TokenId> before);

  /// True if the text must end after the bytes.
  bool ends() const { return ends_; }

 private:
  const Configuration* only_way_on(const Configuration& at, uint8_t& byte);
  bool within_character(const Configuration& at);
  std::vector<TokenId> last_tokens(const std::vector<TokenId>& before, size_t begin);
  bool may_be_cut(size_t offset);
  bool some_token_below(uint32_t node);
  std::optional<std::vector<TokenId>> encode(const std::vector<TokenId>& before, size_t begin, size_t end) const;

  const CompiledGrammar& grammar_;
  Stepper stepper_;
  std::string bytes_;
  size_t whole_ = 0;          // length of the bytes up to the last whole character: no tokenizer takes a part of one
  const Configuration* end_;  // configuration after them
  bool ends_ = false;
};

}  // namespace constrain
