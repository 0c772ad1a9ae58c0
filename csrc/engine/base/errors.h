// Exceptions of the engine. Bindings translate each to the Python exception of the same name.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace constrain {

/// A regular expression does not compile; `offset` counts code points of the pattern.
struct RegexError : std::runtime_error {
  RegexError(const std::string& reason, size_t offset) : std::runtime_error(reason), offset(offset) {}
  size_t offset;
};

/// Place in a schema: a JSON pointer, and the URI of the document if it is not the one that was given.
struct Place {
  std::string pointer = {}, document = {};
  bool operator==(const Place&) const = default;
};

/// A JSON Schema node is wrong, cannot be enforced, or has no instance.
struct SchemaError : std::runtime_error {
  enum class Kind { invalid, unsupported, unsatisfiable };
  SchemaError(Kind kind, Place place, std::string keyword, const std::string& reason)
      : std::runtime_error(reason), kind(kind), place(std::move(place)), keyword(std::move(keyword)) {}
  Kind kind;
  Place place;
  std::string keyword;
};

/// A context-free grammar is not well formed.
struct GrammarError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// No text is in the language of a grammar.
struct EmptyLanguage : GrammarError {
  EmptyLanguage() : GrammarError("no text satisfies this constraint") {}
};

/// A text has no tokenization in the vocabulary.
struct VocabularyError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The token budget is less than the `needed` tokens of a completion.
struct BudgetError : std::runtime_error {
  BudgetError(uint64_t budget, uint64_t needed)
      : std::runtime_error("the text cannot be completed within the budget"), budget(budget), needed(needed) {}
  uint64_t budget, needed;
};

/// A limit was reached. For schemas, `place` is the node under compilation.
struct ResourceLimit : std::runtime_error {
  ResourceLimit(std::string kind, uint64_t limit, std::string where)
      : std::runtime_error("limit " + kind + "=" + std::to_string(limit) + " reached " + where),
        kind(std::move(kind)),
        limit(limit),
        where(std::move(where)) {}
  std::string kind;
  uint64_t limit;
  std::string where;
  std::optional<Place> place = {};
};

}  // namespace constrain
