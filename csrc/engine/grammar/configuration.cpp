#include "engine/grammar/configuration.h"

#include <algorithm>
#include <tuple>

#include "engine/base/errors.h"

namespace constrain {

namespace {

bool before(const StackTop& a, const StackTop& b) {
  return std::tie(a.state, a.reg, a.parent) < std::tie(b.state, b.reg, b.parent);
}

bool same_frame(const StackTop& a, const StackTop& b) { return a.state == b.state && a.reg == b.reg; }

}  // namespace

bool ConfigurationStore::Equal::operator()(const Configuration* a, const Configuration* b) const {
  return a->hash == b->hash && std::ranges::equal(a->tops(), b->tops());
}

void ConfigurationStore::refuse_work() const {
  throw ResourceLimit("max_work", grammar_.limits().max_work, "while matching: the text has too many parses");
}

const Configuration* ConfigurationStore::make(std::vector<StackTop>& tops) {
  charge(tops.size());
  std::sort(tops.begin(), tops.end(), before);
  tops.erase(std::unique(tops.begin(), tops.end()), tops.end());
  size_t kept = 0;
  for (size_t i = 0; i < tops.size();) {
    size_t end = i + 1;
    while (end < tops.size() && same_frame(tops[i], tops[end])) ++end;
    StackTop merged = tops[i];
    // The bottom of the stack (nullptr) cannot be merged into a node, so it keeps a stack top of its own.
    const size_t first = merged.parent ? i : i + 1;
    if (!merged.parent) tops[kept++] = merged;
    if (first < end) {
      std::vector<StackTop> parent;
      for (size_t k = first; k < end; ++k) {
        consult(*tops[k].parent);
        parent.insert(parent.end(), tops[k].parent->tops().begin(), tops[k].parent->tops().end());
      }
      merged.parent = end - first == 1 ? tops[first].parent : make(parent);
      tops[kept++] = merged;
    }
    i = end;
  }
  tops.resize(kept);
  return store(tops);
}

const Configuration* ConfigurationStore::make_bottom(uint32_t depth) {
  auto* made =
      reinterpret_cast<Configuration*>(arena_.allocate<uint64_t>((sizeof(Configuration) + sizeof(StackTop)) / 8));
  *made = {.count = 1, .depth = depth, .hash = 0, .accepting = true};
  *reinterpret_cast<StackTop*>(made + 1) = {kDone, 0, nullptr};
  return made;
}

const Configuration* ConfigurationStore::store(std::span<const StackTop> tops) {
  const Limits& limits = grammar_.limits();
  charge(tops.size());
  if (tops.size() > limits.max_frames) throw ResourceLimit("max_frames", limits.max_frames, "while matching");

  uint64_t hash = tops.size();
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0x9FB21C651E98DF25ull, hash ^= hash >> 32; };
  uint32_t depth = 0;
  bool accepting = false;
  for (const StackTop& top : tops) {
    mix(top.state), mix(top.reg), mix(reinterpret_cast<uint64_t>(top.parent));
    depth = std::max(depth, 1 + top.parent_depth());
    accepting |= grammar_.row(top.state).accepting && (!top.parent || top.parent->accepting);
  }
  if (depth > limits.max_stack_depth) throw ResourceLimit("max_stack_depth", limits.max_stack_depth, "while matching");

  const size_t words = (sizeof(Configuration) + tops.size_bytes()) / 8;
  auto* made = reinterpret_cast<Configuration*>(arena_.allocate<uint64_t>(words));
  *made = {static_cast<uint32_t>(tops.size()), depth, hash, accepting};
  std::copy(tops.begin(), tops.end(), reinterpret_cast<StackTop*>(made + 1));
  return interning_ ? *interned_.insert(made).first : made;
}

const Configuration* Stepper::advance(const Configuration& from, std::string_view bytes) {
  tops_.assign(from.tops().begin(), from.tops().end());
  for (const char byte : bytes) {
    store_.start_work();
    next_.clear();
    for (const StackTop& top : tops_) step(top, static_cast<uint8_t>(byte), next_);
    if (next_.empty()) return nullptr;
    // Merging after each byte keeps ambiguity from multiplying.
    if (next_.size() > 1) store_.make(next_);
    tops_.swap(next_);
  }
  return store_.make(tops_);
}

void Stepper::take(const Option& option, const StackTop& top, uint8_t byte, std::vector<StackTop>& out,
                   const Configuration* self) {
  Reg reg = top.reg;
  if (!allows(option, top, byte, reg)) return;
  const Configuration* parent = top.parent;
  if (option.call) {
    const bool same = self && option.then == top.state && reg == top.reg;
    if (option.then != kDone) parent = same ? self : store_.make(StackTop{option.then, reg, parent});
    for (const StateId state : option.chain) parent = store_.make(StackTop{state, 0, parent});
    reg = 0;
  }
  if (option.target == kDone) {
    release(parent, out);
  } else {
    out.push_back({option.target, reg, parent});
  }
}

void Stepper::release(const Configuration* parent, std::vector<StackTop>& out) {
  if (!parent) {
    out.push_back({kDone, 0, nullptr});
    return;
  }
  const auto tops = parent->tops();
  store_.consult(*parent);
  store_.charge(tops.size());
  out.insert(out.end(), tops.begin(), tops.end());
}

void Stepper::step_parent(const Configuration* parent, uint8_t byte, std::vector<StackTop>& out) {
  store_.consult(*parent);
  store_.charge(parent->count);
  for (const StackTop& top : parent->tops()) step(top, byte, out, parent->count == 1 ? parent : nullptr);
}

}  // namespace constrain
