// Mask hints of an object rule: wildcard regions within keys, and cache keys of frames.
#pragma once

#include <string>
#include <vector>

#include "engine/automata/wildcard_finder.h"
#include "engine/json/object/object_position.h"
#include "engine/json/object/object_state.h"
#include "engine/json/whitespace.h"

namespace constrain::json {

class ObjectMaskHints final : public MaskHints {
 public:
  ObjectMaskHints(const ObjectShape& shape, const ObjectState& state, const WhitespaceRun& whitespace)
      : shape_(shape), state_(state), whitespace_(whitespace) {}

  WildcardRegion wildcard_region(Local state, Reg reg) override;
  bool skip_wildcard(Local state, Reg& reg, Registers& registers, std::vector<std::string>& exceptions) override;
  std::optional<OpenWords> open_words(Local state, Reg reg) const override;
  bool describe(Local state, Reg reg, uint64_t horizon, std::vector<uint64_t>& out) const override;
  bool outline(Local state, Reg reg, std::vector<uint64_t>& out) const override;
  bool uses_depth() const override { return whitespace_.indents(); }
  bool shares_registers(Local from, Local to) const override {
    return ObjectPosition::of(from).phase == ObjectPosition::key && ObjectPosition::of(to).phase == ObjectPosition::key;
  }
  bool same_register(Reg one, Reg other) const override;

 private:
  WildcardFinder& texts(uint32_t key_class) const {
    return shape_.spec.others[shape_.possible_others[key_class]].keys->texts();
  }
  static void append_key(Local state, Reg used, Reg reg, std::vector<uint64_t>& out);
  void add_wanted(const std::string& text, std::vector<std::string>& exceptions) const;
  void add_exceptions(Reg used, Reg text, const CharacterClass& within, std::vector<std::string>& exceptions) const;

  const ObjectShape& shape_;
  const ObjectState& state_;
  const WhitespaceRun& whitespace_;
};

}  // namespace constrain::json
