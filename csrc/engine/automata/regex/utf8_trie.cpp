#include "engine/automata/regex/utf8_trie.h"

#include <algorithm>
#include <array>

namespace constrain {

Utf8Forest::Utf8Forest() {
  nodes_.intern({});
  nodes_.intern(std::array<uint32_t, 1>{0});
  full_[0] = kDone;
  for (size_t i = 1; i < full_.size(); ++i) full_[i] = intern({{0x80, 0xBF, full_[i - 1]}});
}

std::vector<Utf8Forest::Edge> Utf8Forest::edges(Node node) const {
  std::vector<Edge> edges;
  const auto key = nodes_[node];
  for (size_t i = 0; i + 1 < key.size(); i += 2) {
    edges.push_back({static_cast<uint8_t>(key[i] >> 8), static_cast<uint8_t>(key[i]), key[i + 1]});
  }
  return edges;
}

Utf8Forest::Node Utf8Forest::intern(const std::vector<Edge>& edges) {
  std::vector<uint32_t> key;
  for (const Edge& edge : edges) key.insert(key.end(), {uint32_t{edge.first} << 8 | edge.last, edge.target});
  return nodes_.intern(key);
}

Utf8Forest::Node Utf8Forest::add(const CharSet& set) {
  const Ranges ranges = set.ranges();
  if (ranges.size() == 1 && ranges[0].last <= 0x7F) {
    return nodes_.intern(std::array{ranges[0].first << 8 | ranges[0].last, kDone});
  }
  std::vector<Edge> edges;
  for (const CharSet::Range& range : ranges) {
    if (range.first > 0x7F) break;
    edges.push_back(
        {static_cast<uint8_t>(range.first), static_cast<uint8_t>(std::min<char32_t>(range.last, 0x7F)), kDone});
  }
  // For lead bytes of two, three and four byte characters: the scalars of the first one, and their number.
  auto beyond = [&](char32_t least) {
    return ranges.subspan(std::ranges::lower_bound(ranges, least, {}, &CharSet::Range::last) - ranges.begin());
  };
  add_edges(edges, beyond(0x80), 0x80, 0xC2, 30, 1);
  add_edges(edges, beyond(0x800), 0, 0xE0, 1, 2);
  add_edges(edges, beyond(0x1000), 0x1000, 0xE1, 15, 2);
  add_edges(edges, beyond(0x10000), 0, 0xF0, 1, 3);
  add_edges(edges, beyond(0x40000), 0x40000, 0xF1, 4, 3);
  return intern(edges);
}

/// Adds edges for `count` bytes from `first_byte` on. Each covers 64^bytes_left scalars, the first of them those from
/// `base` on; `ranges` contains none that end earlier.
void Utf8Forest::add_edges(std::vector<Edge>& edges, Ranges ranges, char32_t base, uint8_t first_byte, int count,
                           int bytes_left) {
  // The lead bytes E0 and F0 cover fewer scalars, because overlong forms do not exist.
  const char32_t least = first_byte == 0xE0 ? 0x800 : first_byte == 0xF0 ? 0x10000 : 0;
  const char32_t width = char32_t{1} << (6 * bytes_left);
  for (int i = 0; i < count && !ranges.empty(); ++i, base += width) {
    const auto byte = static_cast<uint8_t>(first_byte + i);
    while (!ranges.empty() && ranges.front().last < base) ranges = ranges.subspan(1);
    const Node target = child(ranges, base, std::max(base, least), bytes_left);
    if (target == kNone) continue;
    if (!edges.empty() && edges.back().last + 1 == byte && edges.back().target == target) {
      edges.back().last = byte;
    } else {
      edges.push_back({byte, byte, target});
    }
  }
}

/// Returns the trie of the scalars in `ranges` from `least` to below `base` + 64^bytes_left.
Utf8Forest::Node Utf8Forest::child(Ranges ranges, char32_t base, char32_t least, int bytes_left) {
  const char32_t end = base + (char32_t{1} << (6 * bytes_left));
  if (ranges.empty() || ranges.front().first >= end) return kNone;
  if (ranges.front().first <= base && ranges.front().last >= end - 1 && least == base) return full_[bytes_left];
  size_t inside = 1;
  while (inside < ranges.size() && ranges[inside].first < end) ++inside;
  std::vector<CharSet::Range> clipped(ranges.begin(), ranges.begin() + inside);
  clipped.front().first = std::max(clipped.front().first, least);
  std::vector<Edge> edges;
  if (bytes_left == 1) {
    add_last_bytes(edges, clipped, base);
  } else {
    add_edges(edges, clipped, base, 0x80, 64, bytes_left - 1);
  }
  return intern(edges);
}

/// Adds edges for the continuation bytes that end the scalars in `ranges`, of the 64 from `base` on.
void Utf8Forest::add_last_bytes(std::vector<Edge>& edges, Ranges ranges, char32_t base) {
  for (const CharSet::Range& range : ranges) {
    const auto first = static_cast<uint8_t>(0x80 + std::max(range.first, base) - base);
    const auto last = static_cast<uint8_t>(0x80 + std::min<char32_t>(range.last, base + 63) - base);
    edges.push_back({first, last, kDone});
  }
}

}  // namespace constrain
