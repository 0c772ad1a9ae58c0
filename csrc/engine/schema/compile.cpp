#include "engine/schema/compile.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory_resource>
#include <set>
#include <unordered_map>

#include "engine/automata/lazy.h"
#include "engine/base/errors.h"
#include "engine/grammar/automaton_rule.h"
#include "engine/json/array_rule.h"
#include "engine/json/object/object_rule.h"
#include "engine/schema/normalise.h"
#include "engine/schema/scalar_rules.h"

namespace constrain::schema {

namespace {

/// Most classes of keys that the patterns of one object may form.
constexpr size_t kMaxKeyClasses = 256;

class Compiler {
 public:
  Compiler(Document& document, const Options& options, Grammar& grammar)
      : options_(options),
        grammar_(grammar),
        scalars_(grammar),
        document_(document),
        normaliser_(document_, conjunctions_, findings_, options.plain_integers, options.lenient, options.limits,
                    options.sources, &memory_) {}

  Findings run() && {
    build();
    return std::move(findings_);
  }

  /// Explains an unsatisfiable schema: follows required values down to a contradiction.
  SchemaError conflict() && {
    build();
    const Lengths lengths = grammar_.shortest_words();
    ConjunctionId id = conjunctions_.single({document_.root()});
    std::set<ConjunctionId> seen{nothing()};  // an implicit `false` has no place of its own
    for (std::optional<ConjunctionId> next = id; next && seen.insert(*next).second; next = missing(id, lengths))
      id = *next;
    const Normaliser::Conflict at = normaliser_.conflict(id);
    const std::string keyword = *at.keyword ? at.keyword : culprit(id);
    return {SchemaError::Kind::unsatisfiable, document_.place(at.node), keyword, reason(id, at, keyword)};
  }

 private:
  void build() {
    grammar_.root = rule(conjunctions_.single({document_.root()}));
    for (size_t next = 0; next < queue_.size(); ++next) {
      current_ = queue_[next];
      try {
        fill(current_);
      } catch (ResourceLimit& limit) {
        if (!limit.place) limit.place = document_.place(conjunctions_[current_].front().node);
        throw;
      }
    }
  }

  /// Finds a required value of a conjunction that has no instances.
  std::optional<ConjunctionId> missing(ConjunctionId id, const Lengths& lengths) {
    const Cells& cells = normaliser_.conjunction(id);
    if (cells.empty()) {
      const ConjunctionId within = normaliser_.conflict(id).within;
      return within == 0 ? std::nullopt : std::optional(within);
    }
    const auto find = [&](const std::vector<ConjunctionId>& values) -> std::optional<ConjunctionId> {
      const auto lacks = [&](ConjunctionId value) {
        const bool has_rule = value < rules_.size() && rules_[value].body;
        return has_rule ? lengths[rules_[value].id] == kInfinite : normaliser_.empty(value);
      };
      const auto found = std::ranges::find_if(values, lacks);
      return found == values.end() ? std::nullopt : std::optional(*found);
    };
    for (const ObjectCell& cell : cells.objects) {
      if (const auto found = find(needed(cell, conjunctions_))) return found;
    }
    for (const ArrayCell& cell : cells.arrays) {
      if (const auto found = find(needed(cell))) return found;
    }
    return std::nullopt;
  }

  /// Guesses the keyword that cannot hold, if no value shows it.
  std::string culprit(ConjunctionId id) const {
    static constexpr const char* kSuspects[] = {"pattern",
                                                "format",
                                                "minLength",
                                                "maxLength",
                                                "multipleOf",
                                                "minimum",
                                                "exclusiveMinimum",
                                                "maximum",
                                                "exclusiveMaximum",
                                                "contains",
                                                "uniqueItems",
                                                "minItems",
                                                "maxItems",
                                                "propertyNames",
                                                "minProperties",
                                                "maxProperties",
                                                "dependentRequired",
                                                "required",
                                                "not"};
    const Literal& literal = conjunctions_[id].front();
    const Node& node = document_[literal.node];
    if (conjunctions_[id].size() > 1 || literal.negated || node.kind != Node::Kind::schema) return "";
    const Schema schema(*node.value, document_.dialect(literal.node));
    const auto found = std::ranges::find_if(kSuspects, [&](const char* keyword) { return schema.find(keyword); });
    return found == std::end(kSuspects) ? "" : *found;
  }

