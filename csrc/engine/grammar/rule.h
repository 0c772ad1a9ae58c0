// The intermediate representation that every front end compiles to: rules, whose bodies are automata over bytes and
// calls.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/grammar/registers.h"
#include "engine/grammar/rule_hints.h"

namespace constrain {

/// Names a test or an update of a frame's register; 0 is none. The rule chooses the numbering.
using Guard = uint64_t;

/// The edges out of one state of a rule's body.
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
  /// Another state, all of whose edges this one has as well, except on bytes for which it has its own, one each. The
  /// state after a call that may be empty has its own edges only on bytes on which the other has none.
  std::optional<Local> like;
  /// If not 0, the state is within a run of white space, after which the frame is in `like`. Its own edges, unguarded,
  /// lead to states that are like the same; states with equal `run` have the same ones, whatever their rule.
  uint32_t run = 0;

  void byte(uint8_t byte, Local target, Guard guard = 0) { range(byte, byte, target, guard); }
  void range(uint8_t first, uint8_t last, Local target, Guard guard = 0) {
    bytes.push_back({first, last, target, guard});
  }
  void call(RuleId callee, Local then, Guard guard = 0) { calls.push_back({callee, then, guard}); }
  void be_like(Local other, uint32_t within = 0) { like = other, run = within; }
  void clear() { bytes.clear(), calls.clear(), accepting = false, like.reset(), run = 0; }
};

/// A rule of a grammar. The edges of a state may overlap with each other and with the rule's end (ambiguity). A call
/// that reaches the same rule before a byte is consumed (left recursion) is not allowed.
///
/// A running instance of a rule is a *frame*: a state and a register, which starts as 0. A guard on an edge reads and
/// updates the register, and may refuse the edge. Every edge offered, and every guard passed, must leave some way to
/// the rule's end: that is what makes dead ends impossible.
class Rule {
 public:
  virtual ~Rule() = default;

  virtual Local start() = 0;

  /// Receives the shortest word of every rule when the rule is first reached, before any call but `start`, `remaining`,
  /// `add_callees`, `refine` and properties of the rule as a whole; again if some `refine` changed these words. Both
  /// arguments stay valid. Called under the grammar's lock.
  virtual void prepare(const ParseTable& /*grammar*/, const Lengths& /*lengths*/) {}

  /// Computes what needs the running grammar. Returns true if this rule's shortest word may be longer than `remaining`
  /// said so far.
  virtual bool refine(const ParseTable& /*grammar*/, const Lengths& /*lengths*/) { return false; }

  /// Lists the edges of a state. Called once a state, under the grammar's lock. Edges out of the start state carry no
  /// guards. Calls of rules whose `lengths` entry is infinite must not be offered.
  virtual void expand(Local state, const Lengths& lengths, Expansion& out) = 0;

  /// True if a state can only end the rule; such states are never entered. The default asks `expand`.
  virtual bool is_final(Local state, const Lengths& lengths);

  /// Evaluates a guard on `byte`; false refuses the edge and leaves `reg` as it was. Thread-safe.
  virtual bool apply(Guard /*guard*/, uint8_t /*byte*/, Reg& /*reg*/, Registers& /*registers*/) const { return true; }

  /// Fewest bytes from a state to the rule's end, given every rule's shortest word. Must be reachable, or infinite: a
  /// lower bound is not enough. Called under the grammar's lock.
  virtual uint64_t remaining(Local state, Reg reg, const Lengths& lengths) = 0;

  /// Appends the rules that this one may call.
  virtual void add_callees(std::vector<RuleId>& /*out*/) const {}
  std::vector<RuleId> callees() const;

  /// The rules whose union this one is; empty if it is something else.
  virtual std::span<const RuleId> union_of() const { return {}; }

  virtual MaskHints& mask_hints();
  virtual CompletionHints& completion_hints();
};

/// Rules by number.
struct Grammar {
  std::vector<std::unique_ptr<Rule>> rules;
  RuleId root = 0;

  RuleId add(std::unique_ptr<Rule> rule) {
    rules.push_back(std::move(rule));
    return static_cast<RuleId>(rules.size() - 1);
  }

  /// Shortest word of every rule, infinite for uninhabited ones: the least fixpoint of Rule::remaining at the starts.
  Lengths shortest_words() const;
};

}  // namespace constrain
