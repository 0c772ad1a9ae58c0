#include "engine/schema/evaluation.h"

#include <algorithm>

#include "engine/base/leave.h"
#include "engine/schema/steps.h"

namespace constrain::schema {

namespace {

using Type = json::Value::Type;
using Parts = std::vector<Evaluated>;

Parts joined(Parts a, Parts b) {
  std::ranges::move(b, std::back_inserter(a));
  return a;
}

}  // namespace

Parts Evaluation::split(NodeId id, const Schema& schema, Cells documents) {
  Parts parts{{.documents = std::move(documents)}};
  parts = through_others(id, schema, std::move(parts));
  const Value* any = schema.find("anyOf");
  if (!any) return parts;
  const Value* rest = schema.find("unevaluatedProperties");
  const bool closed = mode_ == Mode::enough && of_ == Of::members && rest->is(Type::boolean) && !rest->boolean;
  return closed && add_implying(id, *any, parts) ? parts : any_of(id, *any, std::move(parts));
}

Parts Evaluation::refine(NodeId id, Parts parts) {
  if (!evaluates(id)) return parts;
  if (!under_way_.insert(id).second) {
    normaliser_.invalid(id, "$ref", "the reference leads back to itself without entering a value");
  }
  const Leave leave{[&] { under_way_.erase(id); }};
  const Schema schema = normaliser_.read(id);
  const char* own = of_ == Of::members ? "unevaluatedProperties" : "unevaluatedItems";
  if (schema.find(own)) {
    for (Evaluated& part : parts) part.all = true;
    return parts;
  }
  return through(id, schema, std::move(parts));
}

Parts Evaluation::through(NodeId id, const Schema& schema, Parts parts) {
  parts = through_others(id, schema, std::move(parts));
  const Value* any = schema.find("anyOf");
  return any ? any_of(id, *any, std::move(parts)) : parts;
}

/// All keywords but `anyOf`, which comes last.
Parts Evaluation::through_others(NodeId id, const Schema& schema, Parts parts) {
  of_ == Of::members ? add_members(id, schema, parts) : add_items(id, schema, parts);
  for (const NodeId target : normaliser_.document_.references(id, schema)) parts = refine(target, std::move(parts));
  if (const Value* all = schema.find("allOf")) {
    for (size_t i = 0; i < all->items.size(); ++i) {
      parts = refine(normaliser_.item(id, "allOf", *all, i), std::move(parts));
    }
  }
  if (const Value* one = schema.find("oneOf")) parts = one_of(id, *one, std::move(parts));
  if (schema.find("if")) parts = condition(id, schema, std::move(parts));
  if (const Value* schemas = schema.find("dependentSchemas")) parts = dependents(id, *schemas, std::move(parts));
  return parts;
}

Parts Evaluation::any_of(NodeId id, const Value& list, Parts none) {
  // If one branch always holds, branches that evaluate nothing need not be told apart.
  bool needless = mode_ == Mode::enough;
  Parts some;
  for (size_t i = 0; i < list.items.size(); ++i) {
    const NodeId branch = normaliser_.item(id, "anyOf", list, i);
    if (!evaluates(branch)) {
      needless = false;
      continue;
    }
    Parts holds = refine(branch, where({branch}, joined(some, none)));
    some = joined(where_not(branch, some), std::move(holds));
    none = where_not(branch, none);
  }
  return needless ? some : joined(std::move(some), std::move(none));
}

bool Evaluation::add_implying(NodeId id, const Value& list, Parts& parts) {
  std::vector<std::pair<std::string_view, ConjunctionId>> found;
  std::set<std::string_view> names;
  for (size_t i = 0; i < list.items.size(); ++i) {
    const NodeId branch = normaliser_.item(id, "anyOf", list, i);
    if (!evaluates(branch)) continue;
    const auto own = implying(branch);
    if (!own) return false;
    for (const auto& member : *own) {
      if (!names.insert(member.first).second) return false;
      found.push_back(member);
    }
  }
  const auto evaluated = [&](const Evaluated& part, std::string_view name) {
    return part.names.contains(name) ||
           std::ranges::any_of(part.patterns, [&](const Content& keys) { return keys.language->contains(name); });
  };
  for (const Evaluated& part : parts) {
    if (std::ranges::any_of(names, [&](std::string_view name) { return evaluated(part, name); })) return false;
  }
  for (Evaluated& part : parts) part.implying = found;
  return true;
}

std::optional<std::vector<std::pair<std::string_view, ConjunctionId>>> Evaluation::implying(NodeId branch) {
  const Parts alone = refine(branch, {{.documents = Cells::everything()}});
  const Cells& cells = normaliser_.literal({branch});
  if (alone.size() != 1 || alone.front().all || !alone.front().patterns.empty() || cells.objects.size() != 1) {
    return std::nullopt;
  }
  const std::set<std::string_view>& names = alone.front().names;
  const ObjectCell& cell = cells.objects.front();
  const bool plain = cell == ObjectCell{.members = cell.members, .required = cell.required};
  const bool follows = cell.required.empty() || (names.size() == 1 && std::ranges::equal(cell.required, names));
  const auto concerns_others = [&](const Members& members) {
    return !members.patterns.empty() || members.additional != 0 ||
           std::ranges::any_of(members.named, [&](auto& one) { return one.second != 0 && !names.contains(one.first); });
  };
  if (!plain || !follows || std::ranges::any_of(cell.members, concerns_others)) return std::nullopt;
  const MemberValues values(cell, normaliser_.conjunctions_);
  std::vector<std::pair<std::string_view, ConjunctionId>> found;
  for (const std::string_view name : names) found.emplace_back(name, values[name]);
  return found;
}

Parts Evaluation::one_of(NodeId id, const Value& list, Parts parts) {
  Parts none = parts, out;
  bool needless = mode_ == Mode::enough;
  for (size_t i = 0; i < list.items.size(); ++i) {
    const NodeId branch = normaliser_.item(id, "oneOf", list, i);
    if (!evaluates(branch)) {
      needless = false;
      continue;
    }
    out = joined(std::move(out), refine(branch, where({branch}, parts)));
    none = where_not(branch, none);
  }
  return needless ? out : joined(std::move(out), std::move(none));
}

Parts Evaluation::condition(NodeId id, const Schema& schema, Parts parts) {
  const NodeId test = normaliser_.part(id, "if", *schema.find("if"));
  const auto branch = [&](const char* keyword) -> std::optional<NodeId> {
    const Value* value = schema.find(keyword);
    const auto node = value ? std::optional(normaliser_.part(id, keyword, *value)) : std::nullopt;
    return node && evaluates(*node) ? node : std::nullopt;
  };
  const auto then = branch("then"), otherwise = branch("else");
  if (!evaluates(test) && !then && !otherwise) return parts;
  Parts holds = refine(test, where({test}, parts));
  if (then) holds = refine(*then, std::move(holds));
  if (!otherwise) return joined(std::move(holds), where_not(test, parts));
  return joined(std::move(holds), refine(*otherwise, where({test, true}, parts)));
}

Parts Evaluation::dependents(NodeId id, const Value& schemas, Parts parts) {
  for (const auto& [name, value] : schemas.members) {
    const NodeId schema = normaliser_.document_.child(id, member_step("dependentSchemas", name), value);
    if (!evaluates(schema)) continue;
    const Cells present = only(ObjectCell{.required = {name}});
    Cells absent = Cells::everything();
    absent.objects = {{.members = {{.named = {{name, normaliser_.nothing()}}}}}};
    Parts holds = refine(schema, among(present, parts));
    parts = joined(std::move(holds), among(absent, parts));
  }
  return parts;
}

Parts Evaluation::where(Literal literal, const Parts& parts) { return among(normaliser_.literal(literal), parts); }

Parts Evaluation::among(const Cells& cells, const Parts& parts) {
  Parts out;
  uint64_t found = 0;
  for (const Evaluated& part : parts) {
    Evaluated both = part;
    both.documents = normaliser_.meet(part.documents, cells);
    found += both.documents.count();
    if (found > normaliser_.limits_.max_cells) normaliser_.refuse_cells();
    if (!both.documents.empty()) out.push_back(std::move(both));
  }
  return out;
}

// ---- Evaluation of one schema.

std::vector<NodeId> Evaluation::in_place(NodeId id, const Schema& schema) {
  std::vector<NodeId> found = normaliser_.document_.references(id, schema);
  for (const char* keyword : {"allOf", "anyOf", "oneOf"}) {
    const Value* list = schema.find(keyword);
    for (size_t i = 0; list && i < list->items.size(); ++i) found.push_back(normaliser_.item(id, keyword, *list, i));
  }
  for (const char* keyword : {"if", "then", "else"}) {
    if (const Value* value = schema.find(keyword)) found.push_back(normaliser_.part(id, keyword, *value));
  }
  if (const Value* schemas = schema.find("dependentSchemas")) {
    for (const auto& [name, value] : schemas->members) {
      found.push_back(normaliser_.document_.child(id, member_step("dependentSchemas", name), value));
    }
  }
  return found;
}

bool Evaluation::evaluates_itself(const Schema& schema) const {
  static constexpr const char* kMembers[] = {"properties", "patternProperties", "additionalProperties",
                                             "unevaluatedProperties"};
  static constexpr const char* kItems[] = {"items", "prefixItems", "contains", "unevaluatedItems"};
  const auto there = [&](const char* keyword) { return schema.find(keyword) != nullptr; };
  return of_ == Of::members ? std::ranges::any_of(kMembers, there) : std::ranges::any_of(kItems, there);
}

bool Evaluation::evaluates(NodeId id) {
  const auto [it, added] = evaluates_.try_emplace(id, false);
  if (!added || !normaliser_.document_[id].value->is(Type::object)) return it->second;
  const Schema schema = normaliser_.read(id);
  const std::vector<NodeId> within = in_place(id, schema);
  const bool found =
      evaluates_itself(schema) || std::ranges::any_of(within, [&](NodeId one) { return evaluates(one); });
  return evaluates_[id] = found;
}

void Evaluation::add_members(NodeId id, const Schema& schema, Parts& parts) {
  const Value* properties = schema.find("properties");
  const Value* patterns = schema.find("patternProperties");
  // If interpretations of a pattern differ over a key, it counts as not evaluated; in the search for a violation, as
  // evaluated.
  const Classes classes = mode_ == Mode::enough ? Classes::inner : Classes::outer;
  for (Evaluated& part : parts) {
    if (schema.find("additionalProperties")) part.all = true;
    if (properties) {
      for (const auto& [name, unused] : properties->members) part.names.emplace(name);
    }
    if (!patterns) continue;
    for (const auto& [text, unused] : patterns->members) {
      const auto keys = normaliser_.pattern(id, "patternProperties", text, classes);
      if (!keys) {
        part.all |= mode_ == Mode::enough;  // left out with all that depends on it
      } else if (std::ranges::find(part.patterns, *keys) == part.patterns.end()) {
        part.patterns.push_back(*keys);
      }
    }
  }
}

void Evaluation::add_items(NodeId id, const Schema& schema, Parts& parts) {
  const Value* items = schema.find("items");
  const bool tuple = items && items->is(Type::array);
  const Value* prefix = tuple ? items : schema.find("prefixItems");
  const bool rest = tuple ? schema.find("additionalItems") != nullptr : items != nullptr;
  const bool counts = normaliser_.document_.dialect(id).draft == Draft::draft2020;
  const Value* contains = counts ? schema.find("contains") : nullptr;
  for (Evaluated& part : parts) {
    if (rest) part.all = true;
    if (prefix) part.items = std::max<uint64_t>(part.items, prefix->items.size());
    if (contains) part.contained.push_back(normaliser_.part(id, "contains", *contains));
  }
}

// ---- The keywords.

Cells Normaliser::where_unevaluated(NodeId id, const Schema& schema, Cells cells) {
  const auto restrict = [&](Evaluation::Of of, Cells documents, const auto& condition) {
    Cells found;
    for (Evaluated& part : Evaluation(*this, of, Evaluation::Mode::enough).split(id, schema, std::move(documents))) {
      Cells one = part.all ? std::move(part.documents) : meet(part.documents, condition(part));
      std::ranges::move(one.arrays, std::back_inserter(found.arrays));
      std::ranges::move(one.objects, std::back_inserter(found.objects));
    }
    unite(cells, std::move(found));
  };
  if (const Value* rest = schema.find("unevaluatedProperties")) {
    const ConjunctionId value = subschema(id, {"unevaluatedProperties"}, *rest);
    Cells objects;
    if (value != 0) std::swap(objects.objects, cells.objects);
    restrict(Evaluation::Of::members, std::move(objects), [&](const Evaluated& part) {
      Members members{.additional = value};
      for (const std::string_view name : part.names) members.named.emplace_back(name, 0);
      members.named.insert(members.named.end(), part.implying.begin(), part.implying.end());
      for (const Content& keys : part.patterns) members.patterns.push_back({keys, std::nullopt, 0});
      return only(ObjectCell{.members = {std::move(members)}});
    });
  }
  if (const Value* rest = schema.find("unevaluatedItems")) {
    const ConjunctionId value = subschema(id, {"unevaluatedItems"}, *rest);
    Cells arrays;
    if (value != 0) std::swap(arrays.arrays, cells.arrays);
    restrict(Evaluation::Of::items, std::move(arrays), [&](const Evaluated& part) {
      std::vector<NodeId> allowed = part.contained;
      allowed.push_back(this->part(id, "unevaluatedItems", *rest));
      const ConjunctionId item = part.contained.empty() ? value : conjunctions_.single({document_.any_of(id, allowed)});
      return only(ArrayCell{.prefix = std::vector<ConjunctionId>(part.items, 0), .rest = item});
    });
  }
  return cells;
}

void Normaliser::negate_unevaluated(NodeId id, const Schema& schema, Cells& out) {
  const auto violate = [&](const char* keyword, Evaluation::Of of, std::vector<ArrayCell> arrays,
                           std::vector<ObjectCell> objects, const auto& violation) {
    Cells documents;
    documents.arrays = std::move(arrays), documents.objects = std::move(objects);
    const ConjunctionId wrong = subschema(id, {keyword}, *schema.find(keyword), true);
    if (wrong == nothing()) return;
    for (const Evaluated& part : Evaluation(*this, of, Evaluation::Mode::exact).split(id, schema, documents)) {
      if (!part.all) unite(out, meet(part.documents, violation(part, wrong)));
    }
  };
  if (!schema.find("unevaluatedProperties") && !schema.find("unevaluatedItems")) return;
  Cells others = conditions(id, schema);
  if (schema.find("unevaluatedProperties")) {
    violate("unevaluatedProperties", Evaluation::Of::members, {}, std::move(others.objects),
            [&](const Evaluated& part, ConjunctionId wrong) {
              const Content keys = keys_beyond({part.names.begin(), part.names.end()}, part.patterns);
              return only(ObjectCell{.exists = {{keys, wrong}}, .min = 1});
            });
  }
  if (schema.find("unevaluatedItems")) {
    violate("unevaluatedItems", Evaluation::Of::items, std::move(others.arrays), {},
            [&](const Evaluated& part, ConjunctionId wrong) {
              const std::span<const Literal> all = conjunctions_[wrong];
              std::vector<Literal> literals(all.begin(), all.end());
              for (const NodeId one : part.contained) literals.push_back({one, true});
              const ConjunctionId item = conjunctions_.intern(std::move(literals));
              return only(ArrayCell{.min = part.items + 1, .contains = {{.schema = item, .from = part.items}}});
            });
  }
}

}  // namespace constrain::schema
