// Registers of frames: counters as plain numbers, anything larger as interned words.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory_resource>
#include <span>
#include <unordered_set>

#include "engine/base/arena.h"
#include "engine/grammar/footprint.h"

namespace constrain {

class ConfigurationStore;

/// Register of a frame: a number, or a handle from Registers::make. Starts as 0.
using Reg = uint64_t;

/// Makes immutable register values out of words. An interning store returns one handle for equal words; a scratch store
/// only copies, for values that are dropped at the end of one mask.
class Registers {
 public:
  Registers(Arena& arena, bool interning) : arena_(arena), interning_(interning) {}

  /// Stores an array, whose size the compiler knows, or any other list of words.
  template <class Words>
  Reg make(const Words& list) {
    const std::span words(list);
    return interning_ ? intern(words) : copy(words, kTemporary);
  }

  /// Parent frames of the one whose guard is evaluated.
  uint32_t depth = 0;

  /// Recorder of what guards ask for; may be null.
  Footprint* footprint = nullptr;

  /// Records that a guard's outcome depends on more of the register than MaskHints::outline tells.
  void consult(const Rule* rule) {
    if (footprint) footprint->consult(rule, depth);
  }

  bool interning() const { return interning_; }

  /// Parent frames of an embedded configuration, if a register is evaluated within one.
  uint32_t base = 0;

  /// Number of registers that embed the configuration, one within the other.
  uint32_t nesting = 0;

  /// Store for configurations that registers embed.
  ConfigurationStore* configurations = nullptr;

  /// True while values are searched: guards need not ensure that one exists.
  bool searching = false;

  /// True while only completions matter: guards may identify values with equal shortest completions. A guard whose
  /// outcome may depend on the difference sets `indescribable`.
  bool only_endings = false;

  /// Set by a guard whose outcome depends on something that MaskHints::describe leaves out.
  bool indescribable = false;

  /// Words of a handle from `make`.
  static std::span<const uint64_t> words(Reg reg) {
    const auto* data = reinterpret_cast<const uint64_t*>(reg);
    return {data, data[-1] & ~kTemporary};
  }

  /// True if the handle comes from a scratch store.
  static bool is_temporary(Reg reg) { return reinterpret_cast<const uint64_t*>(reg)[-1] & kTemporary; }

 private:
  static constexpr uint64_t kTemporary = uint64_t{1} << 63;  // a flag in the word that holds the size

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
  std::pmr::monotonic_buffer_resource memory_;  // large sets are dropped at once
  std::pmr::unordered_set<Entry, Hash> entries_{&memory_};
};

}  // namespace constrain
