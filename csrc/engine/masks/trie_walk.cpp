#include "engine/masks/trie_walk.h"

#include <algorithm>
#include <utility>

#include "engine/masks/run_tokens.h"

namespace constrain {

namespace {

/// Walks with more parse threads than this merge equal ones.
constexpr size_t kMergeAbove = 4;

/// Fewest nodes of a subtree for which `TrieWalk::known` is asked.
constexpr uint32_t kWorthAsking = 32;

/// Fewest nodes of a subtree for which `TrieWalk::defers` is asked.
constexpr uint32_t kWorthDeferring = 256;

/// Fewest nodes of a subtree for which `run_tokens` is asked.
constexpr uint32_t kWorthFinding = 8;

/// Bytes of working memory that a thread keeps between walks.
constexpr size_t kKeptScratch = size_t{4} << 20;

/// Removes those of few stack tops from `begin` on that are equal to one before them.
void drop_equal(std::vector<StackTop>& tops, size_t begin) {
  size_t kept = begin;
  for (size_t k = begin; k < tops.size(); ++k) {
    const std::span<const StackTop> before(tops.data() + begin, kept - begin);
    if (std::ranges::find(before, tops[k]) == before.end()) tops[kept++] = tops[k];
  }
  tops.resize(kept);
}

}  // namespace

TrieWalk::TrieWalk(const CompiledGrammar& grammar, WalkScratch& scratch, bool interning)
    : tokens(scratch.tokens),
      differing(scratch.differing),
      boundary_nodes(scratch.boundary_nodes),
      grammar_(grammar),
      registers_(scratch.arena, interning),
      store_(grammar, scratch.arena, interning),
      stepper_(grammar, store_, registers_),
      tops_(scratch.tops),
      merged_(scratch.merged),
      levels_(scratch.levels),
      scratch_(scratch) {
  tokens.clear(), differing.clear(), boundary_nodes.clear();
  store_.start_work();
  levels_.resize(std::max(levels_.size(), size_t{grammar.vocabulary().longest_token()} + 1));
}

TrieWalk::~TrieWalk() {
  scratch_.arena.reset();
  if (scratch_.arena.bytes() > kKeptScratch) scratch_.arena = Arena();
  if (tops_.capacity() * sizeof(StackTop) > kKeptScratch) tops_ = {};
  if (merged_.capacity() * sizeof(StackTop) > kKeptScratch) merged_ = {};
}

void TrieWalk::run(const Trie& trie, uint32_t root, std::span<const StackTop> from, const ByteSet& first) {
  bottom_ = nullptr;
  tops_.assign(from.begin(), from.end());
  enter(trie, root, 0, levels_[0]);
  for_each_child(trie, root, first, [&](uint32_t child) { walk(trie, child, trie.depth[root]); });
}

void TrieWalk::run_likely(const Trie& trie, std::span<const StackTop> from, const ByteSet& inside) {
  bottom_ = nullptr;
  tops_.assign(from.begin(), from.end());
  inside_ = inside;
  enter(trie, 0, 0, levels_[0]);
  levels_[0].inside = true;
  levels_[0].likely = likely_bytes(levels_[0]);
  for_each_child(trie, 0, levels_[0].likely, [&](uint32_t child) { walk(trie, child, 0); });
}

void TrieWalk::run_exits(const Exits& exits, std::span<const StackTop> from) {
  bottom_ = nullptr;
  walk_exits(exits, from);
}

void TrieWalk::walk_exits(const Exits& exits, std::span<const StackTop> from) {
  tops_.assign(from.begin(), from.end());
  enter(*exits.trie, 0, 0, levels_[0]);
  ByteSet& bytes = levels_[0].bytes;
  if (!std::exchange(levels_[0].jumps, nullptr)) {
    for (const StackTop& top : from) collect(top, bytes);
  }
  visit(*exits.trie, exits.exits, bytes, 0);
}

/// Visits the exits by the given bytes, as children of the node at a level.
void TrieWalk::visit(const Trie& trie, std::span<const Exits::Exit> exits, const ByteSet& bytes, size_t depth) {
  for (auto exit = exits.begin(); exit != exits.end();) {
    const int wanted = bytes.next(exit->byte);
    if (wanted < 0) return;
    if (wanted != exit->byte) {
      exit = std::ranges::lower_bound(exit, exits.end(), wanted, {}, &Exits::Exit::byte);
      continue;
    }
    walk(trie, exit->node, trie.depth[exit->node] - depth - 1);
    ++exit;
  }
}

/// Visits the descendants of a node after the run of white space that its level is in; false if it is in none.
bool TrieWalk::walk_run(const Trie& trie, uint32_t node, size_t depth) {
  Level& level = levels_[depth];
  if (!level.row || !level.row->run || level.row->accepting || level.inside || admits) return false;
  if (trie.size[node] < kWorthFinding || &trie != &grammar_.vocabulary().trie()) return false;
  const auto run = run_tokens(grammar_, level.top.state, node);
  tokens.insert(tokens.end(), run->tokens.begin(), run->tokens.end());
  level.top.state = level.row->like;
  level.row = &grammar_.row(level.top.state);
  level.jumps = nullptr;
  visit(trie, run->exits, level.row->bytes, depth);
  return true;
}

/// Initialises the root level for a single frame with `depth` unknown parents.
void TrieWalk::start_alone(const Trie& trie, const StackTop& top, uint32_t depth, uint32_t root) {
  entered.clear(), tokens.clear(), differing.clear(), boundary_nodes.clear();
  bottom_ = store_.make_bottom(depth);
  tops_.assign(1, StackTop{top.state, top.reg, bottom_});
  enter(trie, root, 0, levels_[0]);
}

void TrieWalk::run_alone(const Trie& trie, const StackTop& top, uint32_t depth, uint32_t root) {
  start_alone(trie, top, depth, root);
  if (const auto open = grammar_.open_words(top.state, top.reg)) {
    registers_.depth = depth;
    registers_.consult(grammar_.rule(top.state));
    walk_words(trie, root, *open);
  } else {
    for_each_child(trie, root, ByteSet::all(), [&](uint32_t child) { walk(trie, child, trie.depth[root]); });
  }
  for (size_t i = 0; i < entered.size(); ++i) {
    const Entered one = entered[i];
    if (one.parents == bottom_ || one.tokens->exits.empty()) continue;
    consult(*one.parents);
    for (const ExitsPtr& exits : one.tokens->exits) walk_exits(*exits, one.parents->tops());
  }
}

/// Visits the strings below a node that go on as open words do. The frame is asked only where one of these ends, or has
/// a byte that is escaped.
void TrieWalk::walk_words(const Trie& trie, uint32_t root, const OpenWords& open) {
  const SortedWords& words = open.words;
  const StackTop start = tops_.front();
  const auto leave = [&](uint32_t node, uint32_t word, uint32_t length) {
    StackTop top = start;
    for (uint32_t at = open.length; at < length; ++at) move_alone(grammar_.row(top.state), words.byte(word, at), top);
    tops_.assign(1, top);
    enter(trie, node, 0, levels_[0]);
    for_each_child(trie, node, ~open.plain, [&](uint32_t child) { walk(trie, child, trie.depth[node]); });
  };
  const auto visit = [&](auto& self, uint32_t node, uint32_t low, uint32_t high, uint32_t length) -> void {
    const uint32_t first = low;
    bool leaves = false;
    if (words.length(low) == length) leaves = open.any(low, low + 1), ++low;
    const uint32_t end = node + trie.size[node];
    const Trie::Jumps* jumps = trie.jumps_of(node);
    uint32_t child = node + 1;
    for (uint32_t next; low < high; low = next) {
      next = words.end_of_byte(low, high, length);
      const uint8_t byte = words.byte(low, length);
      if (!open.plain.has(byte)) {
        leaves |= open.any(low, next);
        continue;
      }
      if (jumps) child = (*jumps)[byte];
      while (child < end && trie.byte[child] < byte) child += trie.size[child];
      if (child == end || trie.byte[child] != byte || !open.any(low, next)) continue;
      ++visited;
      trie.append_tokens(child, tokens);
      if (trie.size[child] > 1) self(self, child, low, next, length + 1);
    }
    if (leaves) leave(node, first, length);
  };
  if (open.any(open.low, open.high)) visit(visit, root, open.low, open.high, open.length);
}

/// True if the last stack top is in a frame entered at this node whose tokens are known.
bool TrieWalk::is_known(const Trie& trie, uint32_t node, const Level& above) {
  if (!known || trie.size[node] < kWorthAsking || !above.row || tops_.size() != above.end + 1) return false;
  const StackTop& top = tops_.back();
  if (grammar_.rule(top.state) == grammar_.rule(above.top.state)) return false;
  FrameTokensPtr found = known(node, top);
  if (!found) return false;
  entered.push_back({std::move(found), top.parent});
  return true;
}

bool TrieWalk::run_beside(const Trie& trie, StateId state, StateId beside, Reg reg, uint32_t depth, uint64_t limit) {
  start_alone(trie, {state, reg, nullptr}, depth);
  set_beside({beside, reg, bottom_}, levels_[0]);
  const uint64_t before = visited;
  for (uint32_t node = 1; node < trie.nodes();) {
    const Level& above = levels_[trie.depth[node] - 1];
    node = walk_beside(trie, node) ? node + 1 : skip(trie, above, node);
    if (visited - before > limit) return false;
  }
  return true;
}

/// Sets the state of the other frame at a level, where only bytes on which the frames differ are of interest.
void TrieWalk::set_beside(const StackTop& beside, Level& level) const {
  level.beside = beside;
  if (!level.jumps || !level.row) return;
  const Row& other = grammar_.row(beside.state);
  level.bytes = {};
  for (int byte = 0; byte < 256; ++byte) {
    if (!level.row->agrees(other, static_cast<uint8_t>(byte))) level.bytes.add(static_cast<uint8_t>(byte));
  }
}

/// Visits a node with both frames; false if its subtree is done.
bool TrieWalk::walk_beside(const Trie& trie, uint32_t node) {
  ++visited;
  const size_t depth = trie.depth[node];
  const uint8_t byte = trie.byte[node];
  const Level& above = levels_[depth - 1];
  const Row& other = grammar_.row(above.beside.state);
  if (above.row && above.row->agrees(other, byte)) return false;
  StackTop top = above.top, beside = above.beside;
  const bool both = above.row && move_alone(*above.row, byte, top) && move_alone(other, byte, beside);
  // Where only the other frame may be over, its parents decide about tokens that are not theirs here.
  const bool over = both && grammar_.row(beside.state).accepting && !grammar_.row(top.state).accepting;
  if (!both || over || !grammar_.same_register(top, beside)) {
    // From here on the frames have nothing in common.
    trie.append_subtree(node, differing);
    walk(trie, node, 0);
    return false;
  }
  trie.append_tokens(node, differing);
  take(trie, node, {&top, 1});
  if (deferred(trie, node, top, &beside)) return false;
  enter_alone(trie, node, top, above.end, levels_[depth]);
  set_beside(beside, levels_[depth]);
  return true;
}

/// True if `defers` takes the strings below a node.
bool TrieWalk::deferred(const Trie& trie, uint32_t node, const StackTop& top, const StackTop* beside) {
  return defers && trie.size[node] >= kWorthDeferring && trie.depth[node] == 1 && defers(trie, node, top, beside);
}

/// Calls `visit` for the children of the root whose byte is in `first`.
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

/// Initialises a level from the stack tops from `begin` on.
void TrieWalk::enter(const Trie& trie, uint32_t node, size_t begin, Level& made) {
  if (bottom_ && drop_at_boundary(begin)) boundary_nodes.push_back(node);
  made = {.row = nullptr,
          .top = {},
          .begin = begin,
          .end = tops_.size(),
          .jumps = trie.jumps_of(node),
          .bytes = {},
          .node_end = node + trie.size[node],
          .inside = false,
          .likely = {},
          .beside = {}};
  if (made.end - begin == 1) {
    made.top = tops_[begin];
    const Row& row = grammar_.row(made.top.state);
    if (!row.accepting || !made.top.parent || made.top.parent == bottom_) made.row = &row;
  }
  if (!made.jumps) return;
  for (size_t k = begin; k < made.end; ++k) collect(tops_[k], made.bytes);
}

/// Initialises a level from one stack top that has moved within its rule, the usual case.
void TrieWalk::enter_alone(const Trie& trie, uint32_t node, const StackTop& top, size_t begin, Level& made) {
  const Row& row = grammar_.row(top.state);
  if (row.accepting && top.parent) {
    if (top.parent != bottom_) {
      tops_.resize(begin);
      tops_.push_back(top);
      return enter(trie, node, begin, made);
    }
    if (bottom_->accepting) boundary_nodes.push_back(node);
  }
  made.row = &row;
  made.top = top;
  made.begin = made.end = begin;
  made.jumps = trie.jumps_of(node);
  made.node_end = node + trie.size[node];
  made.inside = false;
  if (made.jumps) made.bytes = row.bytes;
}

/// Computes the likely bytes of a level reached by `byte`.
void TrieWalk::go_inside(uint8_t byte, Level& made) const {
  made.inside = inside_.has(byte);
  if (made.inside) made.likely = likely_bytes(made);
}

ByteSet TrieWalk::likely_bytes(const Level& level) const {
  ByteSet bytes;
  if (level.begin == level.end) bytes.add(grammar_.likely_bytes(level.top.state, level.top.reg));
  for (size_t k = level.begin; k < level.end; ++k) bytes.add(grammar_.likely_bytes(tops_[k].state, tops_[k].reg));
  return bytes;
}

void TrieWalk::collect(const StackTop& top, ByteSet& bytes) {
  const Row& row = grammar_.row(top.state);
  bytes.add(row.bytes);
  if (row.accepting && top.parent) collect(*top.parent, bytes);
}

void TrieWalk::collect(const Configuration& configuration, ByteSet& bytes) {
  consult(configuration);
  store_.charge(configuration.count);
  for (const StackTop& top : configuration.tops()) collect(top, bytes);
}

/// Drops the parse threads that popped into the unknown parents. True if any did, or may be popped right here.
bool TrieWalk::drop_at_boundary(size_t begin) {
  bool found = false;
  for (size_t k = begin; k < tops_.size();) {
    const StackTop& top = tops_[k];
    if (top.state == kDone) {
      tops_.erase(tops_.begin() + static_cast<ptrdiff_t>(k));
      found = true;
      continue;
    }
    found |= top.parent->accepting && grammar_.row(top.state).accepting;
    ++k;
  }
  return found;
}

/// The next node to visit after a refused one.
uint32_t TrieWalk::skip(const Trie& trie, const Level& above, uint32_t node) {
  if (!above.jumps) return node + trie.size[node];
  const int next = above.bytes.next(trie.byte[node] + 1);
  return next < 0 ? above.node_end : (*above.jumps)[next];
}

/// Appends the successors of a level's stack tops on a byte. Returns their configuration if they were merged.
const Configuration* TrieWalk::step(const Level& above, uint8_t byte) {
  tops_.resize(above.end);
  if (above.row) {
    stepper_.step(above.top, byte, tops_);
  } else {
    for (size_t k = above.begin; k < above.end; ++k) stepper_.step(tops_[k], byte, tops_);
  }
  if (tops_.size() - above.end <= kMergeAbove) {
    drop_equal(tops_, above.end);
    return nullptr;
  }
  merged_.assign(tops_.begin() + static_cast<ptrdiff_t>(above.end), tops_.end());
  const Configuration* all = store_.make(merged_);
  const auto kept = all->tops();
  tops_.resize(above.end);
  tops_.insert(tops_.end(), kept.begin(), kept.end());
  return all;
}

void TrieWalk::take(const Trie& trie, uint32_t node, std::span<const StackTop> tops, const Configuration* all) {
  if (trie.token[node] != kNoToken && (!admits || admits(tops, all))) trie.append_tokens(node, tokens);
}

/// Lists the tokens from a node on, if a guard there depended on more than descriptions tell.
void TrieWalk::note_undecided(const Trie& trie, uint32_t node) {
  if (admits && std::exchange(registers_.indescribable, false)) trie.append_subtree(node, undecided);
}

/// Moves a stack top within its rule, if that is its only transition.
bool TrieWalk::move_alone(const Row& row, uint8_t byte, StackTop& top) {
  const uint32_t action = row.action(byte);
  if (action & Row::kGoto) top.state = action & ~Row::kGoto;
  if (action == 0 || action & Row::kGoto) return action != 0;
  const Option* only = row.only_move(action);
  return only && stepper_.move(*only, byte, top);
}

/// Visits a child of the root, which is at depth `base`, and its subtree.
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
    const uint32_t action = above.row ? above.row->action(byte) : 0;
    if (above.row && action == 0) {
      node = skip(trie, above, node);
      continue;
    }
    const bool goes = action & Row::kGoto;
    const Option* only = above.row && !goes ? above.row->only_move(action) : nullptr;
    if (goes || only) {
      StackTop top = above.top;
      if (goes) {
        top.state = action & ~Row::kGoto;
      } else {
        const bool moved = stepper_.move(*only, byte, top);
        note_undecided(trie, node);
        if (!moved) {
          node = skip(trie, above, node);
          continue;
        }
      }
      take(trie, node, {&top, 1});
      if (deferred(trie, node, top, nullptr)) {
        node += trie.size[node];
        continue;
      }
      // A leaf needs no level.
      if (trie.size[node] > 1) {
        enter_alone(trie, node, top, above.end, levels_[depth]);
        if (above.inside) go_inside(byte, levels_[depth]);
        if (walk_run(trie, node, depth)) {
          node += trie.size[node];
          continue;
        }
      }
      ++node;
      continue;
    }
    const Configuration* all = step(above, byte);
    note_undecided(trie, node);
    if (tops_.size() == above.end) {
      node = skip(trie, above, node);
      continue;
    }
    take(trie, node, std::span(tops_).subspan(above.end), all);
    if (is_known(trie, node, above)) {
      node += trie.size[node];
      continue;
    }
    if (trie.size[node] > 1) {
      enter(trie, node, above.end, levels_[depth]);
      if (above.inside) go_inside(byte, levels_[depth]);
    }
    ++node;
  }
}

}  // namespace constrain
