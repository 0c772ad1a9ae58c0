// A parser of regular expressions.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "engine/automata/regex/regex.h"
#include "engine/automata/regex/regex_ast.h"
#include "engine/automata/regex/regex_classes.h"
#include "engine/base/errors.h"

namespace constrain::regex {

/// Syntax rules. The `u` rules of ECMA-262 have few escapes; the legacy rules take many characters literally.
enum class Syntax { python, ecma_unicode, ecma_legacy };

/// Throws RegexError.
Ast parse(std::u32string_view pattern, const RegexOptions& options, Syntax syntax);

class Parser {
 public:
  Parser(std::u32string_view pattern, const RegexOptions& options, Syntax syntax);

  Ast parse();

 private:
  struct Flags {
    bool ignore_case, dot_all, multi_line, verbose, ascii = false;
  };

  struct Counts {
    uint32_t low, high;
  };

  /// A class escape (`\d`, `\p{L}`...) is a set, any other escape one character.
  struct ClassItem {
    CharSet set;
    std::optional<char32_t> single;
    bool folds = true;  ///< ignoring case concerns it
  };

  struct Possessive {
    NodeId node;
    size_t at;
  };

  // regex_parser.cpp: choices, sequences, quantifiers, groups
  void parse_global_flags();
  NodeId parse_choice();
  NodeId parse_sequence();
  void skip_ignored();
  NodeId parse_quantified(NodeId atom, size_t atom_at);
  bool repeatable(std::u32string_view atom) const;
  std::optional<Counts> parse_counts();
  std::optional<Counts> parse_braces();
  std::optional<uint32_t> parse_integer();
  void check_possessive(const std::vector<NodeId>& children);
  bool has_one_length(NodeId node) const;
  [[noreturn]] static void fail_possessive(size_t at);
  bool follows_apart(const std::vector<NodeId>& children, size_t next, const CharSet& set) const;
  NodeId parse_atom();
  NodeId parse_group(size_t open_at);
  NodeId parse_group_body(size_t open_at);
  NodeId parse_until_close(size_t open_at);
  NodeId parse_look(size_t open_at, bool behind, bool negative);
  NodeId parse_flag_group(size_t open_at);
  bool set_flag(Flags& flags, char32_t letter, bool value) const;
  void skip_group_name();

  // regex_escapes.cpp: escapes
  NodeId parse_escape();
  std::optional<NodeId> parse_place_escape(size_t start);
  ClassItem parse_escaped_item(bool in_class);
  std::optional<ClassItem> parse_class_escape();
  CharSet parse_property(size_t start);
  char32_t parse_character_escape(bool in_class);
  char32_t parse_control_escape(size_t start);
  char32_t parse_unicode_escape(size_t start);
  char32_t checked_scalar(char32_t code, size_t start) const;
  char32_t parse_hex(size_t digits, size_t start);
  char32_t parse_digit_escape(char32_t first, bool in_class, size_t start);
  char32_t parse_identity_escape(char32_t letter, bool in_class, size_t start);
  bool is_octal(size_t at) const;

  // regex_sets.cpp: square brackets and assertions
  NodeId parse_set();
  CharSet parse_set_items(size_t open_at);
  ClassItem parse_set_item();
  NodeId add_text_start();
  NodeId add_text_end(size_t at);
  NodeId add_line_start();
  NodeId add_line_end(size_t at);
  NodeId add_dollar(size_t at);

  CharSet folded(CharSet set) const { return flags_.ignore_case ? reader_.fold(set, flags_.ascii) : set; }
  bool python() const { return syntax_ == Syntax::python; }
  bool at_end() const { return at_ == pattern_.size(); }
  bool next_is(std::u32string_view text) const { return pattern_.substr(at_).starts_with(text); }
  bool skip(std::u32string_view text) {
    const bool found = next_is(text);
    if (found) at_ += text.size();
    return found;
  }
  [[noreturn]] static void fail(const std::string& reason, size_t at) { throw RegexError(reason, at); }

  std::u32string_view pattern_;
  Syntax syntax_;
  size_t at_ = 0;
  Flags flags_;
  ClassReader reader_;
  bool in_lookbehind_ = false;
  size_t depth_ = 0;
  std::vector<Possessive> possessive_;  // possessive repeats
  Ast ast_;
};

}  // namespace constrain::regex
