// Optional knowledge of rules: hints that make masks cheap, and hints about how far completions reach.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/automata/wildcard_finder.h"
#include "engine/base/lengths.h"
#include "engine/grammar/registers.h"
#include "engine/text/sorted_words.h"

namespace constrain {

class ParseTable;
class RuleBounds;
struct Configuration;

using RuleId = uint32_t;

/// A state of one rule's body; the rule chooses the numbering.
using Local = uint64_t;

/// Bytes of a shortest word of each rule; `kInfinite` if a rule has none.
using Lengths = std::vector<uint64_t>;

/// Stands for infinitely many different values.
inline constexpr uint64_t kManyValues = uint64_t{1} << 62;

/// Lets masks be cached and built from shared parts. A rule without hints still gets exact masks: they are walked, and
/// cached only while its register is 0.
class MaskHints {
 public:
  virtual ~MaskHints() = default;

  /// The wildcard region at a state, whose tokens need not be walked one by one. Called under the grammar's lock.
  virtual WildcardRegion wildcard_region(Local /*state*/, Reg /*reg*/) { return {}; }

  /// Moves `reg` over an arbitrary text of the wildcard region, if that is unbounded and all its texts leave the frame
  /// alike; else returns false. Texts that behave differently are appended to `exceptions`, each with the byte by which
  /// it leaves the region. Sets `indescribable` if it may matter later which text it was. Called under the grammar's
  /// lock.
  virtual bool skip_wildcard(Local /*state*/, Reg& /*reg*/, Registers& /*registers*/,
                             std::vector<std::string>& /*exceptions*/) {
    return false;
  }

  /// The words of which the frame is to read one, if it can only read these; none by default. Thread-safe.
  virtual std::optional<OpenWords> open_words(Local /*state*/, Reg /*reg*/) const { return {}; }

  /// Appends a cache key of the frame: frames of one state with equal keys accept the same texts of up to `horizon`
  /// bytes, and may end after the same ones. Returns false if there is no such key. The default knows register 0 only.
  /// Thread-safe.
  virtual bool describe(Local /*state*/, Reg reg, uint64_t /*horizon*/, std::vector<uint64_t>& /*out*/) const {
    return reg == 0;
  }

  /// Appends a shorter key, valid as long as no guard calls Registers::consult. Returns false if there is none, as by
  /// default. Thread-safe.
  virtual bool outline(Local /*state*/, Reg /*reg*/, std::vector<uint64_t>& /*out*/) const { return false; }

  /// True if a frame in state `from` may be moved to state `to` with its register as it is.
  virtual bool shares_registers(Local /*from*/, Local /*to*/) const { return false; }

  /// True if two registers of frames between which registers may be moved are the same, also where a scratch store made
  /// both.
  virtual bool same_register(Reg one, Reg other) const { return one == other; }

  /// Identifies rules whose states and descriptions mean the same in every grammar; 0 if they do not.
  virtual uint64_t portable_id() const { return 0; }

  /// True if guards read Registers::depth.
  virtual bool uses_depth() const { return false; }
};

/// Bounds completions, for masks under a token budget and for items that must differ. All but `embedded` are called
/// under the grammar's lock. The defaults know no bound.
class CompletionHints {
 public:
  virtual ~CompletionHints() = default;

  /// Most bytes by which `Rule::remaining` may grow while a text stays in the wildcard region.
  virtual uint64_t max_growth(Local /*state*/, Reg /*reg*/, const Lengths& /*lengths*/) { return kInfinite; }

  /// Bytes that shortest completions are likely to start with, for searches to try first.
  virtual ByteSet likely_bytes(Local /*state*/, Reg /*reg*/) { return ByteSet::all(); }

  /// Bytes that shortest completions start with which have been found before, for searches to try before all others.
  virtual ByteSet known_bytes(Local /*state*/, Reg /*reg*/) { return {}; }

  /// False if a completion may need a few bytes more than `Rule::remaining` says.
  virtual bool is_remaining_exact() const { return true; }

  /// False if a completion may need fewer bytes than `Rule::remaining` says.
  virtual bool is_remaining_least() const { return true; }

  /// Most bytes that `Rule::remaining` may return, over all states and registers. Rules without callees need to count
  /// only the states that some mask has met. Rules with callees have texts that begin with an opening bracket, unless
  /// `nested_calls` lists these; where the frame ends with what it calls, the bound is 0.
  virtual uint64_t max_remaining(RuleBounds& /*bounds*/) { return kInfinite; }

  /// A call of a rule whose texts need not begin with a bracket.
  struct NestedCall {
    RuleId callee;
    uint64_t rest;  ///< bytes that the frame needs after the call
    ByteSet first;  ///< first bytes of texts of the frame that lead to the call, and through it if it comes first
    bool leading;   ///< the call comes first, which is never recursive
  };

  /// All calls of a rule with calls of that kind; none for other rules.
  virtual std::vector<NestedCall> nested_calls(RuleBounds& /*bounds*/) const { return {}; }

  /// Bytes that a frame may need after the next token.
  struct Outlay {
    uint64_t rest;   ///< ... besides what the token begins; kInfinite if there is no bound
    uint64_t begun;  ///< ... for a member or an item that it begins
    bool opens;      ///< the token may open frames instead of that

    uint64_t with(uint64_t opened) const { return add_lengths(rest, std::max(begun, opens ? opened : 0)); }
  };

  /// Bounds what a frame that needs `now` bytes may need after the next token, which may have begun the frame, or ended
  /// what it called. `rest` is 0 where the frame ends with what it calls.
  virtual Outlay max_outlay(Local /*state*/, Reg /*reg*/, uint64_t /*now*/, RuleBounds& /*bounds*/) {
    return {kInfinite, 0, true};
  }

  /// The configuration that the register follows on top of the frame, or null; none once `max_remaining` need not hold.
  /// Thread-safe.
  virtual std::optional<const Configuration*> embedded(Local /*state*/, Reg /*reg*/) const { return nullptr; }

  /// A frame that embeds a configuration, as if it had called a rule: the configuration, and the frame that waits for
  /// it.
  struct Call {
    const Configuration* inside;
    Local then;
    Reg reg;
  };

  /// The frame as a call, while only completions matter; none if what it embeds makes a difference to it. Thread-safe.
  virtual std::optional<Call> as_call(Local /*state*/, Reg /*reg*/, Registers& /*registers*/) const { return {}; }

  /// A register that has the same shortest completions, and stands for all that have. Thread-safe.
  virtual Reg ending(Local /*state*/, Reg reg, Registers& /*registers*/) const { return reg; }

  /// Most bytes, beyond a shortest completion, within which texts of the rule end that have more different values than
  /// RuleBounds::kItems, or all the values there are. Holds wherever the text stands.
  virtual uint64_t max_to_differ(RuleBounds& /*bounds*/) { return kInfinite; }

  /// A lower bound, at least 1, on the number of different JSON values that texts from a state to the rule's end have.
  virtual uint64_t count_values(Local /*state*/, Reg /*reg*/, const ParseTable& /*grammar*/) { return 1; }
};

}  // namespace constrain
