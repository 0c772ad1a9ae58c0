#include "engine/completion/tokenizable_masks.h"

#include <algorithm>

#include "engine/base/errors.h"

namespace constrain {

TokenizableMasks::TokenizableMasks(const CompiledGrammar& grammar)
    : grammar_(grammar),
      registers_(arena_, true),
      store_(grammar, arena_, true),
      stepper_(grammar, store_, registers_),
      completions_(grammar, store_, registers_),
      levels_(size_t{grammar.vocabulary().longest_token()} + 1) {}

size_t TokenizableMasks::bytes() const {
  constexpr size_t kEntry = 120;
  return arena_.bytes() + kEntry * (completions_.size() + verdicts_.size());
}

/// Searches breadth first for a configuration with a tokenizable completion. All configurations on the path to it have
/// one as well; if there is none, none of the visited ones has.
class TokenizableMasks::Search {
 public:
  explicit Search(TokenizableMasks& owner) : owner_(owner) {}

  bool run(const Configuration& root) {
    const uint64_t first = owner_.visited_;
    meet(&root, kNone);
    for (size_t i = 0; i < met_.size(); ++i) {
      const bool over = met_.size() > kSearchConfigurations || owner_.visited_ - first > kSearchNodes;
      if (over) return owner_.verdicts_[&root] = false;
      for (const auto& [token, next] : owner_.moves(*met_[i].at)) {
        const auto verdict = owner_.glance(*next);
        if (verdict == true) return succeed(i);
        if (!verdict) meet(next, i);
      }
    }
    for (const Visit& visit : met_) owner_.verdicts_[visit.at] = false;
    return false;
  }

 private:
  static constexpr size_t kNone = ~size_t{0};

  struct Visit {
    const Configuration* at;
    size_t from;  // index of the predecessor
  };

  void meet(const Configuration* at, size_t from) {
    if (seen_.emplace(at, true).second) met_.push_back({at, from});
  }

  bool succeed(size_t last) {
    for (size_t i = last; i != kNone; i = met_[i].from) owner_.verdicts_[met_[i].at] = true;
    return true;
  }

  TokenizableMasks& owner_;
  std::vector<Visit> met_;
  std::unordered_map<const Configuration*, bool> seen_;
};

/// Decides from the cache, or by tokenizing the shortest completion.
std::optional<bool> TokenizableMasks::glance(const Configuration& at) {
  if (const auto cached = verdicts_.find(&at); cached != verdicts_.end()) return cached->second;
  const std::string text = completions_.text(at);
  const Trie& trie = grammar_.vocabulary().trie();
  const auto has_token = [&](char byte) {
    const uint32_t node = trie.child(0, static_cast<uint8_t>(byte));
    return node && trie.token[node] != kNoToken;
  };
  if (!std::ranges::all_of(text, has_token) && completions_.measure(at).tokens == kInfinite) return std::nullopt;
  return verdicts_[&at] = true;
}

bool TokenizableMasks::possible(const Configuration& from) {
  store_.start_work();
  std::vector<StackTop> tops(from.tops().begin(), from.tops().end());
  const Configuration& at = *store_.make(tops);
  try {
    const auto verdict = glance(at);
    return verdict ? *verdict : Search(*this).run(at);
  } catch (const ResourceLimit&) {
    return verdicts_[&at] = false;
  }
}

MaskPtr TokenizableMasks::mask(const Configuration& from) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  TokenSet tokens;
  tokens.start(vocabulary.mask_words());
  bool any = from.accepting;
  for (auto [token, next] : moves(from)) {
    if (!possible(*next)) continue;
    any = true;
    for (; token != kNoToken; token = vocabulary.next_duplicate(token)) tokens.add(token);
  }
  if (!any)
    throw VocabularyError("no tokens complete the text: the vocabulary lacks bytes that every continuation needs");
  if (from.accepting) {
    for (const TokenId id : vocabulary.eos()) tokens.add(id);
  }
  return vocabulary.masks().intern(tokens);
}

/// Lists the tokens allowed by their bytes, with the configurations they lead to.
std::vector<TokenizableMasks::Move> TokenizableMasks::moves(const Configuration& from) {
  const Trie& trie = grammar_.vocabulary().trie();
  std::vector<Move> found;
  store_.start_work();
  levels_[0].assign(from.tops().begin(), from.tops().end());
  for (uint32_t node = 1; node < trie.nodes();) {
    ++visited_;
    const size_t depth = trie.depth[node];
    std::vector<StackTop>& tops = levels_[depth];
    tops.clear();
    for (const StackTop& top : levels_[depth - 1]) stepper_.step(top, trie.byte[node], tops);
    if (tops.empty()) {
      node += trie.size[node];
      continue;
    }
    if (tops.size() > 1 || trie.token[node] != kNoToken) {
      const Configuration* to = store_.make(tops);
      tops.assign(to->tops().begin(), to->tops().end());
      if (trie.token[node] != kNoToken) found.emplace_back(trie.token[node], to);
    }
    ++node;
  }
  return found;
}

}  // namespace constrain
