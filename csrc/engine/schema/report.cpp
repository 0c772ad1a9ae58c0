#include "engine/schema/report.h"

#include <set>
#include <tuple>

namespace constrain::schema {

void Findings::add_keywords(NodeId node, const Document& document, std::vector<Finding>& out) {
  const Schema schema(*document[node].value, document.dialect(node));
  const auto ignore = [&](std::string_view keyword, std::string note) {
    out.push_back({&Report::ignored, node, keyword, std::move(note)});
  };
  for (const auto& [keyword, unused] : schema.conditions()) out.push_back({&Report::enforced, node, keyword, ""});
  for (const Ignored& one : schema.ignored()) ignore(one.name, one.note(document.dialect(node)));
  const auto useless = [&](const char* keyword, bool alone, const char* note) {
    if (alone && schema.find(keyword)) ignore(keyword, note);
  };
  const json::Value *items = schema.find("items"), *required = schema.find("required");
  for (const char* keyword : {"then", "else"}) useless(keyword, !schema.find("if"), "no effect without 'if'");
  for (const char* keyword : {"minContains", "maxContains"}) {
    useless(keyword, !schema.find("contains"), "no effect without 'contains'");
  }
  const bool listed = items && items->is(json::Value::Type::array);
  useless("additionalItems", !listed, "no effect but beside a list of 'items'");
  const bool flag = required && required->is(json::Value::Type::boolean);
  useless("required", flag, "no list of names, as in draft 3");
}

Report Findings::report(const Document& document) const {
  std::vector<Finding> found;
  for (const Finding& one : found_) {
    if (one.list) {
      found.push_back(one);
    } else {
      add_keywords(one.node, document, found);
    }
  }
  // A schema in several dynamic scopes is reported once.
  using Subject = std::tuple<const json::Value*, uint32_t, std::string_view>;
  const auto subject = [&](const Finding& one) {
    const Node& node = document[one.node];
    return Subject(node.value, node.resource, one.keyword);
  };
  std::set<Subject> departures;
  for (const Finding& one : found) {
    if (one.list != &Report::enforced) departures.insert(subject(one));
  }
  Report report;
  std::set<std::tuple<Subject, const void*, std::string_view>> seen;
  for (const Finding& one : found) {
    auto& list = report.*one.list;
    if (one.list == &Report::enforced && departures.contains(subject(one))) continue;
    if (!seen.emplace(subject(one), &list, one.note).second) continue;
    for (Place& place : document.places(one.node)) {
      list.push_back({std::move(place), std::string(one.keyword), one.note});
    }
  }
  return report;
}

}  // namespace constrain::schema
