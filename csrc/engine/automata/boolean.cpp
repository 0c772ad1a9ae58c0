#include <algorithm>
#include <array>
#include <iterator>
#include <span>

#include "engine/automata/automaton.h"
#include "engine/automata/lazy.h"
#include "engine/base/errors.h"
#include "engine/base/interner.h"
#include "engine/base/scratch_list.h"

namespace constrain {

namespace {

/// The product of two automata. A state is a pair; the second half is `kDead` once the text has left `b`.
class Product : public PrunedAutomaton {
 public:
  enum class Operation { intersection, difference };

  Product(AutomatonPtr a, AutomatonPtr b, Operation operation, size_t budget)
      : PrunedAutomaton(budget), a_(std::move(a)), b_(std::move(b)), operation_(operation) {}

  bool accepting(State state) override {
    const auto [a, b] = halves(state);
    if (!a_->accepting(a)) return false;
    return (b != kDead && b_->accepting(b)) == (operation_ == Operation::intersection);
  }

  bool contains(std::string_view text) override {
    return a_->contains(text) && b_->contains(text) == (operation_ == Operation::intersection);
  }

 private:
  struct Halves {
    State a, b;
  };

  Halves halves(State state) const { return {states_[state][0], states_[state][1]}; }

  State join(State a, State b) {
    if (a == kDead || (b == kDead && operation_ == Operation::intersection)) return kDead;
    return states_.intern(std::array{a, b});
  }

  State raw_start() override { return join(a_->start(), b_->start()); }

  Verdict glance(State state) override {
    return halves(state).b == kDead || accepting(state) ? Verdict::live : Verdict::unknown;
  }

  void fill_row(State state, Transitions& row) override {
    const auto [a, b] = halves(state);
    const std::array<const StateRow*, 2> rows{&a_->row(a), b == kDead ? nullptr : &b_->row(b)};
    for_each_common_range(rows, [&](uint8_t first, uint8_t last, std::span<const State> next) {
      row.set(first, last, join(next[0], next[1]));
    });
  }

  AutomatonPtr a_, b_;
  Operation operation_;
  SequenceInterner states_;
};

/// The union of several automata. A state lists those still alive: index, state, index, state...
class Union : public LazyAutomaton {
 public:
  explicit Union(std::vector<AutomatonPtr> parts) : parts_(std::move(parts)) {}

  State start() override {
    Key key;
    for (uint32_t i = 0; i < parts_.size(); ++i) add(key, i, parts_[i]->start());
    return name(key);
  }

  bool accepting(State state) override {
    const auto key = states_[state];
    for (size_t i = 0; i < key.size(); i += 2) {
      if (parts_[key[i]]->accepting(key[i + 1])) return true;
    }
    return false;
  }

  bool contains(std::string_view text) override {
    return std::ranges::any_of(parts_, [&](const AutomatonPtr& part) { return part->contains(text); });
  }

  std::vector<Part> parts(State state) override {
    std::vector<Part> all;
    const auto key = states_[state];
    for (size_t i = 0; i < key.size(); i += 2) {
      const std::vector<Part> inner = parts_[key[i]]->parts(key[i + 1]);
      all.insert(all.end(), inner.begin(), inner.end());
    }
    return all;
  }

 private:
  static constexpr size_t kFew = 8;
  using Key = ScratchList<uint32_t, 2 * kFew>;

  static void add(Key& key, uint32_t part, State state) {
    if (state != kDead) key.list.insert(key.list.end(), {part, state});
  }

  State name(const Key& key) { return key.list.empty() ? kDead : states_.intern(key.list); }

  void fill_row(State state, Transitions& row) override {
    Key key, next;
    ScratchList<const StateRow*, kFew> rows;
    key.list.assign(states_[state].begin(), states_[state].end());
    for (size_t i = 0; i < key.list.size(); i += 2) rows.list.push_back(&parts_[key.list[i]]->row(key.list[i + 1]));
    for_each_common_range(rows.list, [&](uint8_t first, uint8_t last, std::span<const State> targets) {
      next.list.clear();
      for (size_t i = 0; i < targets.size(); ++i) add(next, key.list[2 * i], targets[i]);
      row.set(first, last, name(next));
    });
  }

  std::vector<AutomatonPtr> parts_;
  SequenceInterner states_;
};

/// The concatenation of two automata. A state is a state of `a` (or `kDead`) and a set of states of `b`.
class Concatenation : public LazyAutomaton {
 public:
  Concatenation(AutomatonPtr a, AutomatonPtr b) : a_(std::move(a)), b_(std::move(b)) {}

  State start() override {
    if (b_->start() == kDead) return kDead;
    std::vector<uint32_t> key = {a_->start()};
    return name(key);
  }

  bool accepting(State state) override {
    const auto key = states_[state];
    for (size_t i = 1; i < key.size(); ++i) {
      if (b_->accepting(key[i])) return true;
    }
    return false;
  }

 private:
  State name(std::vector<uint32_t>& key) {
    if (key[0] != kDead && a_->accepting(key[0])) key.push_back(b_->start());
    std::sort(key.begin() + 1, key.end());
    key.erase(std::unique(key.begin() + 1, key.end()), key.end());
    return key[0] == kDead && key.size() == 1 ? kDead : states_.intern(key);
  }

  void fill_row(State state, Transitions& row) override {
    const std::vector<uint32_t> key(states_[state].begin(), states_[state].end());
    std::vector<const StateRow*> rows{key[0] == kDead ? nullptr : &a_->row(key[0])};
    for (size_t i = 1; i < key.size(); ++i) rows.push_back(&b_->row(key[i]));
    std::vector<uint32_t> next;
    for_each_common_range(rows, [&](uint8_t first, uint8_t last, std::span<const State> targets) {
      next.assign(1, targets[0]);
      std::copy_if(targets.begin() + 1, targets.end(), std::back_inserter(next), [](State at) { return at != kDead; });
      row.set(first, last, name(next));
    });
  }

  AutomatonPtr a_, b_;
  SequenceInterner states_;
};

}  // namespace

AutomatonPtr intersect(AutomatonPtr a, AutomatonPtr b) {
  return std::make_shared<Product>(std::move(a), std::move(b), Product::Operation::intersection, kSearchBudget);
}

AutomatonPtr subtract(AutomatonPtr a, AutomatonPtr b) {
  return std::make_shared<Product>(std::move(a), std::move(b), Product::Operation::difference, kSearchBudget);
}

AutomatonPtr complement(AutomatonPtr a) { return subtract(any_text(), std::move(a)); }

AutomatonPtr unite(std::vector<AutomatonPtr> parts) {
  return parts.size() == 1 ? std::move(parts[0]) : std::make_shared<Union>(std::move(parts));
}

AutomatonPtr concatenate(AutomatonPtr a, AutomatonPtr b) {
  return std::make_shared<Concatenation>(std::move(a), std::move(b));
}

bool disjoint(AutomatonPtr a, AutomatonPtr b, size_t budget) {
  return Product(std::move(a), std::move(b), Product::Operation::intersection, budget).start() == kDead;
}

}  // namespace constrain
