#include "engine/json/object_rule.h"

#include <algorithm>
#include <array>

#include "engine/json/object_keys.h"

namespace constrain::json {

namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

}  // namespace

ObjectRule::ObjectRule(ObjectSpec spec, Whitespace whitespace) : spec_(std::move(spec)), whitespace_(whitespace) {
  for (const auto& others : spec_.others) cheapest_.emplace_back(others.keys);
  for (uint32_t name = 0; name < spec_.properties.size(); ++name) {
    closure_.emplace_back(Members::words(spec_.properties.size()));
    insert(closure_.back(), name);
    close_under_dependents(closure_.back());
  }
}

std::vector<RuleId> ObjectRule::callees() const {
  std::vector<RuleId> all;
  for (const auto& property : spec_.properties) {
    for (const auto& choice : property.choices) all.push_back(choice.value);
  }
  for (const auto& others : spec_.others) {
    for (const auto& choice : others.choices) all.push_back(choice.value);
  }
  return all;
}

void ObjectRule::prepare(const ParseTable&, const Lengths& lengths) {
  possible_.clear(), possible_others_.clear(), texts_.clear(), spellings_.clear(), spelling_ids_.clear(),
      escaping_.clear();
  const auto drop_empty = [&](std::vector<ObjectSpec::Choice>& choices) {
    std::erase_if(choices, [&](const auto& choice) { return lengths[choice.value] == kInfinite; });
  };
  std::vector<std::string> names;
  for (auto& property : spec_.properties) {
    names.push_back(property.name);
    for (const char byte : property.name) name_bytes_.add(static_cast<uint8_t>(byte));
    drop_empty(property.choices);
  }
  for (uint32_t name = 0; name < names.size(); ++name) {
    possible_.push_back(needs_only(name, [&](uint32_t needed) { return !spec_.properties[needed].choices.empty(); }));
  }
  std::vector<AutomatonPtr> classes;
  for (uint32_t i = 0; i < spec_.others.size(); ++i) {
    drop_empty(spec_.others[i].choices);
    if (spec_.others[i].choices.empty() || is_empty(*spec_.others[i].keys)) continue;
    possible_others_.push_back(i);
    classes.push_back(spec_.others[i].keys);
  }
  for (uint32_t one = 0; one < classes.size(); ++one) {
    // Where so many keys go on from each state, whatever is typed on the way to one is the beginning of some new key.
    const auto many = [this, one](State at) { return keys_->class_words(one, at) >= KeyAutomaton::kManyWords; };
    const auto row = [keys = classes[one]](State at) -> const StateRow& { return keys->row(at); };
    texts_.emplace_back(row, many, [](State) { return false; });
  }
  keys_ = std::make_unique<KeyAutomaton>(std::move(names), std::move(classes));
  intern_spelling(keys_->start(), kPlain);
  place_.resize(spec_.properties.size());
  for (uint32_t at = 0; at < place_.size(); ++at) place_[keys_->sorted()[at]] = at;
  find_wanted_keys(lengths);
  Members none;
  none.seen.resize(names_words());
  first_ = settle(none);
  first_.insert(first_.begin(), first_.size());
}

const std::vector<ObjectSpec::Choice>& ObjectRule::choices(uint32_t label) const {
  const size_t names = spec_.properties.size();
  return label < names ? spec_.properties[label].choices : spec_.others[possible_others_[label - names]].choices;
}

void ObjectRule::close_under_dependents(std::vector<uint64_t>& names) const {
  for (bool grew = true; grew;) {
    grew = false;
    for (const auto& [name, needed] : spec_.dependents) {
      if (!has(names, name) || has(names, needed)) continue;
      insert(names, needed);
      grew = true;
    }
  }
}

Guard ObjectRule::space(uint32_t run, bool inner) const {
  const bool asks = whitespace_.indents() && run > 1;
  return asks ? guard(Test::space, WhitespaceRun::spaces(run) << 1 | inner) : 0;
}

Guard ObjectRule::line(Test test, Test otherwise, uint32_t run) const {
  return whitespace_.indents() ? guard(test, WhitespaceRun::spaces(run)) : guard(otherwise);
}

