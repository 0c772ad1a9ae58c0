#include "engine/json/object/key_spellings.h"

#include <algorithm>

namespace constrain::json {

void KeySpellings::reset(KeyAutomaton& keys) {
  keys_ = &keys;
  spellings_.clear(), ids_.clear(), escaping_.clear();
  intern(keys.start(), kPlain);
}

State KeySpellings::with_same_escapes(State content) {
  const StateRow& row = keys_->row(content);
  Escaped after;
  for_each_range(row, [&](int first, int last, State to) {
    if (first < 0x20) std::fill(after.begin() + first, after.begin() + std::min(last + 1, 0x20), to);
  });
  std::ranges::transform(kShortBytes, after.begin() + 0x20, [&](char byte) { return row[static_cast<uint8_t>(byte)]; });
  return escaping_.try_emplace(after, content).first->second;
}

uint32_t KeySpellings::intern(State content, uint32_t escape) {
  if (content >= ids_.size()) ids_.resize(content + 1);
  uint32_t& id = ids_[content][escape];
  if (id) return id - 1;
  KeySpelling made{content, escape, {}, {}};
  for (uint8_t byte = 0; byte < 0x80 && escape != kPlain; ++byte) {
    if (!may_escape(escape, byte)) continue;
    const State to = keys_->row(content)[byte];
    if (to == kDead) continue;
    const auto known = static_cast<size_t>(std::ranges::find(made.after, to) - made.after.begin());
    if (known == made.after.size()) made.after.push_back(to), made.escaped.emplace_back();
    made.escaped[known].add(byte);
  }
  id = static_cast<uint32_t>(spellings_.size()) + 1;
  spellings_.grow() = std::move(made);
  return id - 1;
}

}  // namespace constrain::json
