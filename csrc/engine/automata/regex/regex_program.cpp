#include "engine/automata/regex/regex_program.h"

#include <algorithm>
#include <map>
#include <optional>

#include "engine/base/errors.h"

namespace constrain::regex {

namespace {

/// Emits instructions from the end of the pattern to its start, so that each knows its successor.
class Compiler {
 public:
  Compiler(const Ast& ast, bool whole_only) : ast_(ast), whole_only_(whole_only) {}

  Program compile(bool search) {
    program_.start = build(ast_.root, search ? anything() : emit({.op = Op::match}));
    if (search) program_.start = after_any_text(program_.start);
    auto accepts = [](Op op) { return op == Op::match || op == Op::text_end || op == Op::anything; };
    program_.alive = leading_to(accepts, Look::pass);
    if (program_.has_look) {
      program_.certain = leading_to(accepts, Look::stop);
      program_.looks_behind = leading_to([](Op op) { return op == Op::look_behind; }, Look::enter);
    }
    return std::move(program_);
  }

 private:
  Pc emit(Instruction instruction) {
    if (program_.code.size() == kMaxInstructions) {
      throw ResourceLimit("regex_states", kMaxInstructions, "while unrolling the repetitions of a regular expression");
    }
    program_.code.push_back(std::move(instruction));
    return static_cast<Pc>(program_.code.size() - 1);
  }

  Pc emit_character(const CharSet& set, Pc next) {
    return emit({.op = Op::character, .next = next, .trie = program_.tries.add(set)});
  }

  Pc anything() {
    if (!anything_) {
      anything_ = emit({.op = Op::anything, .trie = program_.tries.add(CharSet::all())});
      program_.code[*anything_].next = *anything_;
    }
    return *anything_;
  }

  Pc text_end() {
    if (!text_end_) text_end_ = emit({.op = Op::text_end});
    return *text_end_;
  }

  Pc after_any_text(Pc next) {
    const Pc split = emit({.op = Op::split});
    program_.code[split].targets = {emit_character(CharSet::all(), split), next};
    return split;
  }

  Pc build(NodeId id, Pc next) {
    const Node& node = ast_[id];
    switch (node.kind) {
      case Kind::sequence:
        for (size_t i = node.children.size(); i-- > 0;) next = build(node.children[i], next);
        return next;
      case Kind::choice: {
        std::vector<Pc> targets;
        for (NodeId child : node.children) targets.push_back(build(child, next));
        return emit({.op = Op::split, .targets = std::move(targets)});
      }
      case Kind::set: {
        const auto [entry, fresh] = tries_.try_emplace(id);
        if (fresh) entry->second = program_.tries.add(node.set);
        return emit({.op = Op::character, .next = next, .trie = entry->second});
      }
      case Kind::repeat:
        return build_repeat(node, next);
      case Kind::look:
        return node.behind ? build_look_behind(node, next) : build_look_ahead(node, next);
      case Kind::text_start:
        return emit({.op = Op::text_start, .next = next});
      case Kind::text_end:
        return build_text_end(next);
    }
    return next;
  }

  Pc build_repeat(const Node& node, Pc next) {
    const NodeId body = node.children[0];
    uint32_t required = node.low;
    if (node.high == kUnbounded) {
      const Pc loop = emit({.op = Op::loop, .target = loops_++});
      open_.push_back(loop);
      const Pc once = build(body, loop);
      open_.pop_back();
      program_.code[loop].targets = in_order(node.greedy, once, next);
      program_.code[loop].exit = next;
      if (required == 0) return loop;
      next = once;
      --required;
    } else {
      const Pc exit = next;
      for (uint32_t i = node.low; i < node.high; ++i) {
        next = emit({.op = Op::split, .targets = in_order(node.greedy, build(body, next), exit)});
      }
    }
    for (; required > 0; --required) {
      const size_t before = program_.code.size();
      next = build(body, next);
      if (program_.code.size() == before) break;  // an empty body, repeated or not
    }
    return next;
  }

  static std::vector<Pc> in_order(bool greedy, Pc body, Pc exit) {
    return greedy ? std::vector<Pc>{body, exit} : std::vector<Pc>{exit, body};
  }

