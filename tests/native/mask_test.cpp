// Tests of sets of tokens under construction: random changes, compared with plain sets.
#include "engine/tokens/mask.h"

#include <map>
#include <random>
#include <set>
#include <vector>

#include "check.h"

namespace constrain {

namespace {

constexpr size_t kWords = 64;

using Tokens = std::set<TokenId>;

std::vector<uint32_t> bits_of(const Tokens& tokens) {
  std::vector<uint32_t> words(kWords);
  for (const TokenId token : tokens) words[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
  return words;
}

/// A set that is changed at random, beside what it holds.
struct Changed {
  TokenSet set;
  Tokens tokens;

  void change(std::mt19937& random, const std::vector<std::pair<MaskPtr, Tokens>>& made) {
    const size_t most = random() % 3 == 0 ? 700 : 20;
    std::vector<TokenId> some(random() % most);
    for (TokenId& token : some) token = static_cast<TokenId>(random() % (32 * kWords));
    switch (random() % 4) {
      case 0:
        set.add(std::span<const TokenId>(some));
        return tokens.insert(some.begin(), some.end());
      case 1:
        set.add(std::make_shared<const TokenBits>(bits_of({some.begin(), some.end()})));
        return tokens.insert(some.begin(), some.end());
      case 2:
        set.remove(some);
        for (const TokenId token : some) tokens.erase(token);
        return;
      default:
        if (made.empty()) return;
        const auto& [mask, its] = made[random() % made.size()];
        set.add(mask);
        tokens.insert(its.begin(), its.end());
    }
  }
};

}  // namespace

TEST(masks_hold_the_tokens_that_were_added_and_not_removed) {
  std::mt19937 random(1);
  MaskPool pool;
  std::vector<std::pair<MaskPtr, Tokens>> made;
  std::map<std::vector<uint32_t>, MaskPtr> by_bits;
  Changed one;
  for (int i = 0; i < 2000; ++i) {
    one.set.start(kWords), one.tokens.clear();
    for (uint32_t changes = random() % 6; changes-- > 0;) one.change(random, made);
    const MaskPtr mask = pool.intern(one.set);
    std::vector<uint32_t> words(kWords);
    mask->write(words.data(), kWords);
    CHECK(words == bits_of(one.tokens));
    CHECK(mask->count == one.tokens.size());
    CHECK(one.tokens.empty() || mask->first() == *one.tokens.begin());
    for (TokenId token = 0; token < 64; ++token) CHECK(mask->has(token) == one.tokens.contains(token));
    CHECK(by_bits.try_emplace(words, mask).first->second == mask);
    made.emplace_back(mask, one.tokens);
  }
}

}  // namespace constrain
