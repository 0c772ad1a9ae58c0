#include "engine/completion/forced_text.h"

#include <algorithm>

#include "engine/text/special_token.h"
#include "engine/text/utf8.h"

namespace constrain {

namespace {

/// Forced bytes are computed up to this length; the rest is forced once these are accepted.
constexpr size_t kMaxBytes = 256;

bool continues_character(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

void keep_common(std::vector<TokenId>& tokens, const std::vector<TokenId>& other) {
  const auto end = std::ranges::mismatch(tokens, other).in1;
  tokens.erase(end, tokens.end());
}

}  // namespace

ForcedText::ForcedText(const CompiledGrammar& grammar, ConfigurationStore& store, Registers& registers,
                       const Configuration& from)
    : grammar_(grammar), stepper_(grammar, store, registers), end_(&from) {
  // A special token is forced as a whole or not at all.
  size_t whole = 0;
  bool within_special = false;
  uint8_t byte = 0;
  for (const Configuration* at = &from; !at->accepting && bytes_.size() < kMaxBytes;) {
    at = only_way_on(*at, byte);
    if (!at) break;
    bytes_ += static_cast<char>(byte);
    within_special ^= bytes_.back() == kSpecialMark;
    if (within_special) continue;
    whole = bytes_.size();
    if (byte < 0x80 || !within_character(*at)) end_ = at, whole_ = whole;
  }
  bytes_.resize(whole);
  if (!end_->accepting) return;
  for (int any = 0; any < 256; ++any) {
    if (stepper_.advance(*end_, static_cast<uint8_t>(any))) return;
  }
  ends_ = true;
}

std::vector<TokenId> ForcedText::tokens(std::vector<TokenId> before) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  std::vector<TokenId> tokens;
  size_t begin = 0;
  // Tokenizers split texts at special tokens, and tokenize the parts separately.
  for (size_t mark; (mark = bytes_.find(kSpecialMark, begin)) != bytes_.npos;) {
    const auto text = mark > begin ? encode(before, begin, mark) : std::vector<TokenId>{};
    if (!text) return tokens;
    tokens.insert(tokens.end(), text->begin(), text->end());
    begin = bytes_.find(kSpecialMark, mark + 1) + 1;
    tokens.push_back(vocabulary.special_token(std::string_view(bytes_).substr(mark + 1, begin - mark - 2)));
    before.clear();
  }
  const std::vector<TokenId> last = last_tokens(before, begin);
  tokens.insert(tokens.end(), last.begin(), last.end());
  return tokens;
}

/// Tokens of the bytes from `begin` on, which contain no special token.
std::vector<TokenId> ForcedText::last_tokens(const std::vector<TokenId>& before, size_t begin) {
  if (whole_ <= begin) return {};
  std::optional<std::vector<TokenId>> common = encode(before, begin, whole_);
  const size_t longest = grammar_.vocabulary().longest_token();
  const size_t first = whole_ < begin + longest ? begin : whole_ - longest + 1;
  for (size_t offset = whole_; common && !common->empty() && offset-- > first;) {
    if (!may_be_cut(offset)) continue;
    const auto other = encode(before, begin, offset);
    if (!other) return {};
    keep_common(*common, *other);
  }
  return common.value_or(std::vector<TokenId>{});
}

/// Follows the only byte that may come next; nullptr if there are several.
const Configuration* ForcedText::only_way_on(const Configuration& at, uint8_t& byte) {
  const Configuration* found = nullptr;
  for (int any = 0; any < 256; ++any) {
    const Configuration* next = stepper_.advance(at, static_cast<uint8_t>(any));
    if (next && found) return nullptr;
    if (next) found = next, byte = static_cast<uint8_t>(any);
  }
  return found;
}

/// True if only the rest of a character may come next.
bool ForcedText::within_character(const Configuration& at) {
  for (int any = 0x80; any < 0xC0; ++any) {
    if (stepper_.advance(at, static_cast<uint8_t>(any))) return true;
  }
  return false;
}

/// True if some token may start at `offset` and reach beyond the end. Any may start among trailing blanks, because
/// tokenizers join the last blank to the next word before they look up tokens.
bool ForcedText::may_be_cut(size_t offset) {
  const std::string_view rest = std::string_view(bytes_).substr(offset, whole_ - offset);
  if (!ends_ && rest.find_first_not_of(" \t\r\n") == rest.npos) return true;
  const Trie& trie = grammar_.vocabulary().trie();
  uint32_t node = 0;
  for (const char byte : rest) {
    node = trie.child(node, static_cast<uint8_t>(byte));
    if (!node) return false;
  }
  return some_token_below(node);
}

/// True if some token longer than the string of the node may follow.
bool ForcedText::some_token_below(uint32_t node) {
  const Trie& trie = grammar_.vocabulary().trie();
  const size_t depth = trie.depth[node];
  std::vector<const Configuration*> path{end_};
  for (uint32_t i = node + 1, end = node + trie.size[node]; i < end;) {
    path.resize(trie.depth[i] - depth);
    const Configuration* next = stepper_.advance(*path.back(), trie.byte[i]);
    if (next && trie.token[i] != kNoToken) return true;
    if (next) path.push_back(next);
    i += next ? 1 : trie.size[i];
  }
  return false;
}

/// Tokenizes the bytes from `begin` up to the character at `end`; nothing if the tokens of `before` change, or the text
/// begins within a character.
std::optional<std::vector<TokenId>> ForcedText::encode(const std::vector<TokenId>& before, size_t begin,
                                                       size_t end) const {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  while (end > begin && end < whole_ && continues_character(bytes_[end])) --end;
  std::string text;
  for (const TokenId token : before) text += vocabulary.bytes(token);
  text.append(bytes_, begin, end - begin);
  if (!is_utf8(text)) return std::nullopt;
  std::vector<TokenId> tokens = vocabulary.encode(text);
  if (tokens.size() < before.size() || !std::equal(before.begin(), before.end(), tokens.begin())) return std::nullopt;
  tokens.erase(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(before.size()));
  return tokens;
}

}  // namespace constrain
