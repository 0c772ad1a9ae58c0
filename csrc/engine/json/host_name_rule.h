// JSON strings of host names.
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine/automata/formats/host_name.h"
#include "engine/grammar/rule.h"

namespace constrain::json {

/// Host names with A-labels (`xn--...`). The register counts octets, and keeps the text of an A-label to decode it.
class HostNameRule final : public Rule, private MaskHints, private CompletionHints {
 public:
  /// `names` are `encoded_host_names`, shared with other grammars.
  explicit HostNameRule(AutomatonPtr names) : names_(std::move(names)) {}

  Local start() override { return names_->start(); }
  MaskHints& mask_hints() override { return *this; }
  CompletionHints& completion_hints() override { return *this; }
  void expand(Local state, const Lengths& lengths, Expansion& out) override;
  bool apply(Guard guard, uint8_t byte, Reg& reg, Registers& registers) const override;
  WildcardRegion wildcard_region(Local state, Reg reg) override;
  bool describe(Local state, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const override;
  uint64_t portable_id() const override { return names_->shared_id(); }
  uint64_t remaining(Local state, Reg reg, const Lengths& lengths) override;
  uint64_t max_remaining(RuleBounds&) override;
  uint64_t max_to_differ(RuleBounds&) override;
  uint64_t max_growth(Local state, Reg reg, const Lengths& lengths) override;
  ByteSet likely_bytes(Local state, Reg reg) override;
  uint64_t count_values(Local state, Reg reg, const ParseTable&) override;

 private:
  /// Guards: a byte of a label, beyond ASCII the first and the last byte of a character, the dot after a label, the
  /// last hyphen of the mark of an A-label, a byte of this label, and the byte after it.
  enum Action : Guard { kAscii = 1, kLead, kLetter, kDot, kMark, kAppend, kEndEncoded };
  static constexpr Guard kAction = 7, kIncomplete = 8;  ///< ... and that the name cannot end after a byte
  static constexpr int kKindsShift = 4;                 ///< ... and the kinds that an A-label may have

  /// Kinds of an A-label at a state; 0 outside of one.
  LabelKinds kinds(Local state) const;
  /// The guard of the bytes of a range, which all have the same.
  Guard guard(const StateRow& from, uint8_t first, State to) const;
  void expand_encoded(const StateRow& row, LabelKinds kinds, Expansion& out) const;

  /// Shortest rest of an A-label; the reference is valid up to the next call.
  const std::string& rest(const std::string& text, LabelKinds kinds);

  AutomatonPtr names_;
  std::map<std::pair<std::string, LabelKinds>, std::string> rests_;
  std::unordered_map<State, uint64_t> remaining_;
  WildcardFinder texts_{[this](State state) -> const StateRow& { return names_->row(state); },
                        [this](State state) { return kinds(state) == 0 ? 0 : kInfinite; },
                        [this](State state) { return names_->accepting(state); }};
};

}  // namespace constrain::json
