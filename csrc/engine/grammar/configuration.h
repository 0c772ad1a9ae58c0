// Everything a matcher knows after some bytes: a set of stacks of frames, shared with every other set they occur in.
#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <unordered_set>
#include <vector>

#include "engine/base/arena.h"
#include "engine/grammar/parse_table.h"
#include "engine/grammar/registers.h"

namespace constrain {

struct Configuration;

/// The top of one stack. `below` holds the frames that wait for this one to end; nullptr at the bottom.
struct Head {
  StateId state;
  Reg reg;
  const Configuration* below;

  /// Frames of the highest stack below.
  uint32_t depth_below() const;

  bool operator==(const Head&) const = default;
};

/// An immutable set of stacks: a graph-structured stack whose nodes are shared (Tomita 1987).
struct Configuration {
  uint32_t count;
  uint32_t depth;  ///< frames of the highest stack
  uint64_t hash;
  bool accepting;  ///< the text so far is complete

  std::span<const Head> heads() const { return {reinterpret_cast<const Head*>(this + 1), count}; }
};

inline uint32_t Head::depth_below() const { return below ? below->depth : 0; }

/// Makes configurations. An interning store gives equal sets the same address; a scratch store only copies.
class ConfigurationStore {
 public:
  ConfigurationStore(const ParseTable& grammar, Arena& arena, bool interning)
      : grammar_(grammar), arena_(arena), interning_(interning) {}

  /// The set of these heads. Heads that agree in state and register become one, over the union of what is below them.
  /// Reorders `heads`. Throws ResourceLimit where the set or a stack grows beyond the limits.
  const Configuration* make(std::vector<Head>& heads);
  const Configuration* make(const Head& head) { return store({&head, 1}); }

  /// A set that stands for `depth` frames of which nothing is known; whatever comes to it is seen as a head in kDone.
  const Configuration* make_bottom(uint32_t depth);

  /// Starts to count the frames of one byte or one mask anew, or goes on where that was left at `work`. Beyond
  /// Limits::max_work ResourceLimit is thrown.
  void start_work(uint64_t work = 0) { work_ = work, lowest_ = std::numeric_limits<uint32_t>::max(); }
  uint64_t work() const { return work_; }
  void charge(uint64_t frames) {
    work_ += frames;
    if (work_ > grammar_.limits().max_work) refuse_work();
  }

  /// Notes that what happens depends on the frames of this set.
  void consult(const Configuration& configuration) { lowest_ = std::min(lowest_, configuration.depth); }
  /// The smallest depth of a set that was consulted since `start_work`.
  uint32_t lowest() const { return lowest_; }

 private:
  struct Equal {
    bool operator()(const Configuration* a, const Configuration* b) const;
  };
  struct Hash {
    size_t operator()(const Configuration* c) const { return c->hash; }
  };
  const Configuration* store(std::span<const Head> heads);
  [[noreturn]] void refuse_work() const;

  const ParseTable& grammar_;
  Arena& arena_;
  bool interning_;
  uint64_t work_ = 0;
  uint32_t lowest_ = std::numeric_limits<uint32_t>::max();
  std::unordered_set<const Configuration*, Hash, Equal> known_;
};

/// Moves heads over bytes.
class Stepper {
 public:
  Stepper(const ParseTable& grammar, ConfigurationStore& store, Registers& registers)
      : grammar_(grammar), store_(store), registers_(registers) {
    registers.configurations = &store;
  }

  /// Appends to `out` every head that `head` may become on `byte`.
  void step(Head head, uint8_t byte, std::vector<Head>& out) {
    const Row& row = grammar_.row(head.state);
    const uint32_t action = row.action[byte];
    if (action & Row::kGoto) {
      out.push_back({action & ~Row::kGoto, head.reg, head.below});
    } else if (action) {
      for (const Option& option : row.lists[action - 1]) take(option, head, byte, out);
    }
    if (row.accepting && head.below) step_below(head.below, byte, out);
  }

  /// Moves a head by an option that stays; false where the option is refused.
  bool move(const Option& option, uint8_t byte, Head& head) {
    if (!allows(option, head, byte, head.reg)) return false;
    head.state = option.target;
    return true;
  }

 private:
  bool allows(const Option& option, const Head& head, uint8_t byte, Reg& reg) {
    if (!option.guard) return true;
    registers_.depth = registers_.base + head.depth_below();
    return grammar_.apply(head.state, option.guard, byte, reg, registers_);
  }
  void take(const Option& option, const Head& head, uint8_t byte, std::vector<Head>& out);
  void step_below(const Configuration* below, uint8_t byte, std::vector<Head>& out);
  void release(const Configuration* below, std::vector<Head>& out);

  const ParseTable& grammar_;
  ConfigurationStore& store_;
  Registers& registers_;
};

}  // namespace constrain
