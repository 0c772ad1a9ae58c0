#include "engine/json/cheapest_words.h"

#include <queue>
#include <tuple>

namespace constrain::json {

namespace {

uint64_t spelled_length(uint8_t byte) {
  constexpr std::string_view kShort = "\"\\\b\f\n\r\t";
  if (kShort.find(static_cast<char>(byte)) != std::string_view::npos) return 2;
  return byte < 0x20 ? 6 : 1;
}

}  // namespace

uint64_t spelled_length(std::string_view text) {
  uint64_t length = 0;
  for (const char c : text) length += spelled_length(static_cast<uint8_t>(c));
  return length;
}

const std::vector<std::string>& CheapestWords::from(State start, size_t count) {
  auto& [asked, words] = known_[start];
  if (asked >= count || words.size() < asked) return words;
  asked = count;
  words.clear();
  using Entry = std::tuple<uint64_t, std::string, State>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue;
  if (start != kDead) queue.emplace(0, "", start);
  while (!queue.empty() && words.size() < count) {
    const auto [cost, word, state] = queue.top();
    queue.pop();
    if (automaton_->accepting(state)) words.push_back(word);
    const StateRow& row = automaton_->row(state);
    for (int byte = 0; byte < 256; ++byte) {
      if (row[byte] == kDead) continue;
      queue.emplace(cost + spelled_length(static_cast<uint8_t>(byte)), word + static_cast<char>(byte), row[byte]);
    }
  }
  return words;
}

}  // namespace constrain::json
