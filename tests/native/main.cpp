#include <exception>
#include <iostream>

#include "check.h"

int main() {
  for (const auto& test : constrain::test::tests()) {
    try {
      test.run();
    } catch (const std::exception& error) {
      ++constrain::test::failures;
      std::cerr << test.name << " threw: " << error.what() << "\n";
    }
  }
  std::cout << constrain::test::tests().size() << " tests, " << constrain::test::failures << " failures\n";
  return constrain::test::failures == 0 ? 0 : 1;
}
