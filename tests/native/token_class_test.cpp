// Tests of token classes against the definition, over strings with malformed and incomplete characters.
#include "engine/tokens/token_class.h"

#include <algorithm>
#include <optional>
#include <random>
#include <set>
#include <string>

#include "check.h"
#include "engine/base/lengths.h"
#include "engine/text/utf8.h"
#include "engine/tokens/vocabulary.h"

namespace constrain {

namespace {

constexpr size_t kTokens = 3000;

Vocabulary random_vocabulary() {
  const std::vector<std::string> pieces = {
      "a",    "b",    "z",        " ",        "\"",       "\\",           "\n",         "\u00E9", "\u00DF", "\u2028",
      "\xC3", "\xA9", "\xE2\x80", "\xC3\xC3", "\xF0\x9F", "\u0430\u0431", "\U0001F600", "\x7F",   "\xC0",   "aaaaaaaa"};
  std::mt19937 random(7);
  std::vector<std::string> tokens(kTokens);
  for (std::string& token : tokens) {
    const size_t length = 1 + random() % (random() % 8 ? 4 : 24);
    const bool mostly_letters = random() % 2;
    for (size_t i = 0; i < length; ++i)
      token += pieces[random() % (mostly_letters && random() % 8 ? 3 : pieces.size())];
  }
  return Vocabulary(std::move(tokens), {}, kTokens, false);
}

/// Characters of a token up to where it leaves a class, and the byte by which it does.
struct Passage {
  uint32_t characters = 0;
  std::optional<uint8_t> leaving = {};
};

Passage passage(std::string_view token, const CharacterClass& within) {
  Passage passed;
  Utf8State state = Utf8State::boundary;
  uint8_t lead = 0;
  char32_t bits = 0;
  for (const char one : token) {
    const auto byte = static_cast<uint8_t>(one);
    const bool first = state == Utf8State::boundary;
    if (first) lead = byte;
    state = next_utf8(state, byte);
    bool stays = state != Utf8State::malformed && (byte < 0x80 ? within.ascii.has(byte) : within.beyond_ascii);
    if (stays && byte >= 0x80) {
      const int more = missing_bytes(state);
      bits = first ? static_cast<char32_t>(byte & (0x3F >> more)) : bits << 6 | (byte & 0x3F);
      stays = !within.excludes(scalar_range(bits, more));
    }
    if (!stays) return {passed.characters - (first ? 0 : 1), lead};
    passed.characters += first;
  }
  return passed;
}

std::set<TokenId> tokens_of(const Trie& trie, const Vocabulary& vocabulary, bool duplicates = true) {
  std::vector<TokenId> tokens;
  for (uint32_t node = 0; node < trie.nodes(); ++node) trie.append_tokens(node, tokens);
  if (duplicates) vocabulary.add_duplicates(tokens);
  return {tokens.begin(), tokens.end()};
}

template <class Holds>
std::set<TokenId> tokens_where(const Holds& holds) {
  std::set<TokenId> found;
  for (TokenId token = 0; token < static_cast<TokenId>(kTokens); ++token) {
    if (holds(token)) found.insert(token);
  }
  return found;
}

std::set<TokenId> added(const TokenClass& sorted, uint64_t max_length, const Vocabulary& vocabulary) {
  TokenSet set;
  set.start(vocabulary.mask_words());
  sorted.add(max_length, set);
  const MaskPtr mask = vocabulary.masks().intern(set);
  std::vector<uint32_t> bits(vocabulary.mask_words());
  mask->write(bits.data(), bits.size());
  const auto found =
      tokens_where([&](TokenId token) { return bits[static_cast<size_t>(token) / 32] >> (token % 32) & 1; });
  CHECK(found.size() == mask->count);
  return found;
}

CharacterClass random_class(std::mt19937& random) {
  CharacterClass within;
  for (uint8_t byte = 0; byte < 0x80; ++byte) {
    if (random() % 4) within.ascii.add(byte);
  }
  within.beyond_ascii = random() % 3;
  if (within.beyond_ascii && random() % 2) within.excluded = {{0xE9, 0xE9}, {0x430, 0x430}, {0x2020, 0x2FFF}};
  return within;
}

}  // namespace

TEST(token_classes_after_first_bytes_sort_by_what_follows) {
  const Vocabulary vocabulary = random_vocabulary();
  std::mt19937 random(9);
  for (const std::string_view bytes : {"a", "z ", "\" a", "~"}) {
    ByteSet first;
    for (const char byte : bytes) first.add(static_cast<uint8_t>(byte));
    const CharacterClass within = random_class(random);
    const TokenClassPtr sorted = vocabulary.token_class(within, first);
    const auto rest = [&](TokenId token) { return passage(vocabulary.bytes(token).substr(1), within); };
    const auto begins = [&](TokenId token) { return bytes.find(vocabulary.bytes(token).front()) != bytes.npos; };
    for (const uint64_t most : {uint64_t{1}, uint64_t{4}, kInfinite}) {
      CHECK(added(*sorted, most, vocabulary) == tokens_where([&](TokenId token) {
              return begins(token) && !rest(token).leaving && add_lengths(rest(token).characters, 1) <= most;
            }));
    }
    CHECK(tokens_of(*sorted->leaving(ByteSet::all(), vocabulary), vocabulary) ==
          tokens_where([&](TokenId token) { return begins(token) && rest(token).leaving; }));
    const uint64_t step = TokenClass::kLengthSteps.front();
    const auto long_tokens = tokens_of(*sorted->long_tokens(step, vocabulary), vocabulary);
    CHECK(std::ranges::all_of(long_tokens, begins));
    CHECK(std::ranges::includes(
        long_tokens, tokens_where([&](TokenId token) { return begins(token) && rest(token).characters > step; })));
  }
}

TEST(suffix_groups_hold_the_tokens_with_one_suffix) {
  const Vocabulary vocabulary = random_vocabulary();
  const TokenClass sorted(vocabulary, CharacterClass::plain());
  const TriePtr suffixes = sorted.suffix_groups(ByteSet::range('"', '\\'), vocabulary);
  std::set<TokenId> found;
  std::string suffix;
  for (uint32_t node = 1; node < suffixes->nodes(); ++node) {
    suffix.resize(suffixes->depth[node]);
    suffix.back() = static_cast<char>(suffixes->byte[node]);
    std::vector<TokenId> group;
    suffixes->append_tokens(node, group);
    for (const TokenId token : group) {
      CHECK(vocabulary.bytes(token).ends_with(suffix));
      CHECK(!passage(vocabulary.bytes(token).substr(0, vocabulary.bytes(token).size() - suffix.size()),
                     CharacterClass::plain())
                 .leaving);
      CHECK(found.insert(token).second);
    }
  }
  CHECK(found == tokens_of(*sorted.leaving(ByteSet::range('"', '\\'), vocabulary), vocabulary, false));
}

TEST(token_classes_sort_tokens_by_the_definition) {
  const Vocabulary vocabulary = random_vocabulary();
  std::mt19937 random(8);
  for (int round = 0; round < 40; ++round) {
    const CharacterClass within = random_class(random);
    const TokenClass sorted(vocabulary, within);
    std::vector<Passage> passages;
    for (TokenId token = 0; token < static_cast<TokenId>(kTokens); ++token)
      passages.push_back(passage(vocabulary.bytes(token), within));
    const auto at = [&](TokenId token) -> const Passage& { return passages[static_cast<size_t>(token)]; };
    for (const uint64_t most :
         {uint64_t{0}, uint64_t{1}, uint64_t{5}, uint64_t{16}, uint64_t{17}, uint64_t{60}, kInfinite})
      CHECK(added(sorted, most, vocabulary) ==
            tokens_where([&](TokenId token) { return !at(token).leaving && at(token).characters <= most; }));
    CHECK(sorted.count() == added(sorted, kInfinite, vocabulary).size());
    for (const uint64_t most : {8, 9, 13, 15, 17, 60}) {
      const uint64_t step = *std::prev(std::ranges::upper_bound(TokenClass::kLengthSteps, most));
      CHECK(tokens_of(*sorted.long_tokens(most, vocabulary), vocabulary) ==
            tokens_where([&](TokenId token) { return at(token).characters > step; }));
    }
    ByteSet bytes;
    for (int i = 0; i < 64; ++i) bytes.add(static_cast<uint8_t>(random()));
    CHECK(tokens_of(*sorted.leaving(bytes, vocabulary), vocabulary) ==
          tokens_where([&](TokenId token) { return at(token).leaving && bytes.has(*at(token).leaving); }));
  }
}

}  // namespace constrain
