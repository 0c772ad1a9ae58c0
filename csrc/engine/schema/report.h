// What a compiled schema enforces, and where it had to depart from the text of the schema.
#pragma once

#include <string>
#include <vector>

namespace constrain::schema {

struct Report {
  struct Entry {
    std::string pointer, keyword, note;
    bool operator==(const Entry&) const = default;
  };
  std::vector<Entry> enforced;  ///< exactly as the specification says
  std::vector<Entry> narrowed;  ///< by a strict subset: every output is valid, some valid documents are never made
  std::vector<Entry> ignored;   ///< not at all

  void add(std::vector<Entry>& list, std::string pointer, std::string keyword, std::string note = "") {
    Entry entry{std::move(pointer), std::move(keyword), std::move(note)};
    if (list.empty() || !(list.back() == entry)) list.push_back(std::move(entry));
  }
};

}  // namespace constrain::schema
