// The intermediate representation that every front end compiles to: rules, whose bodies are automata over bytes and
// calls.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/automata/wildcard_region.h"
#include "engine/base/lengths.h"
#include "engine/grammar/registers.h"

namespace constrain {

class ParseTable;
class RuleBounds;
struct Configuration;

using RuleId = uint32_t;

/// A state of one rule's body; the rule chooses the numbering.
using Local = uint64_t;

/// Names a test or an update of the register of a frame; 0 is none. The rule chooses the numbering.
using Guard = uint64_t;

/// Bytes of a shortest word of each rule; `kInfinite` where a rule has none.
using Lengths = std::vector<uint64_t>;

/// As good as infinitely many different values.
inline constexpr uint64_t kManyValues = uint64_t{1} << 62;

/// What one state of a rule's body may do next.
struct Expansion {
  struct ByteEdge {
    uint8_t first, last;  ///< on any of these bytes
    Local target;
    Guard guard;
  };
  struct CallEdge {
    RuleId callee;
    Local then;  ///< the state after the callee has ended
    Guard guard;
  };
  std::vector<ByteEdge> bytes;
  std::vector<CallEdge> calls;
  bool accepting = false;  ///< the rule may end here

  void byte(uint8_t byte, Local target, Guard guard = 0) { range(byte, byte, target, guard); }
  void range(uint8_t first, uint8_t last, Local target, Guard guard = 0) {
    bytes.push_back({first, last, target, guard});
  }
  void call(RuleId callee, Local then, Guard guard = 0) { calls.push_back({callee, then, guard}); }
  void clear() { bytes.clear(), calls.clear(), accepting = false; }
};

/// A rule of a grammar. Several edges on one byte, and edges beside the end of the rule, are allowed (ambiguity); calls
/// that come back to the same rule before a byte is consumed (left recursion) are not.
///
/// A running instance of a rule is a *frame*: a state and a register, which starts as 0. A guard on an edge reads and
/// updates the register, and may refuse the edge. Every edge offered, and every guard passed, must leave some way to
/// the rule's end: that is what makes dead ends impossible.
class Rule {
 public:
  virtual ~Rule() = default;

  virtual Local start() = 0;

  /// Called before anything but `start`, `remaining` and `callees`, with every rule's shortest word; once more where
  /// a rule's `refine` changed what they are. Both arguments stay valid.
  virtual void prepare(const ParseTable& grammar, const Lengths& lengths);

  /// Called once all rules are prepared, for what can only be told from the running grammar. True where the shortest
  /// word of this rule may be longer than `remaining` said so far.
  virtual bool refine();

  /// Called once a state, under the grammar's lock. Edges out of the start state carry no guards. Calls of rules whose
  /// `lengths` entry is infinite must not be offered.
  virtual void expand(Local state, const Lengths& lengths, Expansion& out) = 0;

  /// True where a state can do nothing but end the rule; such states are never entered. The default asks `expand`.
  virtual bool final(Local state, const Lengths& lengths);

  /// Evaluates a guard on `byte`; false refuses the edge and leaves `reg` as it was. Thread-safe.
  virtual bool apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const;

  /// What is known of free text from a state on, so that masks need not look at its tokens one by one. Called under
  /// the grammar's lock.
  virtual FreeText free_text(Local state, Reg reg);

  /// Where texts over the class of `free_text`, whose room is unbounded, all leave a frame alike: moves `reg` on to
  /// what it is after a text unlike all others, and returns true. Where other texts must not be taken for it, it
  /// appends them to `exceptions`, each with the byte by which it leaves the class; where it may matter later which
  /// text it was, `indescribable` is set. Called under the grammar's lock.
  virtual bool pass_text(Local state, Reg& reg, Registers& registers, std::vector<std::string>& exceptions);

  /// Appends words that tell all that matters of a register for the next `horizon` bytes: where two frames in one state
  /// have the same description, the same texts of that length may follow within them, and they may end after the same
  /// ones. Returns false where there is no such description. The default knows no register but the initial one.
  /// Thread-safe.
  virtual bool describe(Local state, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const;

  /// The same in fewer words, which suffice as long as no guard calls Registers::consult. Returns false where there are
  /// none; so does the default. Thread-safe.
  virtual bool outline(Local state, Reg reg, std::vector<uint64_t>& out) const;

  /// A frame in state `from` may as well be in state `to` with the register it has.
  virtual bool fits(Local /*from*/, Local /*to*/) const { return false; }

  /// Bytes by which `remaining` may grow while a text stays within free text. The default knows no bound. Called under
  /// the grammar's lock.
  virtual uint64_t growth(Local state, Reg reg, const Lengths& lengths);

  /// Not 0 where states and descriptions mean the same in every rule with this number, whatever its grammar.
  virtual uint64_t portable() const { return 0; }

  /// True where guards ask for Registers::depth.
  virtual bool uses_depth() const { return false; }

  /// Fewest bytes from a state to the rule's end, given every rule's shortest word (a lower bound is not enough: the
  /// result must be reachable, or infinite). Called under the grammar's lock.
  virtual uint64_t remaining(Local state, Reg reg, const Lengths& lengths) = 0;

  /// Bytes that shortest ends may well go on with, for those who look for one. Called under the grammar's lock.
  virtual ByteSet likely(Local /*state*/, Reg /*reg*/) { return ByteSet::all(); }

  /// False where a text may need a few bytes more than `remaining` says.
  virtual bool measures_exactly() const { return true; }

  /// Most bytes that `remaining` may tell of a frame, whatever its state and register. For rules without callees only
  /// the states need to count that some mask has met. Others with a bound have texts that begin with an opening
  /// bracket; for those whose frames end with what they call it is 0. The default knows no bound. Called under the
  /// grammar's lock.
  virtual uint64_t most_remaining(RuleBounds& bounds);

  /// The configuration that is followed in the register, above the frame, or null. None where it has come so far that
  /// `most_remaining` need not hold.
  virtual std::optional<const Configuration*> inside(Local /*state*/, Reg /*reg*/) const { return nullptr; }

  /// Bytes, more than a shortest end takes, within which texts of the rule end, wherever they are, that have more
  /// different values than RuleBounds::kItems, or all the values that there are. The default knows no bound. Called
  /// under the grammar's lock.
  virtual uint64_t most_to_differ(RuleBounds& bounds);

  /// A number of different values (JSON values, however spelled) that can still be read from a state to the rule's end;
  /// there may be more. At least 1. Called under the grammar's lock.
  virtual uint64_t variety(Local state, Reg reg, const ParseTable& grammar);

  /// Rules that this one may call, for the search of shortest words.
  virtual std::vector<RuleId> callees() const { return {}; }
};

/// Rules by number.
struct Grammar {
  std::vector<std::unique_ptr<Rule>> rules;
  RuleId root = 0;

  RuleId add(std::unique_ptr<Rule> rule) {
    rules.push_back(std::move(rule));
    return static_cast<RuleId>(rules.size() - 1);
  }

  /// Least fixpoint of Rule::remaining at the start states: shortest word of every rule, infinite for uninhabited ones.
  Lengths shortest_words() const;
};

}  // namespace constrain
