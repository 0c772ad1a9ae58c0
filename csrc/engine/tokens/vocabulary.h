// A tokenizer's vocabulary as byte strings, and their trie.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/text/token_reach.h"
#include "engine/tokens/mask.h"
#include "engine/tokens/token_class.h"
#include "engine/tokens/trie.h"

namespace constrain {

/// The tokens of a model. Immutable; grammars and threads share it.
class Vocabulary {
 public:
  /// Capacities of the caches, in bytes.
  static constexpr size_t kSharedResultBytes = size_t{128} << 20, kClassBytes = size_t{128} << 20;

  using SharedResults = LruCache<std::shared_ptr<const void>>;

  /// Tokenizes a text that continues another one.
  using Encode = std::function<std::vector<TokenId>(const std::string&)>;

  /// Tokens without text, and their names, which need not be unique.
  using SpecialTokens = std::vector<std::pair<TokenId, std::string>>;

  /// `tokens[i]` holds the bytes of token i; it is empty for tokens without text (special tokens and holes). `size` is
  /// the width of the model's logits: ids beyond the list are padding, and tokens beyond `size` do not exist for the
  /// model. `special` names the tokens without text that grammars may refer to, possibly including end-of-sequence
  /// tokens. Throws std::invalid_argument if an id is out of range or a token is longer than 65,535 bytes.
  Vocabulary(std::vector<std::string> tokens, std::vector<TokenId> eos, size_t size, bool first_space_optional,
             Encode encode = {}, SpecialTokens special = {});

  size_t size() const { return size_; }
  size_t mask_words() const { return (size_ + 31) / 32; }
  std::span<const TokenId> eos() const { return eos_; }
  bool is_eos(TokenId token) const;
  /// Bytes of the text of a token; empty if it has none.
  std::string_view bytes(TokenId token) const;
  /// Bytes of a token in the trie: its text, or the encoding of a special token. Empty for tokens that no text
  /// contains.
  std::string_view spelling(TokenId token) const;
  const SpecialTokens& special() const { return special_; }
  /// Finds a special token by name; kNoToken if there is none.
  TokenId special_token(std::string_view name) const;
  /// First byte of a token in the trie.
  uint8_t first_byte(TokenId token) const { return first_bytes_[static_cast<size_t>(token)]; }
  const Trie& trie() const { return *trie_; }
  const TriePtr& shared_trie() const { return trie_; }
  /// The trie's node of a token that is in it.
  uint32_t node(TokenId token) const { return nodes_[static_cast<size_t>(token)]; }
  const std::shared_ptr<const TokenCharacters>& characters() const { return characters_; }
  uint16_t longest_token() const { return longest_token_; }
  /// How far tokens lead in a JSON text.
  const TokenReach& reach() const { return reach_; }

  /// The JSON strings within tokens, except those with numeric escapes.
  const std::shared_ptr<const std::unordered_set<std::string>>& quoted() const { return quoted_; }

  /// Pool of all masks over this vocabulary.
  MaskPool& masks() const { return masks_; }
  /// Cache of results that all grammars over the vocabulary share. Its users agree on their type.
  SharedResults& shared_results() const { return shared_results_; }
  /// Sorts the tokens by a character class; cached. If `first` is not empty, only those that begin with one of these
  /// ASCII characters, by what follows it.
  TokenClassPtr token_class(const CharacterClass& characters, const ByteSet& first = {}) const;

  /// Next token with the same bytes, or kNoToken.
  TokenId next_duplicate(TokenId token) const { return duplicate_[token]; }
  /// Appends the other tokens with the bytes of the tokens from `begin` on, each the first with its bytes.
  void add_duplicates(std::vector<TokenId>& tokens, size_t begin = 0) const;
  /// True if some tokens have the same bytes.

  /// True if the decoder drops one space at the start of a text, so that the first token may have one in addition.
  bool first_space_optional() const { return first_space_optional_; }

  /// True if there is a tokenizer.
  bool encodes() const { return static_cast<bool>(encode_); }
  std::vector<TokenId> encode(const std::string& text) const { return encode_(text); }

  /// Bytes of well-formed UTF-8 that are no token by themselves; texts with one of them may not be tokenizable.
  std::vector<uint8_t> missing_bytes() const;
  /// True if no bytes are missing, so that every text is tokenizable.
  bool tokenizes_all() const { return tokenizes_all_; }

 private:
  void name_special_tokens(SpecialTokens names);
  Trie build_trie();
  std::unordered_set<std::string> find_quoted() const;

  std::vector<std::string> tokens_;
  SpecialTokens special_;
  std::unordered_map<TokenId, std::string> special_spellings_;
  std::vector<TokenId> eos_;
  std::vector<TokenId> duplicate_;
  std::vector<uint8_t> first_bytes_;
  size_t size_;
  uint16_t longest_token_ = 0;
  bool has_duplicates_ = false;
  TokenReach reach_;
  bool first_space_optional_;
  bool tokenizes_all_;
  TriePtr trie_;
  std::vector<uint32_t> nodes_;  // by token, duplicates included
  std::shared_ptr<const TokenCharacters> characters_;
  std::shared_ptr<const std::unordered_set<std::string>> quoted_;
  Encode encode_;
  mutable MaskPool masks_;
  mutable SharedResults shared_results_{kSharedResultBytes};
  mutable TokenClassCache classes_{kClassBytes};
};

}  // namespace constrain
