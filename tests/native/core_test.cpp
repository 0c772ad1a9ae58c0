// Tests of the core without Python, under sanitizers: tries, walks through schemas, shared grammars.
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "check.h"
#include "engine/base/errors.h"
#include "engine/completion/completion_bounds.h"
#include "engine/grammar/cost.h"
#include "engine/masks/mask_builder.h"
#include "engine/matcher/matcher.h"
#include "engine/schema/compile.h"

namespace constrain {

namespace {

using json::Value;

/// Copies elements to memory that lives as long as the program.
template <class T>
json::List<T> kept(const std::vector<T>& elements) {
  static Arena memory;
  return {std::uninitialized_copy_n(elements.data(), elements.size(), memory.allocate<T>(elements.size())) -
              elements.size(),
          elements.size()};
}

Value text(std::string_view content) {
  return {.type = Value::Type::string, .boolean = false, .text = content, .items = {}, .members = {}};
}
Value number(std::string_view spelling) {
  return {.type = Value::Type::number, .boolean = false, .text = spelling, .items = {}, .members = {}};
}
Value flag(bool value) {
  return {.type = Value::Type::boolean, .boolean = value, .text = {}, .items = {}, .members = {}};
}
Value list(const std::vector<Value>& items) {
  return {.type = Value::Type::array, .boolean = false, .text = {}, .items = kept(items), .members = {}};
}
Value object(const std::vector<Value::Member>& members) {
  return {.type = Value::Type::object, .boolean = false, .text = {}, .items = {}, .members = kept(members)};
}
Value reference(const char* target) { return object({{"$ref", text(target)}}); }

/// A vocabulary of all bytes, some pieces of JSON, a duplicate, a long token, and an end-of-sequence token.
std::shared_ptr<const Vocabulary> vocabulary(size_t longest = 300) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  for (const char* piece :
       {"\"a\":", "\",\"", "{\"", "\"}", "[[", "]]", ", ", "\xF0\x9F", "\x98\x80", "12", "{\"", "null"}) {
    tokens.emplace_back(piece);
  }
  tokens.emplace_back(longest, '[');
  tokens.emplace_back();
  const auto end = static_cast<TokenId>(tokens.size() - 1);
  return std::make_shared<const Vocabulary>(std::move(tokens), std::vector<TokenId>{end}, end + 40, false);
}

std::vector<Value> schemas() {
  const Value integer = object({{"type", text("integer")}, {"minimum", number("-3")}, {"maximum", number("120")}});
  const Value string = object({{"type", text("string")}, {"minLength", number("1")}, {"maxLength", number("4")}});
  const Value pattern = object({{"type", text("string")}, {"pattern", text("^(ab|c)+$")}, {"maxLength", number("9")}});
  const Value record = object({{"type", text("object")},
                               {"properties", object({{"a", integer}, {"b", string}, {"a\n", flag(true)}})},
                               {"required", list({text("a")})},
                               {"maxProperties", number("4")},
                               {"additionalProperties", pattern}});
  const Value keys = object({{"type", text("object")},
                             {"patternProperties", object({{"^[xy]z?$", integer}})},
                             {"additionalProperties", flag(false)},
                             {"minProperties", number("2")}});
  const Value tree =
      object({{"anyOf", list({object({{"type", text("array")}, {"items", reference("#")}}),
                              object({{"type", text("array")}, {"items", reference("#")}, {"maxItems", number("2")}}),
                              integer})}});
  const Value one =
      object({{"oneOf", list({integer, object({{"multipleOf", number("2.5")}, {"type", text("number")}}), keys})}});
  const Value one_of_few = object({{"enum", list({text("a"), number("1"), number("1.5"), flag(true)})}});
  const Value differing = object({{"type", text("array")},
                                  {"uniqueItems", flag(true)},
                                  {"prefixItems", list({one_of_few})},
                                  {"items", object({{"anyOf", list({one_of_few, reference("#"), keys})}})},
                                  {"minItems", number("2")}});
  const Value quotes =
      object({{"type", text("array")},
              {"items", object({{"type", text("string")}, {"x-verbatim", object({{"source", text("text")}})}})}});
  const auto format = [](const char* name) { return object({{"type", text("string")}, {"format", text(name)}}); };
  const Value contact =
      object({{"type", text("object")},
              {"properties", object({{"a", format("email")}, {"b", format("date-time")}, {"c", format("uuid")}})},
              {"additionalProperties", object({{"type", text("number")}})}});
  return {flag(true), integer, string, pattern, record, keys, tree, one, object({{"not", string}}),
          differing,  quotes,  contact};
}

Grammar rules(const Value& schema, const schema::Options& options) {
  Grammar grammar;
  schema::compile({.memory = {}, .root = schema}, options, grammar);
  return grammar;
}

std::shared_ptr<const CompiledGrammar> grammar(const Value& schema, json::Whitespace whitespace, bool in_order,
                                               std::shared_ptr<const Vocabulary> tokens = vocabulary()) {
  const schema::Options options{
      .whitespace = whitespace, .in_order = in_order, .sources = {{"text", "a \"b\"\n\xC3\xA9 c, a \"b\" d"}}};
  return std::make_shared<const CompiledGrammar>(rules(schema, options), std::move(tokens), Limits());
}

bool allows(const std::vector<uint32_t>& mask, TokenId token) { return mask[token / 32] >> (token % 32) & 1; }

/// Samples random allowed tokens; every token must be accepted exactly if the mask allows it. Returns the text.
std::string walk(const std::shared_ptr<const CompiledGrammar>& grammar, uint32_t seed) {
  std::mt19937 random(seed);
  Matcher matcher(grammar);
  std::string text;
  std::vector<uint32_t> mask(grammar->vocabulary().mask_words());
  for (int step = 0; step < 25; ++step) {
    matcher.fill(mask.data());
    std::vector<TokenId> tokens;
    for (TokenId token = 0; token < static_cast<TokenId>(grammar->vocabulary().size()); ++token) {
      if (allows(mask, token)) tokens.push_back(token);
      Matcher clone = matcher;
      CHECK(clone.accept(token) == allows(mask, token));
      if (clone.accepted_tokens() > matcher.accepted_tokens()) clone.rollback(1);
    }
    CHECK(!tokens.empty());
    if (tokens.empty()) break;
    const TokenId token = tokens[random() % tokens.size()];
    CHECK(matcher.accept(token));
    if (grammar->vocabulary().is_eos(token)) return text;
    text += grammar->vocabulary().bytes(token);
  }
  const std::string end = matcher.completion();
  CHECK(matcher.accept_bytes(end));
  CHECK(matcher.is_accepting());
  return text + end;
}

/// A text under a grammar, with access to its configurations.
struct Text {
  explicit Text(const CompiledGrammar& grammar)
      : grammar(grammar), at(store.make(StackTop{grammar.start(), 0, nullptr})) {}

