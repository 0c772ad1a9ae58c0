#include "engine/automata/regex/regex.h"

#include <stdexcept>

#include "engine/automata/regex/regex_automaton.h"
#include "engine/automata/regex/regex_parser.h"
#include "engine/base/errors.h"

namespace constrain {

namespace {

std::u32string decode_pattern(std::string_view pattern) {
  try {
    return decode_utf8(pattern);
  } catch (const std::invalid_argument&) {
    throw RegexError("the pattern is not well-formed UTF-8", 0);
  }
}

/// Parses ECMA-262 patterns by the rules of the `u` flag, or else by the legacy rules.
regex::Ast parse_in_dialect(std::u32string_view pattern, const RegexOptions& options) {
  if (options.dialect == Dialect::python) return regex::parse(pattern, options, regex::Syntax::python);
  try {
    return regex::parse(pattern, options, regex::Syntax::ecma_unicode);
  } catch (const RegexError&) {
    return regex::parse(pattern, options, regex::Syntax::ecma_legacy);
  }
}

}  // namespace

PartialPattern compile_partial_regex(std::string_view pattern) {
  const std::u32string scalars = decode_pattern(pattern);
  const regex::Ast ast = regex::parse(scalars, {.leftmost_first = true}, regex::Syntax::python);
  auto automaton = std::make_shared<regex::RegexAutomaton>(regex::compile(ast, false, false), true);
  return {automaton, automaton->watched()};
}

AutomatonPtr compile_regex(std::string_view pattern, const RegexOptions& options) {
  const std::u32string scalars = decode_pattern(pattern);
  const regex::Ast ast = parse_in_dialect(scalars, options);
  const bool ordered = options.leftmost_first && !options.search;
  return std::make_shared<regex::RegexAutomaton>(regex::compile(ast, options.search, !ordered), ordered);
}

}  // namespace constrain
