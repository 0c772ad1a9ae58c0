// The parse state of a text: a set of stacks of frames, stored as a graph whose nodes are shared.
#pragma once

#include <algorithm>
#include <limits>
#include <memory_resource>
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "engine/base/arena.h"
#include "engine/grammar/parse_table.h"
#include "engine/grammar/registers.h"

namespace constrain {

struct Configuration;

/// Top frame of one stack. `parent` holds the frames that wait for this one to end; nullptr at the bottom.
struct StackTop {
  StateId state;
  Reg reg;
  const Configuration* parent;

  /// Height of the tallest stack below this frame.
  uint32_t parent_depth() const;

  bool operator==(const StackTop&) const = default;
};

/// An immutable set of stacks: a graph-structured stack whose nodes are shared (Tomita 1987).
struct Configuration {
  uint32_t count;
  uint32_t depth;  ///< frames of the tallest stack
  uint64_t hash;
  bool accepting;  ///< the text so far is in the language

  std::span<const StackTop> tops() const { return {reinterpret_cast<const StackTop*>(this + 1), count}; }
};

inline uint32_t StackTop::parent_depth() const { return parent ? parent->depth : 0; }

/// Makes configurations. An interning store returns one address for equal sets; a scratch store only copies.
class ConfigurationStore {
 public:
  ConfigurationStore(const ParseTable& grammar, Arena& arena, bool interning)
      : grammar_(grammar), arena_(arena), interning_(interning), max_work_(grammar.limits().max_work) {}

  /// Returns the set of these stack tops, and reorders `tops`. Stack tops that agree in state and register are merged
  /// over the union of their parents. Throws ResourceLimit if the set or a stack grows beyond the limits.
  const Configuration* make(std::vector<StackTop>& tops);
  const Configuration* make(const StackTop& top) { return store({&top, 1}); }

  /// Returns a placeholder for `depth` unknown frames. A stack that pops into it shows as a stack top in kDone.
  const Configuration* make_bottom(uint32_t depth);

  /// Restarts the count of frames made for one byte or one mask, or resumes it at `work`. Beyond `max_work`, that
  /// of Limits unless it was set, `charge` throws ResourceLimit.
  void start_work(uint64_t work = 0) { work_ = work, lowest_ = std::numeric_limits<uint32_t>::max(); }
  uint64_t work() const { return work_; }
  void charge(uint64_t frames) {
    work_ += frames;
    if (work_ > max_work_) refuse_work();
  }
  uint64_t max_work() const { return max_work_; }
  void set_max_work(uint64_t frames) { max_work_ = frames; }

  /// Records that the result depends on the frames of this set.
  void consult(const Configuration& configuration) { lowest_ = std::min(lowest_, configuration.depth); }
  /// Smallest depth of a set consulted since `start_work`.
  uint32_t lowest() const { return lowest_; }

 private:
  struct Equal {
    bool operator()(const Configuration* a, const Configuration* b) const;
  };
  struct Hash {
    size_t operator()(const Configuration* c) const { return c->hash; }
  };
  const Configuration* store(std::span<const StackTop> tops);
  [[noreturn]] void refuse_work() const;

  const ParseTable& grammar_;
  Arena& arena_;
  bool interning_;
  uint64_t max_work_;
  uint64_t work_ = 0;
  uint32_t lowest_ = std::numeric_limits<uint32_t>::max();
  std::pmr::monotonic_buffer_resource memory_;  // large sets are dropped at once
  std::pmr::unordered_set<const Configuration*, Hash, Equal> interned_{&memory_};
};

/// Advances stack tops over bytes.
class Stepper {
 public:
  Stepper(const ParseTable& grammar, ConfigurationStore& store, Registers& registers)
      : grammar_(grammar), store_(store), registers_(registers) {
    registers.configurations = &store;
  }

  /// Appends every successor of `top` on `byte` to `out`. `self` is the configuration of `top` alone, if there is one:
  /// a frame that is in the same state after what it calls, as in a repetition, need not be made again.
  void step(StackTop top, uint8_t byte, std::vector<StackTop>& out, const Configuration* self = nullptr) {
    const Row& row = grammar_.row(top.state);
    const uint32_t action = row.action(byte);
    if (action & Row::kGoto) {
      out.push_back({action & ~Row::kGoto, top.reg, top.parent});
    } else if (action) {
      for (const Option& option : row.lists[action - 1]) take(option, top, byte, out, self);
    }
    if (row.accepting && top.parent) step_parent(top.parent, byte, out);
  }

  /// Advances a configuration over bytes; nullptr if it does not accept them. Each byte may take the work of a step.
  const Configuration* advance(const Configuration& from, std::string_view bytes);
  const Configuration* advance(const Configuration& from, uint8_t byte) {
    const auto character = static_cast<char>(byte);
    return advance(from, {&character, 1});
  }

  /// Moves a stack top by an option that stays in its frame; false if the guard refuses.
  bool move(const Option& option, uint8_t byte, StackTop& top) {
    if (!allows(option, top, byte, top.reg)) return false;
    top.state = option.target;
    return true;
  }

  /// Replaces registers by those that stand for all with the same shortest completions.
  void forget(std::vector<StackTop>& tops) {
    for (StackTop& top : tops) top.reg = grammar_.ending(top.state, top.reg, registers_);
  }

 private:
  bool allows(const Option& option, const StackTop& top, uint8_t byte, Reg& reg) {
    if (!option.guard) return true;
    registers_.depth = registers_.base + top.parent_depth();
    return grammar_.apply(top.state, option.guard, byte, reg, registers_);
  }
  void take(const Option& option, const StackTop& top, uint8_t byte, std::vector<StackTop>& out,
            const Configuration* self);
  void step_parent(const Configuration* parent, uint8_t byte, std::vector<StackTop>& out);
  void release(const Configuration* parent, std::vector<StackTop>& out);

  const ParseTable& grammar_;
  ConfigurationStore& store_;
  Registers& registers_;
  std::vector<StackTop> tops_, next_;  // of `advance`
};

}  // namespace constrain
