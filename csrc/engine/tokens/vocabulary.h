// A tokenizer's vocabulary as byte strings, and the trie over them that masks are computed on.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/tokens/mask.h"
#include "engine/tokens/token_class.h"
#include "engine/tokens/trie.h"

namespace constrain {

/// The tokens of a model. Immutable; shared between grammars and threads.
class Vocabulary {
 public:
  /// Capacities of the caches, in bytes.
  static constexpr size_t kSharedResultBytes = size_t{128} << 20, kClassBytes = size_t{128} << 20;

  using SharedResults = LruCache<std::shared_ptr<const void>>;

  /// The tokens that a tokenizer cuts a text into that stands in the middle of another one.
  using Encode = std::function<std::vector<TokenId>(const std::string&)>;

  /// Tokens that are no text, and their names; they need not have different ones.
  using SpecialTokens = std::vector<std::pair<TokenId, std::string>>;

  /// `tokens[i]` holds the bytes of token i; empty for tokens without text (special ones and holes). `size` is the
  /// width of the model's output: ids beyond the list are padding, and tokens beyond it do not exist for the model.
  /// `special` names those of the tokens without text that grammars may ask for; ends of texts may be among them.
  /// Throws std::invalid_argument where an id is out of range or a token is longer than 65,535 bytes.
  Vocabulary(std::vector<std::string> tokens, std::vector<TokenId> eos, size_t size, bool first_space_optional,
             Encode encode = {}, SpecialTokens special = {});

  size_t size() const { return size_; }
  size_t mask_words() const { return (size_ + 31) / 32; }
  std::span<const TokenId> eos() const { return eos_; }
  bool is_eos(TokenId token) const;
  /// Its text; empty where it has none.
  std::string_view bytes(TokenId token) const;
  /// Its bytes in the trie: the text, or what stands for a special token. Empty for tokens that can be in no text.
  std::string_view spelling(TokenId token) const;
  const SpecialTokens& special() const { return special_; }
  /// A special token of this name, or kNoToken.
  TokenId special_token(std::string_view name) const;
  /// Of a token that is in the trie.
  uint8_t first_byte(TokenId token) const { return first_bytes_[static_cast<size_t>(token)]; }
  const Trie& trie() const { return *trie_; }
  const TriePtr& shared_trie() const { return trie_; }
  uint16_t longest_token() const { return longest_token_; }
  /// Most opening brackets, of arrays and of objects, in one token.
  uint32_t most_brackets() const { return most_brackets_; }

  /// All masks over this vocabulary.
  MaskPool& masks() const { return masks_; }
  /// Results that all grammars over the vocabulary share, of a type that their user knows.
  SharedResults& shared_results() const { return shared_results_; }
  /// Its tokens as seen from within a class of characters.
  TokenClassPtr token_class(const CharacterClass& characters) const;

  /// The next token with the same bytes as this one, or kNoToken.
  TokenId next_duplicate(TokenId token) const { return duplicate_[token]; }
  /// Some tokens have the same bytes.
  bool has_duplicates() const { return has_duplicates_; }

  /// The decoder drops one space at the start of a text, so a first token may carry one that nobody will see.
  bool first_space_optional() const { return first_space_optional_; }

  /// Whether there is a tokenizer.
  bool encodes() const { return static_cast<bool>(encode_); }
  std::vector<TokenId> encode(const std::string& text) const { return encode_(text); }

  /// Bytes of well-formed UTF-8 that no token spells alone: text that needs one may have no tokens.
  std::vector<uint8_t> missing_bytes() const;
  /// There are none, so every text has tokens, whatever it begins with.
  bool spells_all() const { return spells_all_; }

 private:
  void name_special_tokens(SpecialTokens names);
  Trie build_trie();

  std::vector<std::string> tokens_;
  SpecialTokens special_;
  std::unordered_map<TokenId, std::string> special_spellings_;
  std::vector<TokenId> eos_;
  std::vector<TokenId> duplicate_;
  std::vector<uint8_t> first_bytes_;
  size_t size_;
  uint16_t longest_token_ = 0;
  bool has_duplicates_ = false;
  uint32_t most_brackets_ = 0;
  bool first_space_optional_;
  bool spells_all_;
  TriePtr trie_;
  Encode encode_;
  mutable MaskPool masks_;
  mutable SharedResults shared_results_{kSharedResultBytes};
  mutable TokenClassCache classes_{kClassBytes};
};

}  // namespace constrain
