// What comes next in a text where there is only one way to go on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/masks/compiled_grammar.h"

namespace constrain {

/// The bytes that must follow a text, and the tokens that a tokenizer begins them with whatever comes after them.
///
/// A token may reach over the end of the forced bytes. It can only do so where some token that begins in them goes on
/// in a way that the grammar allows, and whatever the tokenizer makes of the whole text, it cuts it before the first
/// such token, or at the end of the forced bytes. So what the tokenisations up to these places have in common is what
/// every text begins with.
class ForcedText {
 public:
  /// `store` and `registers` intern, and live as long.
  ForcedText(const CompiledGrammar& grammar, ConfigurationStore& store, Registers& registers,
             const Configuration& from);

  /// Special tokens among them stand in their spellings.
  const std::string& bytes() const { return bytes_; }

  /// The tokens, as the tokenizer of the vocabulary continues `before`: the last tokens of the text so far, which begin
  /// with a whole character. None where it would not have chosen these.
  std::vector<TokenId> tokens(std::vector<TokenId> before);

  /// The text must end after the bytes.
  bool ends() const { return ends_; }

 private:
  const Configuration* only_way_on(const Configuration& at, uint8_t& byte);
  const Configuration* advance(const Configuration& from, uint8_t byte);
  std::vector<TokenId> last_tokens(const std::vector<TokenId>& before, size_t begin);
  bool may_be_cut(size_t offset);
  bool some_token_below(uint32_t node);
  std::optional<std::vector<TokenId>> encode(const std::vector<TokenId>& before, size_t begin, size_t end) const;

  const CompiledGrammar& grammar_;
  ConfigurationStore& store_;
  Stepper stepper_;
  std::vector<Head> heads_;
  std::string bytes_;
  const Configuration* end_;  // what the bytes lead to
  bool ends_ = false;
};

}  // namespace constrain
