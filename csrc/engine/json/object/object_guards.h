// Guards of an object rule: which edges the register permits.
#pragma once

#include "engine/json/object/object_state.h"
#include "engine/json/whitespace.h"

namespace constrain::json {

/// Encodes and evaluates the guards of an object rule.
class ObjectGuards {
 public:
  enum class Test : uint32_t {
    none,       ///< always passes
    close,      ///< the object may end
    member,     ///< another member may follow
    key,        ///< some permitted key still has this spelling
    key_raw,    ///< ... after a byte of the key
    key_short,  ///< ... after the last byte of `\n` and its like
    key_low,    ///< ... after the last digit of `\u000x`
    key_high,   ///< ... of `\u001x`
    key_end,    ///< the key is permitted
    value,      ///< a value is chosen that fulfils the duties of the operand
    space,      ///< a line may be indented so far; operand: spaces, and whether within the brackets
    next_line,  ///< the line is completely indented, and a key may start
    last_line   ///< ... and the object may end
  };

  ObjectGuards(const ObjectShape& shape, const ObjectState& state, const WhitespaceRun& whitespace)
      : shape_(shape), state_(state), whitespace_(whitespace) {}

  /// `operand` is a spelling for the tests of keys.
  static Guard encode(Test test, uint32_t operand = 0) { return Guard{operand} << 4 | static_cast<uint32_t>(test); }
  Guard space(uint32_t run, bool inner) const;
  Guard line(Test test, Test otherwise, uint32_t run) const;

  bool apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const;

 private:
  using Members = ObjectMembers;

  bool spell(Test test, uint8_t byte, const KeySpelling& spelling, Reg& reg, Registers& registers) const;
  static bool ends_anyhow(std::span<const uint64_t> resolved, Registers& registers);
  bool end_key(uint32_t label, Reg& reg, Registers& registers) const;
  bool choose_value(uint64_t duties, Reg& reg, Registers& registers) const;

  const ObjectShape& shape_;
  const ObjectState& state_;
  const WhitespaceRun& whitespace_;
};

}  // namespace constrain::json