  /// What the report says of a keyword that is narrowed: without that there might be values.
  std::string narrowing(NodeId node, const std::string& keyword) const {
    const Place place = document_.place(node);
    for (const Report::Entry& entry : findings_.report(document_).narrowed) {
      if (entry.place == place && entry.keyword == keyword) return "; it is narrowed: " + entry.note;
    }
    return "";
  }

  std::string reason(ConjunctionId id, const Normaliser::Conflict& at, const std::string& keyword) const {
    if (!keyword.empty()) {
      return "no value satisfies this keyword together with the others of its schema" + narrowing(at.node, keyword);
    }
    const std::span<const Literal> literals = conjunctions_[id];
    if (literals.size() == 1) {
      return literals.front().negated ? "every value satisfies this schema, and none may"
                                      : "no value satisfies this schema";
    }
    std::string reason;
    for (const Literal& one : literals) {
      const Place place = document_.place(one.node);
      reason += (reason.empty() ? "" : " and ") + std::string(one.negated ? "not " : "");
      reason += one.node == at.node ? "this schema" : place.document + "#" + place.pointer;
    }
    return "no value satisfies " + reason;
  }

  /// Returns the rule of a conjunction; its body is made later, so that schemas may be recursive.
  RuleId rule(ConjunctionId id) {
    if (id >= rules_.size()) rules_.resize(id + 1);
    Choice& choice = rules_[id];
    if (!choice.body) {
      auto body = std::make_unique<UnionRule>();
      choice.body = body.get();
      choice.id = grammar_.add(std::move(body));
      queue_.push_back(id);
    }
    return choice.id;
  }

  void fill(ConjunctionId id) {
    const Cells& cells = normaliser_.conjunction(id);
    std::vector<RuleId> alternatives;
    scalars_.add(cells, alternatives);
    for (const ArrayCell& cell : cells.arrays) alternatives.push_back(array(cell));
    for (const ObjectCell& cell : cells.objects) alternatives.push_back(object(cell));
    rules_[id].body->set(std::move(alternatives));
  }

  RuleId array(const ArrayCell& cell) {
    if (cell.contains.size() > json::ArraySpec::kMaxTallies) {
      throw ResourceLimit("counted_kinds", json::ArraySpec::kMaxTallies, "of items of one array (contains)");
    }
    json::ArraySpec spec{.prefix = {}, .rest = {}, .tallies = {}, .min = cell.min, .max = cell.max};
    if (cell.unique && cell.max > 1) spec.distinct = document_.place(*cell.unique);
    // If a kind of items counts from some index on, the items before it are kept apart.
    size_t prefix = std::min<uint64_t>(cell.prefix.size(), cell.max);
    for (const Contains& contains : cell.contains) {
      spec.tallies.push_back({contains.min, contains.max});
      prefix = std::max<size_t>(prefix, contains.from);
    }
    for (size_t i = 0; i < prefix; ++i)
      spec.prefix.push_back(items(cell, i < cell.prefix.size() ? cell.prefix[i] : cell.rest, i));
    spec.rest = items(cell, cell.rest, prefix);
    return grammar_.add(std::make_unique<json::ArrayRule>(std::move(spec), options_.whitespace, options_.in_order));
  }

