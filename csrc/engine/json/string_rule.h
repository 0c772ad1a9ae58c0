// JSON strings with any content and a length range.
#pragma once

#include "engine/grammar/rule.h"

namespace constrain::json {

inline constexpr uint64_t kNoMaximum = kInfinite;

/// A string of `min` to `max` Unicode scalar values, in every spelling of RFC 8259 section 7 (surrogates only in
/// pairs). The register counts the length, at the first byte of each scalar value, so that large bounds cost no states.
class StringRule final : public Rule, private MaskHints, private CompletionHints {
 public:
  StringRule(uint64_t min, uint64_t max) : min_(min), max_(max) {}

  Local start() override { return kStart; }
  MaskHints& mask_hints() override { return *this; }
  CompletionHints& completion_hints() override { return *this; }
  void expand(Local state, const Lengths& lengths, Expansion& out) override;
  bool is_final(Local state, const Lengths&) override { return state == kEnd; }
  bool apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const override;
  WildcardRegion wildcard_region(Local state, Reg reg) override;
  bool skip_wildcard(Local state, Reg& reg, Registers&, std::vector<std::string>&) override {
    return state == kBody && max_ == kNoMaximum && reg >= min_;
  }
  bool describe(Local state, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const override;
  uint64_t portable_id() const override { return 1; }
  uint64_t remaining(Local state, Reg reg, const Lengths& lengths) override;
  uint64_t count_values(Local state, Reg reg, const ParseTable&) override;
  /// The longest path to the string's body is a surrogate pair.
  uint64_t max_remaining(RuleBounds&) override { return add_lengths(min_, 10); }
  /// 13 digits make more values than kItems; if fewer characters are left, the bound covers all strings.
  uint64_t max_to_differ(RuleBounds&) override { return 6 * 13 + 12; }
  uint64_t max_growth(Local state, Reg, const Lengths&) override { return state == kBody ? 3 : kInfinite; }
  ByteSet likely_bytes(Local state, Reg reg) override;

 private:
  static constexpr Guard kCount = 1, kClose = 2;
  enum : Local {
    kStart,
    kBody,
    // Continuation bytes of UTF-8, by the bytes that must follow (Unicode table 3-7).
    kOne,
    kTwo,
    kThree,
    kAfterE0,
    kAfterED,
    kAfterF0,
    kAfterF4,
    // Escapes: `\`, `\u`, then the digits; a high surrogate requires `\u` and a low one.
    kEscape,
    kHex4,
    kHex3,
    kHex3AfterD,
    kHex2,
    kHex1,
    kHigh2,
    kHigh1,
    kLowEscape,
    kLowU,
    kLow4,
    kLow3,
    kLow2,
    kLow1,
    kEnd,
    kStates
  };

  void expand_body(Expansion& out) const;
  static void expand_character(Local state, Expansion& out);
  static void expand_escape(Local state, Expansion& out);

  bool counts() const { return min_ > 0 || max_ != kNoMaximum; }

  uint64_t min_, max_;
};

}  // namespace constrain::json
