#include "engine/automata/regex/regex_automaton.h"

#include <algorithm>
#include <bitset>

#include "engine/automata/regex/regex_closure.h"
#include "engine/base/deadline.h"
#include "engine/base/errors.h"
#include "engine/base/scratch_list.h"

namespace constrain::regex {

namespace {

constexpr uint32_t kNothing = 0;  // the configuration without threads
/// Most steps of conditions: each byte of a state takes one for each of its literals, so that states cost more than
/// those that searches count.
constexpr size_t kConditionSteps = 10 * kSearchBudget;
constexpr Pc kPast = ~Pc{0};  // a thread that has matched a shorter text, if its condition holds

}  // namespace

ByteClasses::ByteClasses(const Utf8Forest& tries) : steps_(tries.size()) {
  std::bitset<257> begins;
  begins.set(0);
  for (Utf8Forest::Node node = 0; node < tries.size(); ++node) {
    for (const Utf8Forest::Edge& edge : tries.edges(node)) {
      begins.set(edge.first);
      begins.set(edge.last + 1);
    }
  }
  for (size_t byte = 0; byte < 256; ++byte) {
    if (begins[byte]) representatives_.push_back(static_cast<uint8_t>(byte));
    classes_[byte] = static_cast<uint8_t>(representatives_.size() - 1);
  }
}

const ByteClasses::Steps& ByteClasses::steps(const Utf8Forest& tries, Utf8Forest::Node node) {
  Steps& steps = steps_[node];
  if (!steps.targets.empty()) return steps;
  steps.targets.assign(count(), Utf8Forest::kNone);
  for (const Utf8Forest::Edge& edge : tries.edges(node)) {
    std::fill(steps.targets.begin() + of(edge.first), steps.targets.begin() + of(edge.last) + 1, edge.target);
  }
  for (size_t i = 1; i < count(); ++i) {
    if (steps.targets[i] != steps.targets[i - 1]) steps.changes.add(static_cast<uint8_t>(i));
  }
  return steps;
}

RegexAutomaton::RegexAutomaton(Program program, bool ordered)
    : PrunedAutomaton(kSearchBudget), program_(std::move(program)), ordered_(ordered), classes_(program_.tries) {
  for (const Instruction& at : program_.code) memory_.add(sizeof(at) + at.targets.capacity() * sizeof(Pc));
  configurations_.intern({});
  conditions_.intern({});
}

// ---- States.

State RegexAutomaton::raw_start() {
  Place place = {.at_start = true};
  std::vector<Configuration> trackers;
  std::vector<Thread> found;
  auto closure_of = [&](Pc pc, bool ordered) {
    found.clear();
    Closure(*this, place, ordered, found).add(pc, kNoCondition);
    return intern(found, ordered);
  };
  for (Pc start : program_.trackers) {
    trackers.push_back(closure_of(start, false));
    place.behind.push_back(accepts_end(trackers.back(), false));
  }
  return name(trackers, closure_of(program_.start, ordered_));
}

State RegexAutomaton::name(const std::vector<Configuration>& trackers, Configuration configuration) {
  if (configuration == kNothing) return kDead;
  ScratchList<uint32_t, 8> key;
  key.list.push_back(configuration);
  if (!trackers.empty()) {
    const auto list = threads(configuration);
    const bool needed = std::ranges::any_of(list, [&](const Thread& thread) {
      return thread.condition != kNoCondition || (thread.pc != kPast && program_.looks_behind[thread.pc]);
    });
    if (needed) key.list.insert(key.list.end(), trackers.begin(), trackers.end());
  }
  return states_.intern(key.list);
}

bool RegexAutomaton::accepting(State state) { return accepts_end(states_[state][0], ordered_); }

PrunedAutomaton::Verdict RegexAutomaton::glance(State state) {
  if (!program_.has_look || accepting(state)) return Verdict::live;
  if (ordered_) return Verdict::unknown;
  const auto list = threads(states_[state][0]);
  const bool certain = std::ranges::any_of(
      list, [&](const Thread& thread) { return thread.condition == kNoCondition && program_.certain[thread.pc]; });
  return certain ? Verdict::live : Verdict::unknown;
}

void RegexAutomaton::fill_row(State state, Transitions& row) {
  const std::vector<uint32_t> key(states_[state].begin(), states_[state].end());
  const ByteSet changes = this->changes(key[0]);
  const auto count = static_cast<int>(classes_.count());
  for (int byte_class = 0, end; byte_class < count; byte_class = end) {
    end = changes.next(byte_class + 1);
    if (end < 0 || end > count) end = count;
    const State target = step(key, byte_class);
    row.set(classes_.first(byte_class), classes_.last(end - 1), target);
  }
}

/// The byte classes by which a configuration may lead elsewhere than by the class before them.
ByteSet RegexAutomaton::changes(Configuration configuration) {
  if (!program_.trackers.empty()) return ByteSet::all();
  ByteSet changes;
  for (const Thread& thread : threads(configuration)) {
    if (thread.condition != kNoCondition) return ByteSet::all();
    changes.add(classes_.changes(program_.tries, thread.node));
  }
  return changes;
}

State RegexAutomaton::step(const std::vector<uint32_t>& key, size_t byte_class) {
  Deadline::check();
  Place place;
  const std::vector<Configuration> trackers = step_trackers(key, byte_class, place);
  return name(trackers, step(key[0], byte_class, place, ordered_));
}

std::vector<RegexAutomaton::Configuration> RegexAutomaton::step_trackers(const std::vector<uint32_t>& key,
                                                                         size_t byte_class, Place& place) {
  std::vector<Configuration> trackers;
  for (size_t i = 0; i < program_.trackers.size(); ++i) {
    trackers.push_back(i + 1 < key.size() ? step(key[i + 1], byte_class, place, false) : kNothing);
    place.behind.push_back(accepts_end(trackers.back(), false));
  }
  return trackers;
}

// ---- Lookahead.

ByteSet RegexAutomaton::watched() {
  const auto looks = [](const Instruction& at) { return at.op == Op::look_ahead || at.op == Op::text_end; };
  if (std::ranges::none_of(program_.code, looks)) return {};
  std::vector<bool> found(classes_.count());
  raw_start();
  // The loop adds states, including dead ones, because the text that follows may complete a match.
  for (State state = 0; state < states_.size(); ++state) {
    if (state == kSearchBudget) throw ResourceLimit("search_states", kSearchBudget, "while looking beyond a terminal");
    const std::vector<uint32_t> key(states_[state].begin(), states_[state].end());
    for (size_t byte_class = 0; byte_class < found.size(); ++byte_class) {
      step(key, byte_class);
      Place place;
      step_trackers(key, byte_class, place);
      if (!found[byte_class]) found[byte_class] = watches(key[0], byte_class, place);
    }
  }
  ByteSet bytes;
  for (size_t byte = 0; byte < 256; ++byte) {
    if (found[classes_.of(static_cast<uint8_t>(byte))]) bytes.add(static_cast<uint8_t>(byte));
  }
  return bytes;
}

/// True if a match ends here, or ended earlier, whose conditions a further byte may decide otherwise than the end of
/// the text.
bool RegexAutomaton::watches(Configuration configuration, size_t byte_class, Place& place) {
  for (const Thread& thread : threads(configuration)) {
    if (thread.pc != kPast) {
      const Op op = program_.code[thread.pc].op;
      if (op == Op::text_end) return true;
      if (op != Op::match) continue;
    }
    const std::vector<uint32_t> literals(conditions_[thread.condition].begin(), conditions_[thread.condition].end());
    for (const uint32_t literal : literals) {
      const Configuration after = step(literal >> 1, byte_class, place, false);
      if (accepts_end(literal >> 1, false) ? !accepts_all(after) : after != kNothing) return true;
    }
  }
  return false;
}

// ---- Configurations.

RegexAutomaton::Configuration RegexAutomaton::step(Configuration configuration, size_t byte_class, Place& place,
                                                   bool ordered) {
  ScratchList<uint32_t, 64> successors;
  read(configuration, byte_class, place, ordered, successors.list);
  return close(successors.list, place, ordered);
}

/// Lists the threads after a byte, before their closure: pc, node, condition. If the node is `kDone`, the thread
/// continues after the character. What their closure depends on comes first.
void RegexAutomaton::read(Configuration configuration, size_t byte_class, Place& place, bool ordered,
                          std::pmr::vector<uint32_t>& successors) {
  successors.assign(1, ordered);
  for (size_t i = 0; i < place.behind.size(); ++i) {
    if (i % 32 == 0) successors.push_back(0);
    successors.back() |= static_cast<uint32_t>(place.behind[i]) << (i % 32);
  }
  for (size_t i = 0; i < configurations_[configuration].size(); i += 3) {
    const auto key = configurations_[configuration];
    const Thread thread = {key[i], key[i + 1], key[i + 2]};
    const bool past = ordered && (thread.pc == kPast || program_.code[thread.pc].op == Op::match);
    const Utf8Forest::Node node = past ? Utf8Forest::kNone : classes_.step(program_.tries, thread.node, byte_class);
    if (node == Utf8Forest::kNone && !past) continue;
    const Condition condition = step(thread.condition, byte_class, place);
    if (past && condition == kNoCondition) return;
    if (condition != kImpossible) successors.insert(successors.end(), {past ? kPast : thread.pc, node, condition});
  }
}

/// The closure of what `read` lists.
RegexAutomaton::Configuration RegexAutomaton::close(std::span<const uint32_t> successors, Place& place, bool ordered) {
  const size_t first = 1 + (place.behind.size() + 31) / 32;
  if (successors.size() == first) return kNothing;
  const uint32_t id = successors_.intern(successors);
  if (id < successor_configurations_.size()) return successor_configurations_[id];
  std::vector<Thread> next;
  Closure closure(*this, place, ordered, next);
  for (size_t i = first; i < successors.size(); i += 3) {
    const Thread thread = {successors[i], successors[i + 1], successors[i + 2]};
    if (thread.node != Utf8Forest::kDone) {
      closure.add(thread);
    } else if (!closure.add(program_.code[thread.pc].next, thread.condition)) {
      break;
    }
  }
  return successor_configurations_.emplace_back(intern(std::move(next), ordered));
}

RegexAutomaton::Condition RegexAutomaton::step(Condition condition, size_t byte_class, Place& place) {
  const std::vector<uint32_t> literals(conditions_[condition].begin(), conditions_[condition].end());
  condition_steps_ += literals.size();
  if (condition_steps_ > kConditionSteps) {
    throw ResourceLimit("search_states", kSearchBudget, "by the conditions of lookahead, each of which counts");
  }
  Condition next = kNoCondition;
  for (uint32_t literal : literals) {
    const Configuration before = literal >> 1;
    auto cached = std::ranges::find(place.stepped, before, &std::pair<Configuration, Configuration>::first);
    Configuration after;
    if (cached != place.stepped.end()) {
      after = cached->second;
    } else {
      after = step(before, byte_class, place, false);
      place.stepped.emplace_back(before, after);
    }
    next = with_literal(next, after, literal & 1);
    if (next == kImpossible) break;
  }
  return next;
}

RegexAutomaton::Configuration RegexAutomaton::look_ahead(Pc target, Place& place) {
  const auto cached = std::ranges::find(place.ahead, target, &std::pair<Pc, Configuration>::first);
  if (cached != place.ahead.end()) return cached->second;
  std::vector<Thread> found;
  Closure(*this, place, false, found).add(target, kNoCondition);
  const Configuration configuration = intern(std::move(found), false);
  place.ahead.emplace_back(target, configuration);
  return configuration;
}

/// Adds a literal to a condition: `configuration` must accept, or with `negative` must not.
RegexAutomaton::Condition RegexAutomaton::with_literal(Condition condition, Configuration configuration,
                                                       bool negative) {
  if (configuration == kNothing) return negative ? condition : kImpossible;
  if (accepts_all(configuration)) return negative ? kImpossible : condition;
  std::vector<uint32_t> literals(conditions_[condition].begin(), conditions_[condition].end());
  const uint32_t literal = configuration << 1 | (negative ? 1 : 0);
  const auto place = std::ranges::lower_bound(literals, literal);
  if (place != literals.end() && *place == literal) return condition;
  if (std::ranges::binary_search(literals, literal ^ 1)) return kImpossible;
  literals.insert(place, literal);
  return conditions_.intern(literals);
}

RegexAutomaton::Configuration RegexAutomaton::intern(std::vector<Thread> threads, bool ordered) {
  if (!ordered) drop_implied(threads);
  std::vector<uint32_t> key;
  for (const Thread& thread : threads) key.insert(key.end(), {thread.pc, thread.node, thread.condition});
  return configurations_.intern(key);
}

/// Sorts threads, and drops those that others imply.
void RegexAutomaton::drop_implied(std::vector<Thread>& threads) const {
  for (const Thread& thread : threads) {
    if (program_.code[thread.pc].op != Op::anything || thread.condition != kNoCondition) continue;
    threads = {Thread(thread)};
    return;
  }
  auto place = [](const Thread& thread) { return std::pair(thread.pc, thread.node); };
  std::ranges::sort(threads, {}, [&](const Thread& thread) { return std::pair(place(thread), thread.condition); });
  std::vector<Thread> kept;
  for (size_t first = 0, end; first < threads.size(); first = end) {
    for (end = first + 1; end < threads.size() && place(threads[end]) == place(threads[first]);) ++end;
    for (size_t i = first; i < end; ++i) {
      bool implied = false;
      for (size_t j = first; j < end && !implied; ++j) {
        const bool same = threads[i].condition == threads[j].condition;
        implied = same ? j < i : implies(threads[i].condition, threads[j].condition);
      }
      if (!implied) kept.push_back(threads[i]);
    }
  }
  threads = std::move(kept);
}

bool RegexAutomaton::implies(Condition stronger, Condition weaker) const {
  return std::ranges::includes(conditions_[stronger], conditions_[weaker]);
}

bool RegexAutomaton::accepts_all(Configuration configuration) const {
  const auto key = configurations_[configuration];
  return key.size() == 3 && key[2] == kNoCondition && key[0] != kPast && program_.code[key[0]].op == Op::anything;
}

/// True if the configuration accepts at the end of the text.
bool RegexAutomaton::accepts_end(Configuration configuration, bool ordered) const {
  const auto key = configurations_[configuration];
  for (size_t i = 0; i < key.size(); i += 3) {
    const Thread thread = {key[i], key[i + 1], key[i + 2]};
    if (accepts_end(thread)) return !ordered || thread.pc != kPast;
  }
  return false;
}

bool RegexAutomaton::accepts_end(const Thread& thread) const {
  if (thread.pc != kPast) {
    const Instruction& at = program_.code[thread.pc];
    const bool whole_character = at.op == Op::anything && thread.node == at.trie;
    if (at.op != Op::match && at.op != Op::text_end && !whole_character) return false;
  }
  return std::ranges::all_of(conditions_[thread.condition], [&](uint32_t literal) {
    return accepts_end(literal >> 1, false) != static_cast<bool>(literal & 1);
  });
}

std::vector<Thread> RegexAutomaton::threads(Configuration configuration) const {
  const auto key = configurations_[configuration];
  std::vector<Thread> list;
  for (size_t i = 0; i < key.size(); i += 3) list.push_back({key[i], key[i + 1], key[i + 2]});
  return list;
}

Thread RegexAutomaton::thread_at(Pc pc, Condition condition) const { return {pc, program_.code[pc].trie, condition}; }

}  // namespace constrain::regex