  /// Values of an item, by the tallies they add to. The choice is exact for tallies with a maximum, and for all if
  /// items must differ, because kinds of items then have disjoint values; other tallies may leave an item uncounted.
  std::vector<json::ArraySpec::Choice> items(const ArrayCell& cell, ConjunctionId value, size_t index) {
    std::vector<std::pair<ConjunctionId, uint32_t>> found{{value, 0}};
    for (size_t i = 0; i < cell.contains.size(); ++i) {
      const Contains& contains = cell.contains[i];
      if (index < contains.from) continue;
      std::vector<std::pair<ConjunctionId, uint32_t>> next;
      for (const auto& [conjunction, tallies] : found) {
        const ConjunctionId counted = conjunctions_.join(conjunction, contains.schema);
        next.emplace_back(counted, tallies | 1u << i);
        if (counted == conjunction) continue;
        const bool exact = contains.max != kInfinite || cell.unique.has_value();
        next.emplace_back(exact ? conjunctions_.join(conjunction, negation(contains.schema)) : conjunction, tallies);
      }
      found = std::move(next);
    }
    std::vector<json::ArraySpec::Choice> out;
    for (const auto& [conjunction, tallies] : found) out.push_back({rule(conjunction), tallies});
    return out;
  }

  ConjunctionId negation(ConjunctionId id) {
    if (conjunctions_[id].empty()) return nothing();
    Literal literal = conjunctions_[id].front();
    literal.negated = !literal.negated;
    return conjunctions_.single(literal);
  }

  RuleId object(const ObjectCell& cell) {
    json::ObjectSpec spec;
    spec.min = cell.min, spec.max = cell.max, spec.in_order = options_.in_order;
    AutomatonPtr names_language;
    for (const ConjunctionId id : cell.names) {
      const AutomatonPtr one = normaliser_.key_language(id).language;
      names_language = names_language ? intersect(names_language, one) : one;
    }

    std::array<std::byte, 2048> room;
    std::pmr::monotonic_buffer_resource memory(room.data(), room.size());
    std::pmr::unordered_map<std::string_view, uint32_t> index(&memory);
    const auto add_name = [&](std::string_view name) {
      if (index.emplace(name, spec.properties.size()).second) spec.properties.push_back({.name = std::string(name)});
    };
    for (const Members& members : cell.members) {
      spec.properties.reserve(spec.properties.size() + members.named.size());
      for (const auto& [name, unused] : members.named) add_name(name);
    }
    for (const std::string_view name : cell.required) add_name(name);
    for (const auto& [name, needed] : cell.dependents) add_name(name), add_name(needed);
    const MemberValues values(cell, conjunctions_);
    spec.values.reserve(spec.properties.size() + 1);
    for (json::ObjectSpec::Property& property : spec.properties) {
      const bool permitted = !names_language || names_language->contains(property.name);
      const ConjunctionId value = permitted ? values[property.name] : nothing();
      const auto concerns = [&](const Exists& duty) { return duty.keys.language->contains(property.name); };
      property.choices = choices(cell, value, concerns, spec);
    }
    for (const std::string_view name : cell.required) spec.properties[index.at(name)].required = true;
    for (const auto& [name, needed] : cell.dependents) spec.dependents.emplace_back(index.at(name), index.at(needed));
    if (cell.exists.size() > json::ObjectSpec::kMaxDuties) {
      throw ResourceLimit("duties", json::ObjectSpec::kMaxDuties, "of one object to have certain members");
    }
    spec.duties = (1u << cell.exists.size()) - 1;
    add_others(cell, names_language, spec);
    if (!spec.dependents.empty() && spec.others.empty() && spec.min > 0 && spec.max != kInfinite) {
      leave_out_dependents(spec);
    }
    return grammar_.add(std::make_unique<json::ObjectRule>(std::move(spec), options_.whitespace));
  }

  void leave_out_dependents(json::ObjectSpec& spec) {
    const char* const reason = "together with minProperties and maxProperties of a closed object it cannot be enforced";
    const auto has = [&](const char* keyword) {
      return [this, keyword](const Literal& one) {
        const Node& node = document_[one.node];
        return node.kind == Node::Kind::schema && node.value->find(keyword);
      };
    };
    const std::span<const Literal> literals = conjunctions_[current_];
    const char* keyword = "dependentRequired";
    auto where = std::ranges::find_if(literals, has(keyword));
    if (where == literals.end()) {
      where = std::ranges::find_if(literals, has("dependencies"));
      if (where != literals.end()) keyword = "dependencies";
    }
    const NodeId node = where == literals.end() ? literals.front().node : where->node;
    if (!options_.lenient) throw SchemaError(SchemaError::Kind::unsupported, document_.place(node), keyword, reason);
    findings_.ignored(node, keyword, reason);
    spec.dependents.clear();
  }

