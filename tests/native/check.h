// A minimal test harness: a test is a named function; failed checks are printed and counted.
#pragma once

#include <iostream>
#include <vector>

namespace constrain::test {

struct Test {
  const char* name;
  void (*run)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

inline int failures = 0;

struct Registration {
  Registration(const char* name, void (*run)()) { tests().push_back({name, run}); }
};

inline void check(bool holds, const char* what, const char* file, int line) {
  if (holds) return;
  ++failures;
  std::cerr << file << ":" << line << ": " << what << "\n";
}

}  // namespace constrain::test

#define TEST(name)                                                                    \
  static void test_##name();                                                          \
  static const constrain::test::Registration registration_##name(#name, test_##name); \
  static void test_##name()

#define CHECK(condition) constrain::test::check(condition, #condition, __FILE__, __LINE__)