  const Configuration* after(std::string_view bytes) {
    const Configuration* to = at;
    Stepper stepper(grammar, store, registers);
    for (const char byte : bytes) {
      store.start_work();
      std::vector<StackTop> tops;
      for (const StackTop& top : to->tops()) stepper.step(top, static_cast<uint8_t>(byte), tops);
      to = store.make(tops);
    }
    return to;
  }

  const CompiledGrammar& grammar;
  Arena arena;
  Registers registers{arena, true};
  ConfigurationStore store{grammar, arena, true};
  const Configuration* at;
};

/// Samples random tokens; none may lead beyond the bound computed before it. Returns how often there was a bound.
size_t walk_within_bounds(const CompiledGrammar& grammar, uint32_t seed) {
  std::mt19937 random(seed);
  Text text(grammar);
  CompletionBounds bounds(grammar);
  Costs costs(grammar);
  size_t cached = 0;
  for (int step = 0; step < 40; ++step) {
    const MaskPtr mask = MaskBuilder::mask(grammar, *text.at);
    // Less than a text needs never suffices.
    const auto exceeds = [&](const Configuration* at) {
      return bounds.to_spare(*text.at, costs.of(at) - 1).has_value();
    };
    cached += bounds.to_spare(*text.at, kInfinite - 1).has_value();
    CHECK(text.at->accepting || !exceeds(text.at));
    std::vector<uint32_t> allowed(grammar.vocabulary().mask_words());
    mask->write(allowed.data(), allowed.size());
    std::vector<const Configuration*> next;
    for (TokenId token = 0; token < static_cast<TokenId>(grammar.vocabulary().size()); ++token) {
      if (!allows(allowed, token) || grammar.vocabulary().is_eos(token)) continue;
      next.push_back(text.after(grammar.vocabulary().bytes(token)));
      CHECK(next.back()->accepting || !exceeds(next.back()));
    }
    if (next.empty()) break;
    text.at = next[random() % next.size()];
  }
  return cached;
}

}  // namespace

TEST(trie_holds_every_token_once) {
  const auto tokens = vocabulary();
  const Trie& trie = tokens->trie();
  CHECK(trie.size[0] == trie.nodes());
  size_t found = 0;
  std::string path;
  for (uint32_t node = 1; node < trie.nodes(); ++node) {
    path.resize(trie.depth[node] - 1);
    path += static_cast<char>(trie.byte[node]);
    CHECK(node + trie.size[node] <= trie.nodes());
    for (TokenId token = trie.token[node]; token != kNoToken; token = tokens->next_duplicate(token), ++found) {
      CHECK(tokens->spelling(token) == path);
    }
  }
  CHECK(found == 255 + 13);  // no text contains the byte 0xFF
}

