#include "engine/masks/mask_builder.h"

#include <algorithm>
#include <utility>

namespace constrain {

namespace {

/// Masks of configurations with more stacks are not cached: their keys would be long.
constexpr size_t kMaxStacks = 1024;

/// Masks that depend on more levels of frames are not kept.
constexpr size_t kMaxLevels = 32;

/// What waits below all heads alike. False where that differs.
bool one_below(const Configuration& configuration, const Configuration*& below) {
  const auto heads = configuration.heads();
  below = heads.front().below;
  return std::all_of(heads.begin(), heads.end(), [&](const Head& head) { return head.below == below; });
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
      inners_(grammar, walk_, footprint_) {}

MaskPtr MaskBuilder::build() {
  if (MaskPtr known = find()) {
    ++grammar_.counters().found;
    return known;
  }
  const MaskPtr mask = compute();
  ++grammar_.counters().built;
  grammar_.counters().visited += walk_.visited;
  if (inners_.describable() && !walk_.indescribable()) keep(mask);
  return mask;
}

// ---- Masks by description.

bool MaskBuilder::describe(const Configuration& configuration, Detail detail, Key& key) const {
  if (configuration.count > kMaxStacks) return false;
  // A frame at the bottom is told from one that leaves the rest of a token to others.
  uint64_t waiting = 0;
  for (const Head& head : configuration.heads()) waiting = waiting << 1 | (head.below ? 1 : 0);
  key.push_back(waiting << 32 | configuration.count);
  for (const Head& head : configuration.heads()) {
    if (!grammar_.describe(head.state, head.reg, head.depth_below(), detail, key)) return false;
  }
  return true;
}

MaskPtr MaskBuilder::find() const {
  Key& key = scratch().key;
  key.assign(1, configuration_.accepting);
  const Configuration* at = &configuration_;
  Detail detail = Detail::outline;
  while (describe(*at, detail, key)) {
    const auto known = grammar_.masks().find(key);
    if (!known) return nullptr;
    if (known->next == CachedMask::Next::done) return known->mask;
    if (known->next == CachedMask::Next::fully) {
      detail = Detail::full;
      continue;
    }
    detail = Detail::outline;
    if (!one_below(*at, at) || !at) return nullptr;
  }
  return nullptr;
}

void MaskBuilder::keep(const MaskPtr& mask) const {
  Key& key = scratch().key;
  key.assign(1, configuration_.accepting);
  const Configuration* at = &configuration_;
  for (size_t level = 0; level < kMaxLevels; ++level) {
    if (!describe(*at, Detail::outline, key)) return;
    if (consulted(*at)) {
      grammar_.masks().keep(key, {CachedMask::Next::fully, nullptr}, 0);
      if (!describe(*at, Detail::full, key)) return;
    }
    const Configuration* below = nullptr;
    const bool uniform = one_below(*at, below);
    const uint32_t next = below ? below->depth : 0;
    if (uniform && (!below || next < walk_.lowest())) {
      grammar_.masks().keep(key, {CachedMask::Next::done, mask}, mask->bytes);
      return;
    }
    if (!uniform) {
      const auto heads = at->heads();
      const bool needed = std::any_of(heads.begin(), heads.end(), [&](const Head& head) {
        return head.below && head.below->depth >= walk_.lowest();
      });
      if (!needed) grammar_.masks().keep(key, {CachedMask::Next::done, mask}, mask->bytes);
      return;
    }
    grammar_.masks().keep(key, {CachedMask::Next::below, nullptr}, 0);
    at = below;
  }
}

/// Lists the frames whose rules may be asked for more than their outlines.
void MaskBuilder::note_frames() {
  footprint_.frames.clear();
  const Configuration* at = &configuration_;
  for (size_t level = 0; at && level < kMaxLevels; ++level) {
    for (const Head& head : at->heads()) {
      if (const Rule* rule = grammar_.rule(head.state)) footprint_.frames.push_back({rule, head.depth_below()});
    }
    if (!one_below(*at, at)) break;
  }
  walk_.record(footprint_);
}

bool MaskBuilder::consulted(const Configuration& configuration) const {
  const auto heads = configuration.heads();
  return std::any_of(heads.begin(), heads.end(), [&](const Head& head) {
    return std::any_of(footprint_.frames.begin(), footprint_.frames.end(), [&](const Footprint::Frame& frame) {
      return frame.consulted && frame.rule == grammar_.rule(head.state) && frame.depth == head.depth_below();
    });
  });
}

// ---- Masks from frames.

MaskPtr MaskBuilder::compute() {
  const Vocabulary& vocabulary = grammar_.vocabulary();
  note_frames();
  tokens_.start(vocabulary.mask_words());
  // Where the top frames may be over before the next byte those below them speak as well.
  std::vector<const Configuration*> pending{&configuration_};
  for (size_t i = 0; i < pending.size(); ++i) {
    const Configuration& at = *pending[i];
    walk_.consult(at);
    for (const Head& head : at.heads()) {
      if (!head.below || !grammar_.row(head.state).accepting) continue;
      if (std::find(pending.begin(), pending.end(), head.below) == pending.end()) pending.push_back(head.below);
    }
    add(at);
  }
  if (configuration_.accepting) {
    for (const TokenId id : vocabulary.eos()) tokens_.add(id);
  }
  return vocabulary.masks().intern(tokens_);
}

void MaskBuilder::add(const Configuration& configuration) {
  for (const Head& head : configuration.heads()) {
    const InnerPtr inner = inners_.inner(head);
    if (inner->within) inner->within->add(inner->room, tokens_);
    if (inner->many) tokens_.add(inner->many);
    allow(inner->tokens);
    walk_.tokens.clear();
    follow(inner->exits, head);
    if (const Inner* like = inner->like.get()) {
      for (const Inner::Run& run : like->runs) {
        if (!inner->agreed.has(run.byte)) continue;
        allow(std::span(like->tokens).subspan(run.tokens, run.tokens_end - run.tokens));
        follow(std::span(like->exits).subspan(run.exits, run.exits_end - run.exits), head);
      }
    }
    allow(walk_.tokens);
  }
}

/// Goes on with the frames below where one is over.
void MaskBuilder::follow(std::span<const Inner::Exit> exits, const Head& head) {
  if (exits.empty() || !head.below) return;
  walk_.consult(*head.below);
  for (const Inner::Exit& exit : exits) walk_.run(*exit.trie, exit.node, head.below->heads());
}

void MaskBuilder::allow(std::span<const TokenId> tokens) {
  tokens_.add(tokens);
  const Vocabulary& vocabulary = grammar_.vocabulary();
  if (!vocabulary.has_duplicates()) return;
  for (TokenId token : tokens) {
    while ((token = vocabulary.next_duplicate(token)) != kNoToken) tokens_.add(token);
  }
}

}  // namespace constrain
