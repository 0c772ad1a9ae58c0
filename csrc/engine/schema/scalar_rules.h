// Rules for scalar values.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/automata/automaton.h"
#include "engine/grammar/automaton_rule.h"
#include "engine/grammar/parse_table.h"
#include "engine/json/source_text.h"
#include "engine/schema/cells.h"

namespace constrain::schema {

/// Makes rules for literals, numbers and strings. Equal languages of a grammar share a rule, and a few common ones
/// share an automaton with all grammars.
class ScalarRules {
 public:
  explicit ScalarRules(Grammar& grammar) : grammar_(grammar) {}

  /// Adds the rules that together match the value.
  void add(const Cells& cells, std::vector<RuleId>& alternatives);

 private:
  void add_literals(const Cells& cells, std::vector<RuleId>& out);
  void add_numbers(const std::vector<NumberCell>& cells, std::vector<RuleId>& out);
  void add_strings(const std::vector<StringCell>& cells, std::vector<RuleId>& out);
  RuleId bounded_string(const StringCell& cell);
  RuleId format(std::string_view name, const AutomatonPtr& language);
  RuleId host_name(bool international);
  RuleId free_string(uint64_t min, uint64_t max);
  RuleId verbatim_string(const json::SourceTextPtr& source, uint64_t min, uint64_t max);

  /// Compiles an automaton.
  RuleId regular(AutomatonPtr automaton, Words words = Words::values, std::optional<uint64_t> shortest = std::nullopt);
  template <class Make>
  RuleId shared(const std::string& key, const Make& make, Words words = Words::values);
  /// Compiles one of the common languages, shared by all grammars.
  template <class Make>
  RuleId common(const std::string& key, const Make& make, Words words = Words::values);

  Grammar& grammar_;
  std::map<std::pair<uint64_t, uint64_t>, RuleId> free_strings_;
  std::map<std::tuple<json::SourceTextPtr, uint64_t, uint64_t>, RuleId> verbatim_strings_;
  std::unordered_map<std::string, RuleId> shared_;
};

}  // namespace constrain::schema
