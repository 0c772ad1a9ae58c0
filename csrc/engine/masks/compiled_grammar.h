// A grammar ready to run over one vocabulary: its parse table, and the caches that its masks share.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>

#include "engine/grammar/parse_table.h"
#include "engine/masks/frame_tokens.h"
#include "engine/tokens/vocabulary.h"

namespace constrain {

/// An entry of the mask cache: a mask, or how its key continues.
struct CachedMask {
  enum class Next : uint8_t {
    done,    ///< `mask` is the answer
    fully,   ///< append the full descriptions of the frames whose outlines came last
    parents  ///< append the outlines of the parent frames
  };
  Next next = Next::done;
  MaskPtr mask;
};

/// Masks by the descriptions of the frames they depend on, from the stack top down.
using MaskCache = LruCache<CachedMask>;

/// Counts of the work done for masks, for profiling.
struct MaskCounters {
  std::atomic<uint64_t> found{0};         ///< hits of the mask cache
  std::atomic<uint64_t> built{0};         ///< misses
  std::atomic<uint64_t> frame_tokens{0};  ///< frames whose context-independent tokens were computed
  std::atomic<uint64_t> visited{0};       ///< trie nodes visited
};

/// State that a later stage shares between all matchers of a grammar, and that counts towards its memory.
class SharedStage {
 public:
  virtual ~SharedStage() = default;
  virtual size_t bytes() const = 0;
};

/// An immutable language over a vocabulary. Threads share it.
class CompiledGrammar : public ParseTable {
 public:
  /// Throws EmptyLanguage.
  CompiledGrammar(Grammar grammar, std::shared_ptr<const Vocabulary> vocabulary, const Limits& limits);

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  std::shared_ptr<const Vocabulary> shared_vocabulary() const { return vocabulary_; }

  /// True if no text takes more tokens than `remaining` counts bytes.
  bool bytes_bound_tokens() const { return vocabulary_->tokenizes_all() && !uses_depth() && is_remaining_exact(); }

  MaskCache& masks() const { return masks_; }
  FrameTokensCache& frame_tokens() const { return frame_tokens_; }
  MaskCounters& counters() const { return counters_; }

  /// The stage set last, or what `make` returns if there is none or `stale(*stage)` holds. Thread-safe.
  template <class Stage, class Stale, class Make>
  std::shared_ptr<Stage> shared_stage(const Stale& stale, const Make& make) const {
    const std::lock_guard lock(stage_mutex_);
    auto stage = std::static_pointer_cast<Stage>(stage_);
    if (!stage || stale(*stage)) stage_ = stage = make();
    return stage;
  }

  /// Approximate memory of the grammar, its rules and its caches.
  size_t bytes() const;

 private:
  std::shared_ptr<const Vocabulary> vocabulary_;
  mutable MaskCache masks_;
  mutable FrameTokensCache frame_tokens_;
  mutable MaskCounters counters_;
  mutable std::mutex stage_mutex_;
  mutable std::shared_ptr<SharedStage> stage_;
};

}  // namespace constrain