TEST(special_tokens_are_written_as_no_text_is) {
  const Vocabulary tokens({"\xFF", "<go>", "", "", "a\xFF"}, {3}, 5, false, {},
                          {{2, "<go>"}, {3, "<end>"}, {9, "<no>"}});
  CHECK(tokens.bytes(0) == "\xFF");
  CHECK(tokens.bytes(2).empty());
  CHECK(tokens.spelling(0).empty());
  CHECK(tokens.spelling(1) == "<go>");
  CHECK(tokens.spelling(2) == "\xFF<go>\xFF");
  CHECK(tokens.spelling(3) == "\xFF<end>\xFF");
  CHECK(tokens.spelling(4).empty());
  CHECK(tokens.special_token("<go>") == 2);
  CHECK(tokens.special_token("<no>") == kNoToken);
  CHECK(tokens.longest_token() == 7);
  CHECK(tokens.first_byte(2) == 0xFF);
}

TEST(masks_and_acceptance_agree_along_random_walks) {
  using Mode = json::Whitespace::Mode;
  uint32_t seed = 0;
  for (const Value& schema : schemas()) {
    for (const json::Whitespace whitespace :
         {json::Whitespace{Mode::bounded, 0}, {Mode::compact, 0}, {Mode::indent, 2}}) {
      const auto compiled = grammar(schema, whitespace, seed % 2 == 0);
      const std::string document = walk(compiled, ++seed);
      Matcher whole(compiled);
      CHECK(whole.accept_bytes(document));
      CHECK(whole.is_accepting());
    }
  }
}

TEST(no_completion_is_longer_than_its_bound) {
  const auto tokens = vocabulary(3);
  const Value few = object({{"enum", list({text("a"), text("ab"), number("1"), flag(true)})}});
  const Value closed = object({{"type", text("object")},
                               {"properties", object({{"a", few}, {"b", object({{"type", text("string")}})}})},
                               {"additionalProperties", flag(false)}});
  const Value rest = object({{"type", text("string")}, {"pattern", text("^(x|y.{20}z)*$")}});
  std::vector<Value> all = schemas();
  for (const Value& item : {few, closed, object({{"type", text("object")}}), object({{"type", text("integer")}})}) {
    all.push_back(object({{"type", text("array")}, {"uniqueItems", flag(true)}, {"items", item}}));
  }
  all.push_back(object({{"type", text("object")},
                        {"patternProperties", object({{"^x-[a-c]{2,5}$", rest}})},
                        {"additionalProperties", flag(false)},
                        {"minProperties", number("2")}}));
  all.push_back(object({{"type", text("array")},
                        {"items", object({{"anyOf", list({rest, closed})}})},
                        {"contains", closed},
                        {"minItems", number("3")}}));
  size_t cached = 0;
  for (const Value& schema : all) {
    for (uint32_t seed = 0; seed < 4; ++seed) cached += walk_within_bounds(*grammar(schema, {}, false, tokens), seed);
  }
  CHECK(cached > 1000);
}

TEST(threads_may_share_a_grammar_and_a_vocabulary) {
  const auto tokens = vocabulary();
  for (const Value& schema : schemas()) {
    const auto alone = grammar(schema, {}, false);
    const std::shared_ptr<const CompiledGrammar> shared[] = {grammar(schema, {}, false, tokens),
                                                             grammar(schema, {}, false, tokens)};
    std::vector<std::string> texts(8);
    std::vector<std::thread> threads;
    for (uint32_t i = 0; i < texts.size(); ++i) threads.emplace_back([&, i] { texts[i] = walk(shared[i / 6], i); });
    for (std::thread& thread : threads) thread.join();
    for (uint32_t i = 0; i < texts.size(); ++i) CHECK(texts[i] == walk(alone, i));
  }
}

/// Clones advance on threads of their own, and share the caches of the session.
TEST(clones_may_be_used_from_other_threads) {
  const auto compiled = grammar(flag(true), {}, false);
  Matcher first(compiled);
  CHECK(first.accept_bytes("[{\"a\": \"b"));
  std::vector<std::string> ends(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < ends.size(); ++i) {
    threads.emplace_back([&, i, clone = first]() mutable {
      const std::string text = "b\", \"c\": [1, 2, " + std::to_string(i) + "]";
      for (const char byte : text) {
        clone.mask(60);
        CHECK(clone.accept_bytes({&byte, 1}));
      }
      ends[i] = clone.completion();
      CHECK(clone.accept_bytes(ends[i]));
      CHECK(clone.accept(clone.grammar().vocabulary().eos().front()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& end : ends) CHECK(end == "}]");
}

TEST(limits_leave_a_matcher_as_it_was) {
  Limits limits;
  limits.max_stack_depth = 20;
  const schema::Options options{.limits = limits};
  const auto small = std::make_shared<const CompiledGrammar>(rules(flag(true), options), vocabulary(), limits);
  Matcher matcher(small);
  CHECK(matcher.accept_bytes("[[["));
  bool refused = false;
  try {
    matcher.accept_bytes(std::string(100, '['));
  } catch (const ResourceLimit& limit) {
    refused = limit.kind == "max_stack_depth" && limit.limit == 20;
  }
  CHECK(refused);
  CHECK(matcher.accept_bytes("]]]"));
  CHECK(matcher.is_finished());
}

}  // namespace constrain
