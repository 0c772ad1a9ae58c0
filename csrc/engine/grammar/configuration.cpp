#include "engine/grammar/configuration.h"

#include <algorithm>
#include <tuple>

#include "engine/base/errors.h"

namespace constrain {

namespace {

bool before(const Head& a, const Head& b) {
  return std::tie(a.state, a.reg, a.below) < std::tie(b.state, b.reg, b.below);
}

bool same_frame(const Head& a, const Head& b) { return a.state == b.state && a.reg == b.reg; }

}  // namespace

bool ConfigurationStore::Equal::operator()(const Configuration* a, const Configuration* b) const {
  return a->hash == b->hash && std::ranges::equal(a->heads(), b->heads());
}

void ConfigurationStore::refuse_work() const {
  throw ResourceLimit("max_work", grammar_.limits().max_work, "while matching: the text can be read in too many ways");
}

const Configuration* ConfigurationStore::make(std::vector<Head>& heads) {
  charge(heads.size());
  std::sort(heads.begin(), heads.end(), before);
  heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
  size_t kept = 0;
  for (size_t i = 0; i < heads.size();) {
    size_t end = i + 1;
    while (end < heads.size() && same_frame(heads[i], heads[end])) ++end;
    Head merged = heads[i];
    // A stack that ends here (nullptr) and one that goes on cannot share a node, so the bottom keeps a head of its own.
    const size_t first = merged.below ? i : i + 1;
    if (!merged.below) heads[kept++] = merged;
    if (first < end) {
      std::vector<Head> below;
      for (size_t k = first; k < end; ++k) {
        consult(*heads[k].below);
        below.insert(below.end(), heads[k].below->heads().begin(), heads[k].below->heads().end());
      }
      merged.below = end - first == 1 ? heads[first].below : make(below);
      heads[kept++] = merged;
    }
    i = end;
  }
  heads.resize(kept);
  return store(heads);
}

const Configuration* ConfigurationStore::make_bottom(uint32_t depth) {
  auto* made = reinterpret_cast<Configuration*>(arena_.allocate<uint64_t>((sizeof(Configuration) + sizeof(Head)) / 8));
  *made = {.count = 1, .depth = depth, .hash = 0, .accepting = true};
  *reinterpret_cast<Head*>(made + 1) = {kDone, 0, nullptr};
  return made;
}

const Configuration* ConfigurationStore::store(std::span<const Head> heads) {
  const Limits& limits = grammar_.limits();
  charge(heads.size());
  if (heads.size() > limits.max_frames) throw ResourceLimit("max_frames", limits.max_frames, "while matching");

  uint64_t hash = heads.size();
  const auto mix = [&](uint64_t value) { hash = (hash ^ value) * 0x9FB21C651E98DF25ull, hash ^= hash >> 32; };
  uint32_t depth = 0;
  bool accepting = false;
  for (const Head& head : heads) {
    mix(head.state), mix(head.reg), mix(reinterpret_cast<uint64_t>(head.below));
    depth = std::max(depth, 1 + head.depth_below());
    accepting |= grammar_.row(head.state).accepting && (!head.below || head.below->accepting);
  }
  if (depth > limits.max_stack_depth) throw ResourceLimit("max_stack_depth", limits.max_stack_depth, "while matching");

  const size_t words = (sizeof(Configuration) + heads.size_bytes()) / 8;
  auto* made = reinterpret_cast<Configuration*>(arena_.allocate<uint64_t>(words));
  *made = {static_cast<uint32_t>(heads.size()), depth, hash, accepting};
  std::copy(heads.begin(), heads.end(), reinterpret_cast<Head*>(made + 1));
  return interning_ ? *known_.insert(made).first : made;
}

void Stepper::take(const Option& option, const Head& head, uint8_t byte, std::vector<Head>& out) {
  Reg reg = head.reg;
  if (!allows(option, head, byte, reg)) return;
  const Configuration* below = head.below;
  if (option.call) {
    if (option.then != kDone) below = store_.make(Head{option.then, reg, below});
    for (const StateId state : option.chain) below = store_.make(Head{state, 0, below});
    reg = 0;
  }
  if (option.target == kDone) {
    release(below, out);
  } else {
    out.push_back({option.target, reg, below});
  }
}

void Stepper::release(const Configuration* below, std::vector<Head>& out) {
  if (!below) {
    out.push_back({kDone, 0, nullptr});
    return;
  }
  const auto heads = below->heads();
  store_.consult(*below);
  store_.charge(heads.size());
  out.insert(out.end(), heads.begin(), heads.end());
}

void Stepper::step_below(const Configuration* below, uint8_t byte, std::vector<Head>& out) {
  store_.consult(*below);
  store_.charge(below->count);
  for (const Head& head : below->heads()) step(head, byte, out);
}

}  // namespace constrain
