// JSON strings that are quoted from a text word for word.
#pragma once

#include "engine/grammar/rule.h"
#include "engine/json/source_text.h"

namespace constrain::json {

/// A string of `min` to `max` Unicode scalar values that occurs in a text, with minimal escapes.
///
/// The register holds the state of the text's suffix automaton and the length, so the text costs no states, however
/// long it is.
class VerbatimRule final : public Rule, private MaskHints, private CompletionHints {
 public:
  VerbatimRule(SourceTextPtr source, uint64_t min, uint64_t max) : source_(std::move(source)), min_(min), max_(max) {}

  Local start() override { return kStart; }
  MaskHints& mask_hints() override { return *this; }
  CompletionHints& completion_hints() override { return *this; }
  void expand(Local state, const Lengths& lengths, Expansion& out) override;
  bool is_final(Local state, const Lengths&) override { return state == kEnd; }
  bool apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const override;
  bool describe(Local state, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const override;
  uint64_t remaining(Local state, Reg reg, const Lengths& lengths) override;
  /// Each character takes at most 6 bytes.
  uint64_t max_remaining(RuleBounds&) override { return 6 * min_ + 12; }
  uint64_t count_values(Local state, Reg reg, const ParseTable&) override;

 private:
  enum : Local {
    kStart,
    kBody,
    // Escapes: `\`, then `u00` and two digits for controls without a short escape.
    kEscape,
    kZero,
    kSecondZero,
    kHigh,
    kLow0,
    kLow1,
    kEnd
  };
  /// Guards from kAnyEscape on pass if some escaped character may follow: any, one without a short escape, and one
  /// whose first digit is 0 or 1.
  enum : Guard { kPlain = 1, kClose, kLetter, kDigit0, kDigit1, kAnyEscape, kControl, kControl0, kControl1 };

  /// The string so far.
  struct Place {
    SourceText::State at;
    uint64_t length;
  };
  static Place place(Reg reg) { return {static_cast<SourceText::State>(reg), reg >> 32}; }
  static Reg encode(const Place& place) { return place.length << 32 | place.at; }

  bool counts() const { return min_ > 0 || max_ != kInfinite; }
  bool advance(Reg& reg, uint8_t byte) const;
  template <typename Use>
  void for_each_escaped(Guard which, Reg reg, Use use) const;
  uint64_t remaining_in_body(Reg reg) const;
  uint64_t remaining_in_escape(Guard which, Reg reg, uint64_t control) const;

  SourceTextPtr source_;
  uint64_t min_, max_;
};

}  // namespace constrain::json
