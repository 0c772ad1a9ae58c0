#include "engine/trie_walk.h"

#include <algorithm>

namespace constrain {

namespace {

/// Beyond this many readings it pays to look for ones that agree.
constexpr size_t kMergeAbove = 4;

/// Bytes that a thread keeps from one walk to the next.
constexpr size_t kKeptScratch = size_t{4} << 20;

}  // namespace

TrieWalk::TrieWalk(const CompiledGrammar& grammar, WalkScratch& scratch, bool interning)
    : grammar_(grammar),
      registers_(scratch.arena, interning),
      store_(grammar, scratch.arena, interning),
      stepper_(grammar, store_, registers_),
      heads_(scratch.heads),
      merged_(scratch.merged),
      levels_(scratch.levels),
      scratch_(scratch) {
  store_.start_work();
  levels_.resize(std::max(levels_.size(), size_t{grammar.vocabulary().longest_token()} + 1));
}

TrieWalk::~TrieWalk() {
  scratch_.arena.reset();
  if (scratch_.arena.bytes() > kKeptScratch) scratch_.arena = Arena();
  if (heads_.capacity() * sizeof(Head) > kKeptScratch) heads_ = {};
  if (merged_.capacity() * sizeof(Head) > kKeptScratch) merged_ = {};
}

void TrieWalk::run(const Trie& trie, uint32_t root, std::span<const Head> from) {
  bottom_ = nullptr;
  heads_.assign(from.begin(), from.end());
  walk(trie, root);
}

void TrieWalk::run_alone(const Trie& trie, StateId state, Reg reg, uint32_t depth) {
  bottom_ = store_.make_bottom(depth);
  heads_.assign(1, Head{state, reg, bottom_});
  walk(trie, 0);
}

TrieWalk::Level TrieWalk::level(const Trie& trie, uint32_t node, size_t begin) {
  const Row* row = nullptr;
  if (heads_.size() - begin == 1) {
    const Head& head = heads_[begin];
    row = &grammar_.row(head.state);
    if (row->accepting && head.below && head.below != bottom_) row = nullptr;
  }
  Level made{begin, heads_.size(), row, trie.jumps_of(node), {}, node + trie.size[node]};
  if (made.jumps) {
    for (size_t k = begin; k < heads_.size(); ++k) collect(heads_[k], made.bytes);
  }
  return made;
}

/// The same for the last head alone, which is the usual case; notes where its frame may be over.
void TrieWalk::enter_alone(const Trie& trie, uint32_t node, const Head& head, Level& made) {
  const Row& row = grammar_.row(head.state);
  const bool may_end = row.accepting && head.below;
  if (may_end && bottom_ && head.below->accepting) exits.push_back(node);
  made.begin = heads_.size() - 1;
  made.end = heads_.size();
  made.row = may_end && head.below != bottom_ ? nullptr : &row;
  made.jumps = trie.jumps_of(node);
  made.node_end = node + trie.size[node];
  if (!made.jumps) return;
  made.bytes = row.bytes;
  if (!made.row) collect(*head.below, made.bytes);
}

void TrieWalk::collect(const Head& head, ByteSet& bytes) {
  const Row& row = grammar_.row(head.state);
  bytes.add(row.bytes);
  if (row.accepting && head.below) collect(*head.below, bytes);
}

void TrieWalk::collect(const Configuration& configuration, ByteSet& bytes) {
  consult(configuration);
  store_.charge(configuration.count);
  for (const Head& head : configuration.heads()) collect(head, bytes);
}

/// Drops the readings that have come to the unknown frames, and says whether any has or might end right here.
bool TrieWalk::at_exit(size_t begin) {
  bool found = false;
  for (size_t k = begin; k < heads_.size();) {
    const Head& head = heads_[k];
    if (head.state == kDone) {
      heads_.erase(heads_.begin() + static_cast<ptrdiff_t>(k));
      found = true;
      continue;
    }
    found |= head.below->accepting && grammar_.row(head.state).accepting;
    ++k;
  }
  return found;
}

/// The next node to look at after one that was refused.
uint32_t TrieWalk::skip(const Trie& trie, const Level& above, uint32_t node) {
  if (!above.jumps) return node + trie.size[node];
  const int next = above.bytes.next(trie.byte[node] + 1);
  return next < 0 ? above.node_end : (*above.jumps)[next];
}

void TrieWalk::walk(const Trie& trie, uint32_t root) {
  const size_t base = trie.depth[root];
  const auto take = [&](uint32_t node, size_t begin) {
    const TokenId token = trie.token[node];
    if (token != kNoToken && (!admits || admits(std::span(heads_).subspan(begin)))) tokens.push_back(token);
  };
  if (bottom_ && at_exit(0)) exits.push_back(root);
  levels_[0] = level(trie, root, 0);
  const uint32_t end = root + trie.size[root];
  for (uint32_t node = root + 1; node < end;) {
    ++visited;
    const size_t depth = trie.depth[node] - base;
    const Level& above = levels_[depth - 1];
    const uint8_t byte = trie.byte[node];
    const uint32_t action = above.row ? above.row->action[byte] : 0;
    if (above.row && action == 0) {
      node = skip(trie, above, node);
      continue;
    }
    heads_.resize(above.end);
    if (action & Row::kGoto) {
      const Head head = heads_[above.begin];
      heads_.push_back({action & ~Row::kGoto, head.reg, head.below});
      take(node, above.end);
      if (trie.size[node] > 1) enter_alone(trie, node, heads_.back(), levels_[depth]);
      ++node;
      continue;
    }
    for (size_t k = above.begin; k < above.end; ++k) stepper_.step(heads_[k], byte, heads_);
    if (heads_.size() == above.end) {
      node = skip(trie, above, node);
      continue;
    }
    if (heads_.size() - above.end > kMergeAbove) {
      merged_.assign(heads_.begin() + static_cast<ptrdiff_t>(above.end), heads_.end());
      const auto kept = store_.make(merged_)->heads();
      heads_.resize(above.end);
      heads_.insert(heads_.end(), kept.begin(), kept.end());
    }
    take(node, above.end);
    // A string that none continues needs no rows.
    if (trie.size[node] > 1) {
      if (bottom_ && at_exit(above.end)) exits.push_back(node);
      levels_[depth] = level(trie, node, above.end);
    }
    ++node;
  }
}

}  // namespace constrain
