// Values that frames carry beside their state: counters as plain numbers, anything larger as interned words.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <unordered_set>

#include "engine/base/arena.h"
#include "engine/grammar/footprint.h"

namespace constrain {

class ConfigurationStore;

/// A register: a number, or a handle from Registers::intern. 0 is the initial value of every frame.
using Reg = uint64_t;

/// Makes immutable register values out of words. In an interning store equal words give equal handles; a scratch store
/// only copies, for values that are thrown away at the end of one mask.
class Registers {
 public:
  Registers(Arena& arena, bool interning) : arena_(arena), interning_(interning) {}

  /// Of an array, whose size is known to the compiler, or of any number of words.
  template <class Words>
  Reg make(const Words& list) {
    const std::span words(list);
    return interning_ ? intern(words) : copy(words, kTemporary);
  }

  /// Frames below the one whose guard is being evaluated.
  uint32_t depth = 0;

  /// Where it is recorded what guards ask for; may be null.
  Footprint* footprint = nullptr;

  /// To be called by a guard whose outcome depends on more of the register than MaskHints::outline tells.
  void consult(const Rule* rule) {
    if (footprint) footprint->consult(rule, depth);
  }

  bool interning() const { return interning_; }

  /// Frames below the configurations that are being followed, where a register of another one holds them.
  uint32_t base = 0;

  /// How many registers such a configuration is in, one in the other.
  uint32_t nesting = 0;

  /// Where the configurations are made that guards follow in their registers.
  ConfigurationStore* configurations = nullptr;

  /// Configurations are followed in search of some value: guards need not see to it that there is one.
  bool searching = false;

  /// Guards may take values for one another that texts have the same shortest end after. Where the outcome of one may
  /// depend on which it was, it sets `indescribable`.
  bool only_endings = false;

  /// Set by a guard whose outcome depended on something that MaskHints::describe does not tell.
  bool indescribable = false;

  /// The words of a handle that `make` returned.
  static std::span<const uint64_t> words(Reg reg) {
    const auto* data = reinterpret_cast<const uint64_t*>(reg);
    return {data, data[-1] & ~kTemporary};
  }

  /// Whether a handle comes from a scratch store.
  static bool is_temporary(Reg reg) { return reinterpret_cast<const uint64_t*>(reg)[-1] & kTemporary; }

 private:
  static constexpr uint64_t kTemporary = uint64_t{1} << 63;  // beside the size, in front of the words

  struct Entry {
    const uint64_t* words;
    size_t size;
    bool operator==(const Entry& other) const {
      return size == other.size && std::memcmp(words, other.words, size * sizeof(uint64_t)) == 0;
    }
  };
  struct Hash {
    size_t operator()(const Entry& entry) const {
      uint64_t hash = 0x9E3779B97F4A7C15ull;
      for (size_t i = 0; i < entry.size; ++i)
        hash = (hash ^ entry.words[i]) * 0xBF58476D1CE4E5B9ull, hash ^= hash >> 29;
      return hash;
    }
  };
  static Reg handle(const uint64_t* words) { return reinterpret_cast<Reg>(words); }

  Reg intern(std::span<const uint64_t> words) {
    if (auto it = entries_.find({words.data(), words.size()}); it != entries_.end()) return handle(it->words);
    const Reg made = copy(words, 0);
    entries_.insert({reinterpret_cast<const uint64_t*>(made), words.size()});
    return made;
  }

  template <size_t kSize>
  Reg copy(std::span<const uint64_t, kSize> words, uint64_t flag) {
    auto* made = arena_.allocate<uint64_t>(words.size() + 1);
    made[0] = words.size() | flag;
    std::memcpy(made + 1, words.data(), words.size_bytes());
    return handle(made + 1);
  }

  Arena& arena_;
  bool interning_;
  std::unordered_set<Entry, Hash> entries_;
};

}  // namespace constrain