  Pc build_look_ahead(const Node& node, Pc next) {
    const Pc body = build(node.children[0], anything());
    if (whole_only_ && !node.negative && program_.code[next].op == Op::anything) return body;
    if (whole_only_ && program_.code[next].op == Op::match) {
      if (const auto empty = matches_empty(body)) return *empty != node.negative ? next : emit_character({}, next);
    }
    program_.has_look = true;
    return emit({.op = Op::look_ahead, .negative = node.negative, .next = next, .target = body});
  }

  Pc build_look_behind(const Node& node, Pc next) {
    const auto [entry, fresh] = tracker_numbers_.try_emplace(node.children[0]);
    if (fresh) {
      const Pc start = after_any_text(build(node.children[0], emit({.op = Op::match})));
      entry->second = tracker_of(node.children[0], start);
    }
    program_.has_look = true;
    return emit({.op = Op::look_behind, .negative = node.negative, .next = next, .target = entry->second});
  }

  /// Lookbehinds for the same set, as in word boundaries, share a tracker.
  uint32_t tracker_of(NodeId body, Pc start) {
    if (ast_[body].kind == Kind::set) {
      const auto [entry, fresh] = set_trackers_.try_emplace(tries_.at(body), program_.trackers.size());
      if (!fresh) return entry->second;
    }
    program_.trackers.push_back(start);
    return static_cast<uint32_t>(program_.trackers.size() - 1);
  }

  /// Compiles the end of the text. Usually what follows in the pattern can be empty, or cannot, whatever the text: then
  /// no lookahead is needed.
  Pc build_text_end(Pc next) {
    if (const auto empty = matches_empty(next)) return *empty ? text_end() : emit_character({}, next);
    const Pc end = text_end();
    program_.has_look = true;
    return emit({.op = Op::look_ahead, .next = next, .target = end});
  }

  /// True if the program from `start` matches the empty text; unknown if that depends on lookaround.
  std::optional<bool> matches_empty(Pc start) const {
    std::vector<Pc> pending = {start}, seen;
    bool found = false;
    while (!pending.empty()) {
      const Pc pc = pending.back();
      pending.pop_back();
      if (std::ranges::find(seen, pc) != seen.end()) continue;
      seen.push_back(pc);
      if (seen.size() > 100 || std::ranges::find(open_, pc) != open_.end()) return std::nullopt;
      const Instruction& at = program_.code[pc];
      switch (at.op) {
        case Op::split:
        case Op::loop:
          pending.insert(pending.end(), at.targets.begin(), at.targets.end());
          break;
        case Op::look_ahead:
        case Op::look_behind:
        case Op::text_start:
          return std::nullopt;
        case Op::character:
          break;
        default:
          found = true;
      }
    }
    return found;
  }

  /// Treatment of lookarounds on the way: stop, continue after them, or search within them as well.
  enum class Look { stop, pass, enter };

  /// Marks the instructions that satisfy `goal`, and all that lead to them after the start of the text. Most
  /// instructions come after their successors, so few passes suffice.
  template <typename Goal>
  std::vector<bool> leading_to(Goal goal, Look look) const {
    const auto& code = program_.code;
    std::vector<bool> marked(code.size());
    auto leads = [&](const Instruction& at) {
      if (goal(at.op)) return true;
      switch (at.op) {
        case Op::split:
        case Op::loop:
          return std::ranges::any_of(at.targets, [&](Pc target) { return marked[target]; });
        case Op::character:
          return at.trie != Utf8Forest::kNone && marked[at.next];
        case Op::look_ahead:
          return (look != Look::stop && marked[at.next]) || (look == Look::enter && marked[at.target]);
        case Op::look_behind:
          return look != Look::stop && marked[at.next];
        default:
          return false;
      }
    };
    for (bool changed = true; changed;) {
      changed = false;
      for (Pc pc = 0; pc < code.size(); ++pc) {
        if (marked[pc] || !leads(code[pc])) continue;
        marked[pc] = changed = true;
      }
    }
    return marked;
  }

  const Ast& ast_;
  bool whole_only_;
  Program program_;
  uint32_t loops_ = 0;
  std::optional<Pc> anything_, text_end_;
  std::vector<Pc> open_;  // loops whose body is being built
  std::map<NodeId, Utf8Forest::Node> tries_;
  std::map<NodeId, uint32_t> tracker_numbers_;
  std::map<Utf8Forest::Node, uint32_t> set_trackers_;
};

}  // namespace

Program compile(const Ast& ast, bool search, bool whole_only) { return Compiler(ast, whole_only).compile(search); }

}  // namespace constrain::regex
