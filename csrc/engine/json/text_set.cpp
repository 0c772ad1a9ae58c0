#include "engine/json/text_set.h"

#include <array>
#include <cstring>
#include <functional>

namespace constrain::json {

namespace {

// A node is a leaf, {texts with one hash...}, or a branch, {kBranch, child for bit 0, child for bit 1}. Texts are
// addresses, and so never kBranch.
constexpr uint64_t kBranch = 1;

bool is_branch(Reg node) { return Registers::words(node)[0] == kBranch; }

uint64_t hash_of(std::string_view text) { return std::hash<std::string_view>()(text); }

Reg insert(Reg node, uint64_t hash, std::string_view text, int bit, Registers& registers) {
  if (!node) return registers.make(std::array{make_text(text, registers)});
  if (is_branch(node)) {
    const auto words = Registers::words(node);
    std::array<uint64_t, 3> copy{words[0], words[1], words[2]};
    Reg& child = copy[1 + (hash >> bit & 1)];
    child = insert(child, hash, text, bit + 1, registers);
    return registers.make(copy);
  }
  const auto leaf = Registers::words(node);
  const uint64_t other = hash_of(text_of(leaf[0]));
  if (other == hash) {
    std::vector<uint64_t> texts(leaf.begin(), leaf.end());
    texts.push_back(make_text(text, registers));
    return registers.make(texts);
  }
  std::array<uint64_t, 3> branch{kBranch, 0, 0};
  branch[1 + (other >> bit & 1)] = node;
  return insert(registers.make(branch), hash, text, bit, registers);
}

}  // namespace

Reg make_text(std::string_view text, Registers& registers) {
  std::vector<uint64_t> words(1 + (text.size() + 7) / 8);
  words[0] = text.size();
  std::memcpy(words.data() + 1, text.data(), text.size());
  return registers.make(words);
}

std::string_view text_of(Reg text) {
  const auto words = Registers::words(text);
  return {reinterpret_cast<const char*>(words.data() + 1), words[0]};
}

bool TextSet::contains(std::string_view text) const {
  const uint64_t hash = hash_of(text);
  Reg node = root_;
  for (int bit = 0; node && is_branch(node); ++bit) node = Registers::words(node)[1 + (hash >> bit & 1)];
  if (!node) return false;
  for (const Reg one : Registers::words(node)) {
    if (text_of(one) == text) return true;
  }
  return false;
}

TextSet TextSet::with(std::string_view text, Registers& registers) const {
  return TextSet(contains(text) ? root_ : insert(root_, hash_of(text), text, 0, registers));
}

std::vector<Reg> TextSet::texts() const {
  std::vector<Reg> pending{root_}, out;
  while (!pending.empty()) {
    const Reg node = pending.back();
    pending.pop_back();
    if (!node) continue;
    const auto words = Registers::words(node);
    if (is_branch(node)) {
      pending.insert(pending.end(), words.begin() + 1, words.end());
    } else {
      out.insert(out.end(), words.begin(), words.end());
    }
  }
  return out;
}

}  // namespace constrain::json
