// The report of a compiled schema: enforced, narrowed and ignored keywords.
#pragma once

#include <memory>
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
  std::vector<Entry> narrowed;  ///< by a strict subset: every output is valid, some valid documents are excluded
  std::vector<Entry> ignored;   ///< not at all
};

/// Gathers a report during compilation. A finding may later become narrowed, or ignored.
class Findings {
 public:
  Findings() { found_.reserve(8); }

  /// All keywords of a schema: those that other findings do not name are enforced, or ignored in its dialect.
  void read(NodeId node) { found_.push_back({nullptr, node, {}, {}}); }
  void narrowed(NodeId node, std::string_view keyword, std::string note) {
    found_.push_back({&Report::narrowed, node, keyword, std::move(note)});
  }
  void ignored(NodeId node, std::string_view keyword, std::string note) {
    found_.push_back({&Report::ignored, node, keyword, std::move(note)});
  }

  /// Returns every finding once, in order.
  Report report(const Document& document) const;

 private:
  struct Finding {
    std::vector<Report::Entry> Report::* list;  ///< null for all keywords
    NodeId node;
    std::string_view keyword;  ///< belongs to the schema or to the source code, which outlive this
    std::string note;
  };
  static void add_keywords(NodeId node, const Document& document, std::vector<Finding>& out);

  std::vector<Finding> found_;
};

/// The findings about a schema. The report is made on demand, as few callers ask for it.
class Coverage {
 public:
  Coverage(std::shared_ptr<const Document> document, Findings findings)
      : document_(std::move(document)), findings_(std::move(findings)) {}

  const json::Value& schema() const { return document_->schema(); }
  Report report() const { return findings_.report(*document_); }

 private:
  std::shared_ptr<const Document> document_;
  Findings findings_;
};

}  // namespace constrain::schema
