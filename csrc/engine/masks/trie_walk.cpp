#include "engine/masks/trie_walk.h"

#include <algorithm>

namespace constrain {

namespace {

/// Beyond this many readings it pays to look for ones that agree.
constexpr size_t kMergeAbove = 4;

/// Bytes that a thread keeps from one walk to the next.
constexpr size_t kKeptScratch = size_t{4} << 20;

}  // namespace

TrieWalk::TrieWalk(const CompiledGrammar& grammar, WalkScratch& scratch, bool interning)
    : tokens(scratch.tokens),
      exits(scratch.exits),
      runs(scratch.runs),
      grammar_(grammar),
      registers_(scratch.arena, interning),
      store_(grammar, scratch.arena, interning),
      stepper_(grammar, store_, registers_),
      heads_(scratch.heads),
      merged_(scratch.merged),
      levels_(scratch.levels),
      scratch_(scratch) {
  tokens.clear(), exits.clear(), runs.clear();
  store_.start_work();
  levels_.resize(std::max(levels_.size(), size_t{grammar.vocabulary().longest_token()} + 1));
}

TrieWalk::~TrieWalk() {
  scratch_.arena.reset();
  if (scratch_.arena.bytes() > kKeptScratch) scratch_.arena = Arena();
  if (heads_.capacity() * sizeof(Head) > kKeptScratch) heads_ = {};
  if (merged_.capacity() * sizeof(Head) > kKeptScratch) merged_ = {};
}

void TrieWalk::run(const Trie& trie, uint32_t root, std::span<const Head> from, const ByteSet& first) {
  bottom_ = nullptr;
  heads_.assign(from.begin(), from.end());
  enter(trie, root, 0, levels_[0]);
  for_each_child(trie, root, first, [&](uint32_t child) { walk(trie, child, trie.depth[root]); });
}

void TrieWalk::run_likely(const Trie& trie, std::span<const Head> from, const ByteSet& inside) {
  bottom_ = nullptr;
  heads_.assign(from.begin(), from.end());
  inside_ = inside;
  enter(trie, 0, 0, levels_[0]);
  levels_[0].inside = true;
  levels_[0].likely = likely_bytes(levels_[0]);
  for_each_child(trie, 0, levels_[0].likely, [&](uint32_t child) { walk(trie, child, 0); });
}

void TrieWalk::run_alone(const Trie& trie, StateId state, Reg reg, uint32_t depth, const ByteSet& first) {
  bottom_ = store_.make_bottom(depth);
  heads_.assign(1, Head{state, reg, bottom_});
  enter(trie, 0, 0, levels_[0]);
  for_each_child(trie, 0, first, [&](uint32_t child) {
    walk(trie, child, 0);
    runs.push_back({trie.byte[child], tokens.size(), exits.size()});
  });
}

/// Calls `visit` for the children of the root that may be entered by one of `first`.
template <class Visit>
void TrieWalk::for_each_child(const Trie& trie, uint32_t root, const ByteSet& first, const Visit& visit) {
  const Level& level = levels_[0];
  const uint32_t end = root + trie.size[root];
  const ByteSet bytes = level.jumps ? level.bytes & first : first;
  for (uint32_t child = root + 1; child < end;) {
    const int wanted = bytes.next(trie.byte[child]);
    if (wanted < 0) return;
    if (wanted == trie.byte[child]) {
      visit(child);
      child += trie.size[child];
    } else {
      child = level.jumps ? (*level.jumps)[wanted] : child + trie.size[child];
    }
  }
}

/// Prepares a level for the heads from `begin` on.
void TrieWalk::enter(const Trie& trie, uint32_t node, size_t begin, Level& made) {
  if (bottom_ && at_exit(begin)) exits.push_back(node);
  made = {.row = nullptr,
          .head = {},
          .begin = begin,
          .end = heads_.size(),
          .jumps = trie.jumps_of(node),
          .bytes = {},
          .node_end = node + trie.size[node],
          .inside = false,
          .likely = {}};
  if (made.end - begin == 1) {
    made.head = heads_[begin];
    const Row& row = grammar_.row(made.head.state);
    if (!row.accepting || !made.head.below || made.head.below == bottom_) made.row = &row;
  }
  if (!made.jumps) return;
  for (size_t k = begin; k < made.end; ++k) collect(heads_[k], made.bytes);
}

/// The same for one head that has made a move within its rule, which is the usual case.
void TrieWalk::enter_alone(const Trie& trie, uint32_t node, const Head& head, size_t begin, Level& made) {
  const Row& row = grammar_.row(head.state);
  if (row.accepting && head.below) {
    if (head.below != bottom_) {
      heads_.resize(begin);
      heads_.push_back(head);
      return enter(trie, node, begin, made);
    }
    if (bottom_->accepting) exits.push_back(node);
  }
  made.row = &row;
  made.head = head;
  made.begin = made.end = begin;
  made.jumps = trie.jumps_of(node);
  made.node_end = node + trie.size[node];
  made.inside = false;
  if (made.jumps) made.bytes = row.bytes;
}

/// For a level that a byte has led to.
void TrieWalk::go_inside(uint8_t byte, Level& made) const {
  made.inside = inside_.has(byte);
  if (made.inside) made.likely = likely_bytes(made);
}

ByteSet TrieWalk::likely_bytes(const Level& level) const {
  ByteSet bytes;
  if (level.begin == level.end) bytes.add(grammar_.likely_bytes(level.head.state, level.head.reg));
  for (size_t k = level.begin; k < level.end; ++k) bytes.add(grammar_.likely_bytes(heads_[k].state, heads_[k].reg));
  return bytes;
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

/// Appends what the heads of a level become on a byte.
void TrieWalk::step(const Level& above, uint8_t byte) {
  heads_.resize(above.end);
  if (above.row) {
    stepper_.step(above.head, byte, heads_);
  } else {
    for (size_t k = above.begin; k < above.end; ++k) stepper_.step(heads_[k], byte, heads_);
  }
  if (heads_.size() - above.end <= kMergeAbove) return;
  merged_.assign(heads_.begin() + static_cast<ptrdiff_t>(above.end), heads_.end());
  const auto kept = store_.make(merged_)->heads();
  heads_.resize(above.end);
  heads_.insert(heads_.end(), kept.begin(), kept.end());
}

void TrieWalk::take(const Trie& trie, uint32_t node, std::span<const Head> heads) {
  const TokenId token = trie.token[node];
  if (token == kNoToken || (admits && !admits(heads))) return;
  if (trie.groups.empty()) {
    tokens.push_back(token);
  } else {
    const std::vector<TokenId>& group = trie.groups[static_cast<size_t>(token)];
    tokens.insert(tokens.end(), group.begin(), group.end());
  }
}

/// Visits a child of the root, which stands at depth `base`, and what is below.
void TrieWalk::walk(const Trie& trie, uint32_t child, size_t base) {
  const uint32_t end = child + trie.size[child];
  for (uint32_t node = child; node < end;) {
    ++visited;
    const size_t depth = trie.depth[node] - base;
    const Level& above = levels_[depth - 1];
    const uint8_t byte = trie.byte[node];
    if (above.inside && !above.likely.has(byte)) {
      node += trie.size[node];
      continue;
    }
    const uint32_t action = above.row ? above.row->action[byte] : 0;
    if (above.row && action == 0) {
      node = skip(trie, above, node);
      continue;
    }
    const bool goes = action & Row::kGoto;
    const Option* only = above.row && !goes ? above.row->only_move(action) : nullptr;
    if (goes || only) {
      Head head = above.head;
      if (goes) {
        head.state = action & ~Row::kGoto;
      } else if (!stepper_.move(*only, byte, head)) {
        node = skip(trie, above, node);
        continue;
      }
      take(trie, node, {&head, 1});
      // A string that none continues needs no row.
      if (trie.size[node] > 1) {
        enter_alone(trie, node, head, above.end, levels_[depth]);
        if (above.inside) go_inside(byte, levels_[depth]);
      }
      ++node;
      continue;
    }
    step(above, byte);
    if (heads_.size() == above.end) {
      node = skip(trie, above, node);
      continue;
    }
    take(trie, node, std::span(heads_).subspan(above.end));
    if (trie.size[node] > 1) {
      enter(trie, node, above.end, levels_[depth]);
      if (above.inside) go_inside(byte, levels_[depth]);
    }
    ++node;
  }
}

}  // namespace constrain
