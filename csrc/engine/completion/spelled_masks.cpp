#include "engine/completion/spelled_masks.h"

#include <algorithm>

#include "engine/base/errors.h"

namespace constrain {

SpelledMasks::SpelledMasks(const CompiledGrammar& grammar)
    : grammar_(grammar),
      registers_(arena_, true),
      store_(grammar, arena_, true),
      stepper_(grammar, store_, registers_),
      completions_(grammar, store_, registers_),
      levels_(size_t{grammar.vocabulary().longest_token()} + 1) {}

size_t SpelledMasks::bytes() const {
  constexpr size_t kEntry = 120;
  return arena_.bytes() + kEntry * (completions_.size() + verdicts_.size());
}

/// Breadth-first search for a configuration that tokens are known to complete. Those that led there can be completed as
/// well; where there is none, none of all that were met can.
class SpelledMasks::Search {
 public:
  explicit Search(SpelledMasks& owner) : owner_(owner) {}

  bool run(const Configuration& root) {
    const uint64_t first = owner_.visited_;
    meet(&root, kNone);
    for (size_t i = 0; i < met_.size(); ++i) {
      const bool over = met_.size() > kSearchConfigurations || owner_.visited_ - first > kSearchNodes;
      if (over) return owner_.verdicts_[&root] = false;
      for (const auto& [token, next] : owner_.moves(*met_[i].at)) {
        const auto known = owner_.glance(*next);
        if (known == true) return succeed(i);
        if (!known) meet(next, i);
      }
    }
    for (const Visit& visit : met_) owner_.verdicts_[visit.at] = false;
    return false;
  }

 private:
  static constexpr size_t kNone = ~size_t{0};

  struct Visit {
    const Configuration* at;
    size_t from;  // the visit that led here
  };

  void meet(const Configuration* at, size_t from) {
    if (seen_.emplace(at, true).second) met_.push_back({at, from});
  }

  bool succeed(size_t last) {
    for (size_t i = last; i != kNone; i = met_[i].from) owner_.verdicts_[met_[i].at] = true;
    return true;
  }

  SpelledMasks& owner_;
  std::vector<Visit> met_;
  std::unordered_map<const Configuration*, bool> seen_;
};

/// What is plain to see, or was found before.
std::optional<bool> SpelledMasks::glance(const Configuration& at) {
  if (const auto known = verdicts_.find(&at); known != verdicts_.end()) return known->second;
  const std::string text = completions_.text(at);
  const Trie& trie = grammar_.vocabulary().trie();
  const auto has_token = [&](char byte) {
    const uint32_t node = trie.child(0, static_cast<uint8_t>(byte));
    return node && trie.token[node] != kNoToken;
  };
  if (!std::ranges::all_of(text, has_token) && completions_.measure(at).tokens == kInfinite) return std::nullopt;
  return verdicts_[&at] = true;
}

bool SpelledMasks::possible(const Configuration& from) {
  std::vector<Head> heads(from.heads().begin(), from.heads().end());
  const Configuration& at = *store_.make(heads);
  try {
    const auto known = glance(at);
    return known ? *known : Search(*this).run(at);
  } catch (const ResourceLimit&) {
    return verdicts_[&at] = false;
  }
}

MaskPtr SpelledMasks::mask(const Configuration& from) {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  TokenSet tokens;
  tokens.start(vocabulary.mask_words());
  bool any = from.accepting;
  for (auto [token, next] : moves(from)) {
    if (!possible(*next)) continue;
    any = true;
    for (; token != kNoToken; token = vocabulary.next_duplicate(token)) tokens.add(token);
  }
  if (!any) throw VocabularyError("no tokens complete the text: the vocabulary lacks bytes that every way on needs");
  if (from.accepting) {
    for (const TokenId id : vocabulary.eos()) tokens.add(id);
  }
  return vocabulary.masks().intern(tokens);
}

/// The tokens that may follow by their bytes, and what they lead to.
std::vector<SpelledMasks::Move> SpelledMasks::moves(const Configuration& from) {
  const Trie& trie = grammar_.vocabulary().trie();
  std::vector<Move> found;
  store_.start_work();
  levels_[0].assign(from.heads().begin(), from.heads().end());
  for (uint32_t node = 1; node < trie.nodes();) {
    ++visited_;
    const size_t depth = trie.depth[node];
    std::vector<Head>& heads = levels_[depth];
    heads.clear();
    for (const Head& head : levels_[depth - 1]) stepper_.step(head, trie.byte[node], heads);
    if (heads.empty()) {
      node += trie.size[node];
      continue;
    }
    if (heads.size() > 1 || trie.token[node] != kNoToken) {
      const Configuration* to = store_.make(heads);
      heads.assign(to->heads().begin(), to->heads().end());
      if (trie.token[node] != kNoToken) found.emplace_back(trie.token[node], to);
    }
    ++node;
  }
  return found;
}

}  // namespace constrain
