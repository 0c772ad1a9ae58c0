// Tests of what single tokens hold of JSON texts.
#include "engine/text/token_reach.h"

#include "check.h"

namespace constrain {

namespace {

TokenReach reach(std::string_view token) {
  TokenReach found;
  found.add(token);
  return found;
}

bool begins(std::string_view token, std::string_view bytes) {
  ByteSet expected;
  for (const char byte : bytes) expected.add(static_cast<uint8_t>(byte));
  return reach(token).keys == expected && !reach(token).whole_keys;
}

}  // namespace

TEST(brackets_nest_in_arrays_and_after_colons) {
  CHECK(reach("abc").nested == 0 && reach("{").nested == 1);
  CHECK(reach("{{{").nested == 1 && reach("[[{").nested == 3 && reach("{[").nested == 1);
  CHECK(reach("{\"a\":[{").nested == 3 && reach("},{").nested == 1);
}

TEST(keys_begin_after_brackets_and_commas) {
  CHECK(begins("\"name", "") && begins("},\"", "") && begins(" ,\n \"x", "x") && begins("{\"ab", "a"));
  CHECK(begins("\",\"\\", "") && begins("[\"a", ""));
  // A string before anything but a colon is no key.
  CHECK(begins("\",\"\",\"", "") && begins(",\"a\"}", ""));
  CHECK(reach(",\"\\n").keys == ByteSet::all() && !reach(",\"\\n").whole_keys);
  CHECK(reach("{\"a\" :").whole_keys && reach(",\"\\\"\"").whole_keys && reach(",\"a\"").keys == ByteSet::all());
}

TEST(members_end_with_commas) {
  CHECK(reach("\":\"\",").whole_members && reach("a\" : 1 ,").whole_members);
  CHECK(!reach(",\":").whole_members && !reach("\":[").whole_members && !reach("a:b,").whole_members);
}

}  // namespace constrain
