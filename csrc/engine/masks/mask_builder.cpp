#include "engine/masks/mask_builder.h"

#include <algorithm>
#include <utility>

#include "engine/masks/callees.h"
#include "engine/masks/erase_tokens.h"

namespace constrain {

namespace {

/// Masks of configurations with more stacks are not cached: their keys would be long.
constexpr size_t kMaxStacks = 1024;

/// Masks that depend on more levels of frames are not cached.
constexpr size_t kMaxLevels = 32;

/// True if all stack tops share one parent, which is stored in `parent`.
bool shared_parent(const Configuration& configuration, const Configuration*& parent) {
  const auto tops = configuration.tops();
  parent = tops.front().parent;
  return std::all_of(tops.begin(), tops.end(), [&](const StackTop& top) { return top.parent == parent; });
}

}  // namespace

MaskBuilder::Scratch& MaskBuilder::scratch() {
  thread_local Scratch scratch;
  return scratch;
}

MaskBuilder::MaskBuilder(const CompiledGrammar& grammar, const Configuration& configuration)
    : grammar_(grammar),
      configuration_(configuration),
      tokens_(scratch().tokens),
      footprint_(scratch().footprint),
      walk_(grammar, scratch().walk),
      frame_tokens_(grammar, walk_, footprint_, scratch().frame_tokens) {}

MaskPtr MaskBuilder::mask(const CompiledGrammar& grammar, const Configuration& configuration) {
  if (MaskPtr cached = find(grammar, configuration)) {
    ++grammar.counters().found;
    return cached;
  }
  return MaskBuilder(grammar, configuration).build();
}

MaskPtr MaskBuilder::build() {
  const MaskPtr mask = compute();
  ++grammar_.counters().built;
  grammar_.counters().visited += walk_.visited;
  if (frame_tokens_.describable() && !walk_.indescribable()) store(mask);
  return mask;
}

// ---- The mask cache.

bool MaskBuilder::describe(const CompiledGrammar& grammar, const Configuration& configuration, Detail detail,
                           Key& key) {
  if (configuration.count > kMaxStacks) return false;
  // A bottom frame and a frame with parents have different keys.
  uint64_t waiting = 0;
  for (const StackTop& top : configuration.tops()) waiting = waiting << 1 | (top.parent ? 1 : 0);
  key.push_back(waiting << 32 | configuration.count);
  for (const StackTop& top : configuration.tops()) {
    if (!grammar.describe(top.state, top.reg, top.parent_depth(), detail, key)) return false;
  }
  return true;
}

MaskPtr MaskBuilder::find(const CompiledGrammar& grammar, const Configuration& configuration) {
  Key& key = scratch().key;
  key.assign(1, configuration.accepting);
  const Configuration* at = &configuration;
  Detail detail = Detail::outline;
  while (describe(grammar, *at, detail, key)) {
    const auto cached = grammar.masks().find(key);
    if (!cached) return nullptr;
    if (cached->next == CachedMask::Next::done) return cached->mask;
    if (cached->next == CachedMask::Next::fully) {
      detail = Detail::full;
      continue;
    }
    detail = Detail::outline;
    if (!shared_parent(*at, at) || !at) return nullptr;
  }
  return nullptr;
}

void MaskBuilder::store(const MaskPtr& mask) const {
  Key& key = scratch().key;
  key.assign(1, configuration_.accepting);
  const Configuration* at = &configuration_;
  for (size_t level = 0; level < kMaxLevels; ++level) {
    if (!describe(grammar_, *at, Detail::outline, key)) return;
    if (consulted(*at)) {
      grammar_.masks().put(key, {CachedMask::Next::fully, nullptr}, 0);
      if (!describe(grammar_, *at, Detail::full, key)) return;
    }
    const Configuration* parent = nullptr;
    const bool uniform = shared_parent(*at, parent);
    const uint32_t next = parent ? parent->depth : 0;
    if (uniform && (!parent || next < walk_.lowest())) {
      grammar_.masks().put(key, {CachedMask::Next::done, mask}, mask->bytes);
      return;
    }
    if (!uniform) {
      const auto tops = at->tops();
      const bool needed = std::any_of(tops.begin(), tops.end(), [&](const StackTop& top) {
        return top.parent && top.parent->depth >= walk_.lowest();
      });
      if (!needed) grammar_.masks().put(key, {CachedMask::Next::done, mask}, mask->bytes);
      return;
    }
    grammar_.masks().put(key, {CachedMask::Next::parents, nullptr}, 0);
    at = parent;
  }
}

/// Lists the frames that guards may consult.
void MaskBuilder::note_frames() {
  footprint_.frames.clear();
  const Configuration* at = &configuration_;
  for (size_t level = 0; at && level < kMaxLevels; ++level) {
    for (const StackTop& top : at->tops()) {
      if (const Rule* rule = grammar_.rule(top.state)) footprint_.frames.push_back({rule, top.parent_depth()});
    }
    if (!shared_parent(*at, at)) break;
  }
  walk_.record(footprint_);
}

bool MaskBuilder::consulted(const Configuration& configuration) const {
  const auto tops = configuration.tops();
  return std::any_of(tops.begin(), tops.end(), [&](const StackTop& top) {
    return std::any_of(footprint_.frames.begin(), footprint_.frames.end(), [&](const Footprint::Frame& frame) {
      return frame.consulted && frame.rule == grammar_.rule(top.state) && frame.depth == top.parent_depth();
    });
  });
}

// ---- Building masks.

MaskPtr MaskBuilder::compute() {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  note_frames();
  tokens_.start(vocabulary.mask_words());
  // If a frame may be over before the next byte, its parents contribute as well.
  std::vector<const Configuration*> pending{&configuration_};
  for (size_t i = 0; i < pending.size(); ++i) {
    const Configuration& at = *pending[i];
    walk_.consult(at);
    for (const StackTop& top : at.tops()) {
      if (!top.parent || !grammar_.row(top.state).accepting) continue;
      if (std::find(pending.begin(), pending.end(), top.parent) == pending.end()) pending.push_back(top.parent);
    }
    add(readers(at));
  }
  if (configuration_.accepting) {
    for (const TokenId id : vocabulary.eos()) tokens_.add(id);
  }
  return vocabulary.masks().intern(tokens_);
}

/// Returns a configuration in which calls with which frames begin are made, if some callee reads text, most of whose
/// tokens need not be walked.
const Configuration& MaskBuilder::readers(const Configuration& configuration) {
  std::vector<StackTop> tops = with_callees(grammar_, walk_.store(), configuration.tops());
  const auto reads_text = [&](const StackTop& top) { return grammar_.row(top.state).usual != kDone; };
  if (std::ranges::equal(tops, configuration.tops()) || std::ranges::none_of(tops, reads_text)) return configuration;
  return *walk_.store().make(tops);
}

void MaskBuilder::add(const Configuration& configuration) {
  for (const StackTop& top : configuration.tops()) {
    const FrameTokensPtr frame = frame_tokens_.frame(top);
    tokens_.add(frame->allowed);
    if (frame->exits.empty() || !top.parent) continue;
    walk_.consult(*top.parent);
    for (const ExitsPtr& exits : frame->exits) follow(*exits, *top.parent);
  }
}

/// Walks the rests of tokens within which a frame may be over.
void MaskBuilder::follow(const Exits& exits, const Configuration& parents) {
  walk_.tokens.clear();
  walk_.run_exits(exits, parents.tops());
  erase_tokens(walk_.tokens, exits.except, grammar_.vocabulary().mask_words());
  grammar_.vocabulary().add_duplicates(walk_.tokens);
  tokens_.add(walk_.tokens);
}

}  // namespace constrain
