#include "engine/schema/report.h"

#include <set>
#include <tuple>

namespace constrain::schema {

Report Findings::report(const Document& document) const {
  // A schema in several dynamic scopes is reported once.
  using Subject = std::tuple<const json::Value*, uint32_t, std::string_view>;
  const auto subject = [&](const Finding& one) {
    const Node& node = document[one.node];
    return Subject(node.value, node.resource, one.keyword);
  };
  std::set<Subject> departures;
  for (const Finding& one : found_) {
    if (one.list != &Report::enforced) departures.insert(subject(one));
  }
  Report report;
  std::set<std::tuple<Subject, const void*, std::string_view>> seen;
  for (const Finding& one : found_) {
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
