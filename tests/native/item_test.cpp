// Tests of JSON texts compared by value, and of sets of them in registers.
#include <string>
#include <string_view>

#include "check.h"
#include "engine/json/item_text.h"
#include "engine/json/text_set.h"

namespace constrain::json {

namespace {

std::string value(std::string_view text) { return ItemText(text).value(); }

bool may_become(std::string_view begun, std::string_view whole) { return ItemText(begun).may_become(value(whole)); }

}  // namespace

TEST(equal_values_have_one_canonical_form) {
  CHECK(value("{\"b\": [1.50, 1e2],\n \"a\":{ }}") == value("{\"a\":{},\"b\":[15e-1,100]}"));
  CHECK(value("-0.0") == value("0"));
  CHECK(value(R"("\u0041\/\ud83d\ude42\u0022\n")") == value("\"A/\U0001F642\\\"\\u000A\""));
  CHECK(value("true") == "true");
}

TEST(different_values_have_different_forms) {
  const char* values[] = {"1",         "-1",          "10",
                          "0.1",       "\"1\"",       "true",
                          "\"true\"",  "null",        "[]",
                          "{}",        "[[]]",        "[{}]",
                          "[1,2]",     "[2,1]",       "[12]",
                          "\"1,2\"",   "[\"1\"]",     "\"\\\"\"",
                          "\"\\\\\"",  "{\"a\":1}",   "{\"a\":2}",
                          "\"\"",      "[\"\"]",      "\"[]\"",
                          "{\"\":{}}", "{\"a\":[1]}", "{\"a\":{\"b\":1}}"};
  for (const char* a : values) {
    for (const char* b : values) CHECK((value(a) == value(b)) == (a == b));
  }
}

TEST(a_beginning_may_become_some_values) {
  const char* object = "{\"name\": \"Jo\", \"age\": 12, \"tags\": [\"a\", \"b\"]}";
  for (const char* begun : {"", "{", "{\"", "{\"n", "{\"age\":1", "{\"age\":12,", "{\"tags\":[\"a\",",
                            "{\"tags\":[\"a\",\"b\"]", "{\"tags\":[\"a\",\"b\"],\"name\":\"J", "{\"name\":\"\\u004"}) {
    CHECK(may_become(begun, object));
  }
  for (const char* begun : {"[", "\"", "{\"x", "{\"age\":2", "{\"age\":12,\"age", "{\"tags\":[\"b", "{\"tags\":[]",
                            "{\"name\":\"Jo\",\"age\":12,\"tags\":[\"a\",\"b\",", "{\"name\":\"K", "{}"}) {
    CHECK(!may_become(begun, object));
  }
  CHECK(may_become("1", "100") && may_become("10", "1") && may_become("0.0", "0.01") && may_become("1e", "100"));
  CHECK(!may_become("11", "1") && !may_become("-", "1") && !may_become("2e", "100") && !may_become("1", "\"1\""));
}

TEST(no_spelling_of_a_value_is_shorter_than_its_least_length) {
  for (const std::string_view text :
       {"0", "-1", "100", "1e2", "1E-2", "0.01", "12.50", "true", "false", "null", "[]", "[1e9,-2,true,null]",
        R"({"e":1e5,"a":[false,{}]})", R"("\u0041\"\\e1")", R"(["e1",1e1,"\\",2])"}) {
    CHECK(least_length(value(text)) <= text.size());
  }
  for (const std::string_view text : {"7", "-25", "[]", "{}", R"("a\"\\")", R"(["1e5",{"e":[]}])"}) {
    CHECK(least_length(value(text)) == text.size());
  }
}

TEST(sets_of_texts_are_equal_whatever_the_order) {
  Arena arena;
  Registers registers(arena, true);
  TextSet up, down;
  for (int i = 0; i < 300; ++i) up = up.with("text " + std::to_string(i), registers);
  for (int i = 300; i-- > 0;) down = down.with("text " + std::to_string(i), registers);
  CHECK(up.root() == down.root());
  CHECK(up.texts().size() == 300);
  CHECK(up.with("text 7", registers).root() == up.root());
  CHECK(up.contains("text 299") && !up.contains("text 300") && !TextSet().contains(""));
  CHECK(TextSet().with("", registers).contains(""));
}

}  // namespace constrain::json