  /// Adds the values of a member, by the duties of its object they fulfil. Duties that every value fulfils are no
  /// choice.
  template <class Concerns>
  json::ObjectSpec::Choices choices(const ObjectCell& cell, ConjunctionId value, const Concerns& concerns,
                                    json::ObjectSpec& spec) {
    const auto first = static_cast<uint32_t>(spec.values.size());
    if (cell.exists.empty()) {
      spec.values.push_back({rule(value)});
      return {first, 1};
    }
    uint32_t always = 0;
    std::vector<std::pair<ConjunctionId, uint32_t>> found{{value, 0}};
    for (size_t i = 0; i < std::min(cell.exists.size(), json::ObjectSpec::kMaxDuties); ++i) {
      if (!concerns(cell.exists[i])) continue;
      const uint32_t bit = 1u << i;
      if (conjunctions_.join(value, cell.exists[i].value) == value) {
        always |= bit;
        continue;
      }
      for (size_t k = found.size(); k-- > 0;) {
        found.emplace_back(conjunctions_.join(found[k].first, cell.exists[i].value), found[k].second | bit);
      }
    }
    for (const auto& [conjunction, duties] : found) spec.values.push_back({rule(conjunction), duties | always});
    return {first, static_cast<uint32_t>(found.size())};
  }

  /// True if few keys begin like some name: only then it makes a difference whether they hold the names.
  static bool few_continue(const AutomatonPtr& keys, const json::ObjectSpec& spec) {
    const uint64_t many = json::KeyAutomaton::kManyWords + spec.properties.size();
    WordCounter words(keys, many);
    return std::ranges::any_of(spec.properties, [&](const auto& property) {
      const std::string& name = property.name;
      State at = keys->start();
      for (size_t i = 0; at != kDead; ++i) {
        if (words.count(at) < many) return true;
        if (i == name.size()) return false;
        at = keys->row(at)[static_cast<uint8_t>(name[i])];
      }
      return false;
    });
  }

  /// Objects with one automaton of keys share what is found about it.
  json::KeyLanguagePtr key_language(const AutomatonPtr& keys) {
    json::KeyLanguagePtr& language = key_languages_[keys.get()];
    if (!language) language = std::make_shared<json::KeyLanguage>(keys);
    return language;
  }

