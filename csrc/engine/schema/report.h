// What a compiled schema enforces, and where it had to depart from the text of the schema.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/errors.h"
#include "engine/schema/document.h"

namespace constrain::schema {

struct Report {
  struct Entry {
    Place place;
    std::string keyword, note;
  };
  std::vector<Entry> enforced;  ///< exactly as the specification says
  std::vector<Entry> narrowed;  ///< by a strict subset: every output is valid, some valid documents are never made
  std::vector<Entry> ignored;   ///< not at all
};

/// Gathers a report while a schema is compiled. What is enforced may turn out to be narrowed, or ignored, later on.
class Findings {
 public:
  void enforced(NodeId node, std::string_view keyword) { found_.push_back({&Report::enforced, node, keyword, ""}); }
  void narrowed(NodeId node, std::string_view keyword, std::string note) {
    found_.push_back({&Report::narrowed, node, keyword, std::move(note)});
  }
  void ignored(NodeId node, std::string_view keyword, std::string note) {
    found_.push_back({&Report::ignored, node, keyword, std::move(note)});
  }

  /// Every finding once, in the order in which they were made.
  Report report(const Document& document) const;

 private:
  struct Finding {
    std::vector<Report::Entry> Report::* list;
    NodeId node;
    std::string_view keyword;  ///< of the schema, or of the source code: both outlive this
    std::string note;
  };
  std::vector<Finding> found_;
};

}  // namespace constrain::schema
