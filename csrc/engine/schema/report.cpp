#include "engine/schema/report.h"

#include <set>
#include <tuple>

namespace constrain::schema {

Report Findings::report(const Document& document) const {
  Report report;
  std::set<std::tuple<const void*, std::string, std::string, std::string_view, std::string_view>> known;
  std::vector<Place> places;
  const NodeId* last = nullptr;
  for (const Finding& one : found_) {
    if (!last || *last != one.node) places = document.places(one.node);
    last = &one.node;
    auto& list = report.*one.list;
    for (const Place& place : places) {
      if (!known.emplace(&list, place.document, place.pointer, one.keyword, one.note).second) continue;
      list.push_back({place, std::string(one.keyword), one.note});
    }
  }
  return report;
}

}  // namespace constrain::schema