void ObjectRule::expand(Local state, const Lengths&, Expansion& out) {
  using Slot = Whitespace::Slot;
  const auto phase = static_cast<Phase>(state & 0xF);
  const uint32_t run = static_cast<uint32_t>(state) >> 4, operand = static_cast<uint32_t>(state >> 32);
  const auto start_key = [&](Slot slot) {
    if (whitespace_.may_end(slot, run)) out.byte('"', encode(Phase::key, 0, 0), line(Test::next_line, Test::key, run));
  };
  switch (phase) {
    case Phase::start:
      return out.byte('{', encode(Phase::open));
    case Phase::open:
      for (const auto [byte, to] : whitespace_.next(Slot::opening, run)) {
        const Guard first = whitespace_.indents() && run == 0 ? guard(Test::member) : space(to, true);
        out.byte(byte, encode(Phase::open, to), first);
      }
      start_key(Slot::opening);
      if (whitespace_.indents() ? run == WhitespaceRun::kStart : whitespace_.may_end(Slot::opening, run)) {
        out.byte('}', encode(Phase::end), guard(Test::close));
      }
      return;
    case Phase::next:
      for (const auto [byte, to] : whitespace_.next(Slot::item, run))
        out.byte(byte, encode(Phase::next, to), space(to, true));
      return start_key(Slot::item);
    case Phase::key:
      return expand_key(operand, out);
    case Phase::colon_before:
      for (const auto [byte, to] : whitespace_.next(Slot::before, run))
        out.byte(byte, encode(Phase::colon_before, to, operand));
      return out.byte(':', encode(Phase::colon, 0, operand));
    case Phase::colon:
      for (const auto [byte, to] : whitespace_.next(Slot::value, run))
        out.byte(byte, encode(Phase::colon, to, operand));
      if (!whitespace_.may_end(Slot::value, run)) return;
      for (const auto& choice : choices(operand)) {
        out.call(choice.value, encode(Phase::after), spec_.duties ? guard(Test::value, choice.duties) : 0);
      }
      return;
    case Phase::after:
      for (const auto [byte, to] : whitespace_.next(Slot::closing, 0)) {
        out.byte(byte, encode(Phase::closing, to), guard(Test::close));
      }
      for (const auto [byte, to] : whitespace_.next(Slot::before, 0)) {
        out.byte(byte, encode(Phase::comma_before, to), guard(Test::member));
      }
      if (whitespace_.may_end(Slot::closing, 0)) out.byte('}', encode(Phase::end), guard(Test::close));
      return out.byte(',', encode(Phase::next), guard(Test::member));
    case Phase::comma_before:
      for (const auto [byte, to] : whitespace_.next(Slot::before, run)) out.byte(byte, encode(Phase::comma_before, to));
      return out.byte(',', encode(Phase::next));
    case Phase::closing:
      for (const auto [byte, to] : whitespace_.next(Slot::closing, run))
        out.byte(byte, encode(Phase::closing, to), space(to, false));
      if (whitespace_.may_end(Slot::closing, run))
        out.byte('}', encode(Phase::end), line(Test::last_line, Test::none, run));
      return;
    case Phase::end:
      out.accepting = true;
  }
}

void ObjectRule::expand_key(uint32_t id, Expansion& out) {
  const Spelling& at = spellings_[id];
  const StateRow& row = keys_->row(at.content);
  const auto go = [&](int first, int last, State to, uint32_t escape, Test test) {
    if (to == kDead) return;
    const uint32_t next = intern_spelling(to, escape);
    if (spellings_[next].contents().empty()) return;
    out.range(static_cast<uint8_t>(first), static_cast<uint8_t>(last), encode(Phase::key, 0, next), guard(test, next));
  };
  switch (at.escape) {
    case kPlain: {
      const auto raw = [&](int begin, int end) {
        for_each_range(row, [&](int first, int last, State to) {
          first = std::max(first, begin), last = std::min(last, end - 1);
          if (first <= last) go(first, last, to, kPlain, Test::key_raw);
        });
      };
      raw(0x20, '"'), raw('"' + 1, '\\'), raw('\\' + 1, 256);
      go('\\', '\\', with_same_escapes(at.content), kBackslash, Test::key);
      const auto& key = keys_->state(at.content);
      if (key.name || key.key_class) {
        const uint32_t label = key.name ? *key.name : static_cast<uint32_t>(spec_.properties.size()) + *key.key_class;
        out.byte('"', encode(Phase::colon_before, 0, label), guard(Test::key_end, label));
      }
      return;
    }
    case kBackslash:
      for (const char letter : kShortLetters) {
        go(letter, letter, row[short_escape(static_cast<uint8_t>(letter))], kPlain, Test::key_short);
      }
      return go('u', 'u', at.content, kU, Test::key);
    case kU:
      return go('0', '0', at.content, kU0, Test::key);
    case kU0:
      return go('0', '0', at.content, kU00, Test::key);
    case kU00:
      go('0', '0', at.content, kU000, Test::key);
      return go('1', '1', at.content, kU001, Test::key);
    default: {
      const bool high = at.escape == kU001;
      for (uint8_t digit = 0; digit < 16; ++digit) {
        const uint8_t byte = high ? 0x10 | digit : digit;
        if (has_short_escape(byte)) continue;
        const Test test = high ? Test::key_high : Test::key_low;
        const int lower = kHexDigits[digit];
        go(lower, lower, row[byte], kPlain, test);
        if (digit > 9) go(lower - 'a' + 'A', lower - 'a' + 'A', row[byte], kPlain, test);
      }
    }
  }
}

/// The first content met from which the escapes lead to the same: few names have any, so that most need no states of
/// their own for them.
State ObjectRule::with_same_escapes(State content) {
  const StateRow& row = keys_->row(content);
  Escaped after;
  for_each_range(row, [&](int first, int last, State to) {
    if (first < 0x20) std::fill(after.begin() + first, after.begin() + std::min(last + 1, 0x20), to);
  });
  std::ranges::transform(kShortBytes, after.begin() + 0x20, [&](char byte) { return row[static_cast<uint8_t>(byte)]; });
  return escaping_.try_emplace(after, content).first->second;
}

uint32_t ObjectRule::intern_spelling(State content, uint32_t escape) {
  if (content >= spelling_ids_.size()) spelling_ids_.resize(content + 1);
  uint32_t& id = spelling_ids_[content][escape];
  if (id) return id - 1;
  Spelling made{content, escape, {}};
  for (uint8_t byte = 0; byte < 0x80 && escape != kPlain; ++byte) {
    if (!may_escape(escape, byte)) continue;
    const State to = keys_->row(content)[byte];
    if (to != kDead && std::ranges::find(made.after, to) == made.after.end()) made.after.push_back(to);
  }
  id = static_cast<uint32_t>(spellings_.size()) + 1;
  spellings_.grow() = std::move(made);
  return id - 1;
}

}  // namespace constrain::json
