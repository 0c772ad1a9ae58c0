#include "engine/schema/document.h"

#include <algorithm>

#include "engine/errors.h"

namespace constrain::schema {

using json::Value;

namespace {

Dialect dialect_of(const Value& root) {
  const Value* schema = root.find("$schema");
  if (schema && schema->is(Value::Type::string)) {
    const std::string& uri = schema->text;
    if (uri.find("draft-04") != std::string::npos || uri.find("draft-03") != std::string::npos) return Dialect::draft4;
    if (uri.find("draft-06") != std::string::npos) return Dialect::draft6;
    if (uri.find("draft-07") != std::string::npos) return Dialect::draft7;
    if (uri.find("2019-09") != std::string::npos) return Dialect::draft2019;
  }
  return Dialect::draft2020;
}

std::string unescape_token(std::string_view token) {
  std::string out;
  for (size_t i = 0; i < token.size(); ++i) {
    if (token[i] == '~' && i + 1 < token.size() && (token[i + 1] == '0' || token[i + 1] == '1')) {
      out += token[++i] == '0' ? '~' : '/';
    } else {
      out += token[i];
    }
  }
  return out;
}

std::string escape_token(std::string_view token) {
  std::string out;
  for (const char c : token) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

std::string percent_decode(std::string_view text) {
  const auto hex = [](char c) { return c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10; };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size() && std::isxdigit(static_cast<unsigned char>(text[i + 1])) &&
        std::isxdigit(static_cast<unsigned char>(text[i + 2]))) {
      out += static_cast<char>(hex(text[i + 1]) * 16 + hex(text[i + 2]));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::string remove_dot_segments(std::string_view path) {
  std::vector<std::string> segments;
  const bool rooted = path.starts_with('/');
  const bool folder = path.ends_with('/') || path.ends_with("/.") || path.ends_with("/..");
  for (size_t at = 0; at < path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view segment = path.substr(at, end - at);
    if (segment == "..") {
      if (!segments.empty()) segments.pop_back();
    } else if (!segment.empty() && segment != ".") {
      segments.emplace_back(segment);
    }
    at = end + 1;
  }
  std::string out = rooted ? "/" : "";
  for (size_t i = 0; i < segments.size(); ++i) out += (i ? "/" : "") + segments[i];
  if (folder && !segments.empty()) out += '/';
  return out;
}

}  // namespace

std::string join_uri(std::string_view base, std::string_view reference) {
  reference = reference.substr(0, reference.find('#'));
  if (reference.empty()) return std::string(base);
  const size_t colon = reference.find_first_of(":/?");
  if (colon != std::string_view::npos && reference[colon] == ':') return std::string(reference);
  const size_t scheme = base.find(':');
  if (scheme == std::string_view::npos) {
    if (reference.starts_with('/')) return std::string(reference);
    return remove_dot_segments(std::string(base.substr(0, base.rfind('/') + 1)) + std::string(reference));
  }
  const bool has_authority = base.substr(scheme + 1).starts_with("//");
  const size_t path = has_authority ? std::min(base.find('/', scheme + 3), base.size()) : scheme + 1;
  const std::string origin(base.substr(0, path));
  if (reference.starts_with("//")) return std::string(base.substr(0, scheme + 1)) + std::string(reference);
  if (reference.starts_with('/')) return origin + remove_dot_segments(reference);
  const std::string_view rest = base.substr(path);
  std::string merged(rest.substr(0, rest.rfind('/') == std::string_view::npos ? 0 : rest.rfind('/') + 1));
  if (merged.empty() && has_authority) merged = "/";
  return origin + remove_dot_segments(merged + std::string(reference));
}

Document::Document(const Value& root) : dialect_(dialect_of(root)) {
  false_.type = Value::Type::boolean;
  resources_.push_back({&root, 0, join_uri("", id_of(root))});
  add({.value = &root});
}

std::string Document::id_of(const Value& value) const {
  const Value* id = value.find(dialect_ == Dialect::draft4 ? "id" : "$id");
  // Before 2019-09 a reference hides its siblings, `$id` among them.
  if (dialect_ <= Dialect::draft7 && value.find("$ref")) return "";
  return id && id->is(Value::Type::string) ? id->text : "";
}

NodeId Document::add(Node node) {
  nodes_.push_back(std::move(node));
  const auto id = static_cast<NodeId>(nodes_.size() - 1);
  by_value_[{nodes_[id].value, nodes_[id].constant}] = id;
  return id;
}

NodeId Document::child(NodeId parent, std::string step, const Value& value) {
  if (const auto it = by_value_.find({&value, false}); it != by_value_.end()) return it->second;
  uint32_t resource = nodes_[parent].resource;
  const std::string own = id_of(value);
  const bool names_resource = !own.empty() && !own.starts_with('#');
  if (names_resource) {
    resources_.push_back({&value, 0, join_uri(resources_[resource].uri, own)});
    resource = static_cast<uint32_t>(resources_.size() - 1);
  }
  const NodeId id = add({.value = &value, .parent = parent, .step = std::move(step), .resource = resource});
  if (names_resource) resources_[resource].node = id;
  return id;
}

NodeId Document::constant(NodeId parent, std::string step, const Value& value) {
  if (const auto it = by_value_.find({&value, true}); it != by_value_.end()) return it->second;
  return add({.value = &value,
              .parent = parent,
              .step = std::move(step),
              .resource = nodes_[parent].resource,
              .constant = true});
}

NodeId Document::nothing() { return child(0, "", false_); }

std::string Document::pointer(NodeId id) const {
  std::string out;
  for (; id != 0; id = nodes_[id].parent) {
    if (nodes_[id].value != &false_) out = "/" + nodes_[id].step + out;
  }
  return out;
}

void Document::index(NodeId root) {
  std::vector<NodeId> stack{root};
  while (!stack.empty()) {
    const NodeId id = stack.back();
    stack.pop_back();
    const Value& value = *nodes_[id].value;
    const uint32_t resource = nodes_[id].resource;
    for (const char* keyword : {"$anchor", "$dynamicAnchor"}) {
      const Value* anchor = value.find(keyword);
      if (anchor && anchor->is(Value::Type::string)) anchors_.try_emplace({resource, anchor->text}, id);
    }
    if (const std::string own = id_of(value); own.starts_with('#')) anchors_.try_emplace({resource, own.substr(1)}, id);
    for (const auto& [key, member] : value.members) {
      if (key != "enum" && key != "const") stack.push_back(child(id, escape_token(key), member));
    }
    for (size_t i = 0; i < value.items.size(); ++i) stack.push_back(child(id, std::to_string(i), value.items[i]));
  }
}

NodeId Document::resolve(NodeId from, const std::string& reference) {
  const size_t hash = reference.find('#');
  const std::string fragment = hash == std::string::npos ? "" : percent_decode(reference.substr(hash + 1));
  uint32_t resource = nodes_[from].resource;
  if (hash != 0) {
    if (!indexed_) index(0), indexed_ = true;
    const std::string uri = join_uri(resources_[resource].uri, reference);
    const auto found =
        std::find_if(resources_.begin(), resources_.end(), [&](const Resource& r) { return r.uri == uri; });
    if (found == resources_.end()) {
      throw SchemaError(SchemaError::Kind::unsupported, pointer(from), "$ref",
                        "the document '" + uri + "' is not part of this schema");
    }
    resource = static_cast<uint32_t>(found - resources_.begin());
  }
  if (fragment.empty()) return resources_[resource].node;
  if (fragment[0] == '/') return follow(resources_[resource].node, fragment, reference, from);
  if (!indexed_) index(0), indexed_ = true;
  if (const auto it = anchors_.find({resource, fragment}); it != anchors_.end()) return it->second;
  throw SchemaError(SchemaError::Kind::invalid, pointer(from), "$ref", "there is no anchor '" + fragment + "'");
}

NodeId Document::follow(NodeId at, std::string_view path, const std::string& reference, NodeId origin) {
  while (!path.empty()) {
    const size_t end = std::min(path.find('/', 1), path.size());
    const std::string token = unescape_token(path.substr(1, end - 1));
    path = path.substr(end);
    const Value& value = *nodes_[at].value;
    const Value* next = value.find(token);
    const bool is_index = !token.empty() && token.size() < 10 && std::all_of(token.begin(), token.end(), ::isdigit);
    if (value.is(Value::Type::array) && is_index && std::stoul(token) < value.items.size()) {
      next = &value.items[std::stoul(token)];
    }
    if (!next) {
      throw SchemaError(SchemaError::Kind::invalid, pointer(origin), "$ref",
                        "'" + reference + "' leads nowhere: there is no '" + token + "'");
    }
    at = child(at, escape_token(token), *next);
  }
  return at;
}

}  // namespace constrain::schema
