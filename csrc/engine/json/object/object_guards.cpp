#include "engine/json/object/object_guards.h"

#include <array>

namespace constrain::json {

Guard ObjectGuards::space(uint32_t run, bool inner) const {
  const bool asks = whitespace_.indents() && run > 1;
  return asks ? encode(Test::space, WhitespaceRun::spaces(run) << 1 | inner) : 0;
}

Guard ObjectGuards::line(Test test, Test otherwise, uint32_t run) const {
  return whitespace_.indents() ? encode(test, WhitespaceRun::spaces(run)) : encode(otherwise);
}

bool ObjectGuards::apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const {
  const auto test = static_cast<Test>(guard & 0xF);
  const uint64_t operand = guard >> 4;
  const auto has_flag = [&](uint64_t flag) {
    const Reg members = state_.resolved(reg, registers);
    if (!(Registers::words(members)[ObjectState::kFlags] & flag)) return false;
    reg = members;
    return true;
  };
  switch (test) {
    case Test::none:
      return true;
    case Test::space:
      return operand >> 1 <= whitespace_.indent(registers.depth + (operand & 1));
    case Test::last_line:
      return operand == whitespace_.indent(registers.depth);
    case Test::next_line:
      return operand == whitespace_.indent(registers.depth + 1) && has_flag(ObjectState::kMayGoOn);
    case Test::close:
      return has_flag(ObjectState::kMayClose);
    case Test::member:
      return has_flag(ObjectState::kMayGoOn) && !ends_anyhow(Registers::words(reg), registers);
    case Test::value:
      return choose_value(operand, reg, registers);
    case Test::key_end:
      return end_key(static_cast<uint32_t>(operand), reg, registers);
    default:
      return spell(test, byte, shape_.spellings[operand], reg, registers);
  }
}

bool ObjectGuards::spell(Test test, uint8_t byte, const KeySpelling& spelling, Reg& reg, Registers& registers) const {
  const Reg members = state_.resolved(reg, registers);
  Reg text = ObjectState::key_text(reg);
  // The bytes of a key matter only if other keys are possible, which must not repeat.
  const bool recorded = test != Test::key && !shape_.possible_others.empty();
  if (recorded && !KeyText::is_any_new(text)) {
    const uint8_t content = test == Test::key_raw     ? byte
                            : test == Test::key_short ? short_escape(byte)
                            : test == Test::key_low   ? hex_value(byte)
                                                      : 0x10 | hex_value(byte);
    text = KeyText::append(text, content, registers);
    const bool by_end = registers.only_endings && registers.nesting == 0;
    if (by_end && state_.is_any_new(Registers::words(members), text, spelling))
      text = KeyText::append(0, kAnyNew, registers);
  }
  const auto words = Registers::words(members);
  const bool starts = test == Test::key && spelling.escape == kPlain;
  // While only completions matter, any new key is one of many, and which of them is not known.
  const auto told = [&] { return !registers.only_endings && (starts || state_.is_endless(words, spelling)); };
  if (words[ObjectState::kFlags] & ObjectState::kUsedAnyNew && !told() && !state_.is_needed(words, text, spelling)) {
    registers.indescribable = true;
    return false;
  }
  if (starts ? !(words[ObjectState::kFlags] & ObjectState::kMayGoOn)
             : !state_.viable(words, text, spelling, &registers))
    return false;
  reg = text ? registers.make(std::array<uint64_t, 3>{ObjectState::kSpelling, members, text}) : members;
  return true;
}

/// Refuses optional members once some key stands for any new one: which other keys are new is not known then.
bool ObjectGuards::ends_anyhow(std::span<const uint64_t> resolved, Registers& registers) {
  if (!registers.only_endings) return false;
  constexpr uint64_t kBoth = ObjectState::kUsedAnyNew | ObjectState::kMayClose;
  const bool ends = (resolved[ObjectState::kFlags] & kBoth) == kBoth;
  registers.indescribable |= ends;
  return ends;
}

bool ObjectGuards::end_key(uint32_t label, Reg& reg, Registers& registers) const {
  const Reg base = state_.resolved(reg, registers);
  const auto words = Registers::words(base);
  Reg used = words[ObjectState::kUsed];
  if (label < shape_.spec.properties.size()) {
    const uint32_t at = shape_.place[label];
    if (!has(shape_.outlined_names, at)) state_.consult(registers);
    if (!(state_.open_names(words)[at / 64] >> (at % 64) & 1)) return false;
  } else {
    const uint32_t one = label - static_cast<uint32_t>(shape_.spec.properties.size());
    if (!(state_.open_classes(words)[one / 64] >> (one % 64) & 1)) return false;
    const Reg text = ObjectState::key_text(reg);
    const bool known = !KeyText::is_any_new(text);
    if (used && known && !shape_.is_outlined(KeyText::string(text))) state_.consult(registers);
    for (Reg list = used; list && known; list = UsedKeys::rest(list)) {
      // A cache key of the frame before the token cannot tell which keys the token itself has finished.
      registers.indescribable |= registers.is_temporary(list);
      if (KeyText::equal(UsedKeys::text(list), text)) return false;
    }
    used = UsedKeys::append(used, text, one, registers);
  }
  reg = registers.make(std::array<uint64_t, 5>{ObjectState::kBegun, base, label, used, 0});
  return true;
}

bool ObjectGuards::choose_value(uint64_t duties, Reg& reg, Registers& registers) const {
  Members members = state_.unpack(reg);
  members.met |= duties;
  if (!state_.duties_can_be_met(members)) return false;
  const auto begun = Registers::words(reg);
  reg = registers.make(std::array<uint64_t, 5>{ObjectState::kBegun, begun[ObjectState::kBase],
                                               begun[ObjectState::kLabel], begun[ObjectState::kNewUsed], duties});
  return true;
}

}  // namespace constrain::json
