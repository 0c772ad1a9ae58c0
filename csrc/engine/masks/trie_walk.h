// Runs a set of parse threads over a trie of tokens.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "engine/grammar/configuration.h"
#include "engine/masks/compiled_grammar.h"
#include "engine/masks/frame_tokens.h"
#include "engine/tokens/trie.h"

namespace constrain {

/// Working memory of walks.
struct WalkScratch {
  /// The parse threads at one depth of the trie.
  struct Level {
    const Row* row;  ///< row of `top`, if that is the only parse thread and cannot leave its rule
    StackTop top;
    size_t begin, end;  ///< the other parse threads as a range of `tops`, so that backtracking only moves an index
    const Trie::Jumps* jumps;  ///< child table of the node, if it has one
    ByteSet bytes;             ///< bytes on which some parse thread may go on, if there is a child table
    uint32_t node_end;         ///< end of the node's subtree
    bool inside;               ///< only bytes in `likely` are followed
    ByteSet likely;
    StackTop beside;  ///< the other frame, see `TrieWalk::run_beside`
  };
  Arena arena;
  std::vector<StackTop> tops, merged;
  std::vector<Level> levels;
  std::vector<TokenId> tokens, differing;
  std::vector<uint32_t> boundary_nodes;
};

/// Walks a trie with parse threads, and collects the tokens that they accept.
class TrieWalk {
 public:
  /// An interning walk gives equal configurations equal addresses, for callers that cache by address.
  TrieWalk(const CompiledGrammar& grammar, WalkScratch& scratch, bool interning = false);
  ~TrieWalk();
  TrieWalk(const TrieWalk&) = delete;
  TrieWalk& operator=(const TrieWalk&) = delete;

  /// Visits the strings below `root` that may follow `from`, the stack tops after the string of `root`, and appends
  /// their tokens to `tokens`. Visits only children of `root` whose byte is in `first`.
  void run(const Trie& trie, uint32_t root, std::span<const StackTop> from, const ByteSet& first = ByteSet::all());

  /// Like `run` from the root, but follows only bytes that shortest completions are likely to take, up to and including
  /// the first byte that is not `inside`.
  void run_likely(const Trie& trie, std::span<const StackTop> from, const ByteSet& inside);

  /// Like `run`, for the rests of tokens at `exits`.
  void run_exits(const Exits& exits, std::span<const StackTop> from);

  /// Like `run`, for a single frame with `depth` unknown parents. Appends to `boundary_nodes` the nodes at which the
  /// frame may be over, whose subtrees the parents decide about, and to `entered` what `known` told.
  void run_alone(const Trie& trie, const StackTop& top, uint32_t depth, uint32_t root = 0);

  /// Like `run_alone`, but leaves out strings after which a frame that starts in `beside` goes on in the same way.
  /// Appends to `differing` the tokens of all other strings. Gives up, and returns false, after `limit` nodes.
  bool run_beside(const Trie& trie, StateId state, StateId beside, Reg reg, uint32_t depth, uint64_t limit);

  /// Records that the result depends on the frames of a configuration.
  void consult(const Configuration& configuration) { store_.consult(configuration); }

  /// Smallest depth of a configuration that was consulted.
  uint32_t lowest() const { return store_.lowest(); }

  /// Sets the recorder of what guards ask of frames.
  void record(Footprint& footprint) { registers_.footprint = &footprint; }

  /// True if the result depends on more than the descriptions of frames tell.
  bool indescribable() const { return registers_.indescribable; }

  /// Store of the walk's configurations.
  ConfigurationStore& store() { return store_; }
  const ConfigurationStore& store() const { return store_; }
  Registers& registers() { return registers_; }

  /// Filter on the stack tops after a token, which are those of a configuration if that is not null; empty: all tokens
  /// are collected.
  std::function<bool(std::span<const StackTop>, const Configuration*)> admits;

  /// Where `admits` is set: tokens with a guard whose outcome depends on more than descriptions tell.
  std::vector<TokenId> undecided;

  /// Tokens of the vocabulary's trie below a node, where `run_alone` enters another frame, over which that frame goes
  /// on; null: they are walked. May be empty.
  std::function<FrameTokensPtr(uint32_t node, const StackTop& top)> known;

  /// Asked where the first byte of many strings leads, within the frame, and the other frame of `run_beside`, or null;
  /// true if the tokens below are found elsewhere. May be empty.
  std::function<bool(const Trie& trie, uint32_t node, const StackTop&, const StackTop* beside)> defers;

  /// A frame that `known` knew, and its parents.
  struct Entered {
    FrameTokensPtr tokens;
    const Configuration* parents;
  };
  std::vector<Entered> entered;

  std::vector<TokenId>& tokens;
  std::vector<TokenId>& differing;
  std::vector<uint32_t>& boundary_nodes;
  uint64_t visited = 0;  ///< trie nodes

 private:
  using Level = WalkScratch::Level;

  void start_alone(const Trie& trie, const StackTop& top, uint32_t depth, uint32_t root = 0);
  void walk_words(const Trie& trie, uint32_t root, const OpenWords& open);
  void walk_exits(const Exits& exits, std::span<const StackTop> from);
  void visit(const Trie& trie, std::span<const Exits::Exit> exits, const ByteSet& bytes, size_t depth);
  bool walk_run(const Trie& trie, uint32_t node, size_t depth);
  bool is_known(const Trie& trie, uint32_t node, const Level& above);
  void walk(const Trie& trie, uint32_t child, size_t base);
  bool deferred(const Trie& trie, uint32_t node, const StackTop& top, const StackTop* beside);
  void set_beside(const StackTop& other, Level& level) const;
  bool walk_beside(const Trie& trie, uint32_t node);
  template <class Visit>
  void for_each_child(const Trie& trie, uint32_t root, const ByteSet& first, const Visit& visit);
  void enter(const Trie& trie, uint32_t node, size_t begin, Level& made);
  void enter_alone(const Trie& trie, uint32_t node, const StackTop& top, size_t begin, Level& made);
  void go_inside(uint8_t byte, Level& made) const;
  ByteSet likely_bytes(const Level& level) const;
  bool move_alone(const Row& row, uint8_t byte, StackTop& top);
  const Configuration* step(const Level& above, uint8_t byte);
  void take(const Trie& trie, uint32_t node, std::span<const StackTop> tops, const Configuration* all = nullptr);
  void note_undecided(const Trie& trie, uint32_t node);
  bool drop_at_boundary(size_t begin);
  void collect(const Configuration& configuration, ByteSet& bytes);
  void collect(const StackTop& top, ByteSet& bytes);
  static uint32_t skip(const Trie& trie, const Level& above, uint32_t node);

  const CompiledGrammar& grammar_;
  Registers registers_;
  ConfigurationStore store_;
  Stepper stepper_;
  std::vector<StackTop>&tops_, &merged_;
  std::vector<Level>& levels_;
  WalkScratch& scratch_;
  const Configuration* bottom_ = nullptr;  // stands for the unknown parents
  ByteSet inside_;                         // see `run_likely`
};

}  // namespace constrain