  /// Sorts keys that are no names into classes by the patterns they match.
  void add_others(const ObjectCell& cell, const AutomatonPtr& names_language, json::ObjectSpec& spec) {
    const JointSearches searches(kSearchBudget, "where the patterns of patternProperties overlap");
    struct Class {
      AutomatonPtr keys;
      std::vector<std::string> matched;
      bool with_names = true;  ///< may hold names
    };
    AutomatonPtr names_set;
    const auto drop_names = [&](Class& one) {
      if (!one.with_names || one.keys == any_text_ || !few_continue(one.keys, spec)) return;
      if (!names_set) {
        std::vector<std::string_view> names;
        for (const auto& property : spec.properties) names.push_back(property.name);
        names_set = literal_set(std::move(names));
      }
      one = {subtract(one.keys, names_set), std::move(one.matched), false};
    };
    std::vector<Class> classes{{names_language ? names_language : any_text_, {}}};
    std::vector<std::string> seen;
    const auto in = [](const Class& one, const Content& keys) {
      return std::ranges::find(one.matched, keys.id) != one.matched.end();
    };
    // `apart` has no keys in common with `pattern`.
    const auto split = [&](const Content& pattern, const Content* apart = nullptr) {
      if (std::find(seen.begin(), seen.end(), pattern.id) != seen.end()) return;
      if (seen.empty()) drop_names(classes.front());
      seen.push_back(pattern.id);
      std::vector<Class> parts;
      for (const Class& one : classes) {
        if (apart && in(one, *apart)) {
          parts.push_back(one);
          continue;
        }
        const bool any = one.keys == any_text_;
        Class inside{any ? pattern.language : intersect(one.keys, pattern.language), one.matched, one.with_names};
        Class outside{subtract(one.keys, pattern.language), one.matched, one.with_names};
        inside.matched.push_back(pattern.id);
        if (!is_empty(*inside.keys)) drop_names(inside);
        for (Class* part : {&inside, &outside}) {
          if (!is_empty(*part->keys)) parts.push_back(std::move(*part));
        }
      }
      classes = std::move(parts);
      if (classes.size() > kMaxKeyClasses) {
        throw ResourceLimit("key_classes", kMaxKeyClasses, "where the patterns of patternProperties overlap");
      }
    };
    for (const Members& members : cell.members) {
      for (const KeyPattern& pattern : members.patterns) {
        // Where any value may follow, whether a key matches the pattern or not, it tells no keys apart.
        if (pattern.schema == 0 && members.additional == 0) continue;
        split(pattern.keys);
        if (pattern.doubtful) split(*pattern.doubtful, &pattern.keys);
      }
    }
    for (const Exists& duty : cell.exists) split(duty.keys);
    for (Class& one : classes) {
      ConjunctionId value = 0;
      for (const Members& members : cell.members) {
        bool found = false;
        for (const KeyPattern& pattern : members.patterns) {
          const bool matched = in(one, pattern.keys);
          if (matched || (pattern.doubtful && in(one, *pattern.doubtful)))
            value = conjunctions_.join(value, pattern.schema);
          found |= matched;
        }
        if (!found) value = conjunctions_.join(value, members.additional);
      }
      if (is_nothing(value)) continue;
      drop_names(one);
      if (is_empty(*one.keys)) continue;
      const auto concerns = [&](const Exists& duty) { return in(one, duty.keys); };
      spec.others.push_back({key_language(one.keys), choices(cell, value, concerns, spec)});
    }
  }

  ConjunctionId nothing() { return conjunctions_.single({document_.nothing()}); }
  bool is_nothing(ConjunctionId id) {
    const auto literals = conjunctions_[id];
    return std::any_of(literals.begin(), literals.end(), [&](const Literal& one) {
      const Node& node = document_[one.node];
      return node.kind == Node::Kind::schema && node.value->is(json::Value::Type::boolean) &&
             node.value->boolean == one.negated;
    });
  }

  /// The rule of a conjunction.
  struct Choice {
    RuleId id = 0;
    UnionRule* body = nullptr;  ///< null if there is none yet
  };

  // Tables whose many small entries are freed together; those of most schemas need no other memory.
  std::array<std::byte, 8192> room_;
  std::pmr::monotonic_buffer_resource memory_{room_.data(), room_.size()};
  const Options& options_;
  Grammar& grammar_;
  ScalarRules scalars_;
  Document& document_;
  Conjunctions conjunctions_{&memory_};
  Findings findings_;
  Normaliser normaliser_;
  std::pmr::vector<Choice> rules_{&memory_};         // by conjunction
  std::pmr::vector<ConjunctionId> queue_{&memory_};  // conjunctions with a rule, in the order in which they are filled
  AutomatonPtr any_text_ = any_text();               // the keys of most objects
  std::unordered_map<Automaton*, json::KeyLanguagePtr> key_languages_;
  ConjunctionId current_ = 0;  // the conjunction whose rule is being made
};

}  // namespace

Coverage compile(json::Tree schema, const Options& options, Grammar& grammar) {
  const auto document = std::make_shared<Document>(std::move(schema), options.retrieve, options.formats);
  Findings findings = Compiler(*document, options, grammar).run();
  document->close();
  return {document, std::move(findings)};
}

ByteSet first_bytes() {
  ByteSet bytes;
  for (const char byte : std::string_view("{[\"-0123456789tfn")) bytes.add(static_cast<uint8_t>(byte));
  return bytes;
}

SchemaError conflict(const json::Value& schema, const Options& options) {
  Grammar grammar;
  Document document({.root = schema}, options.retrieve, options.formats);
  return Compiler(document, options, grammar).conflict();
}

}  // namespace constrain::schema
