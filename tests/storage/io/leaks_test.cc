#include "tests/storage/io/leaks.h"

#include <string>

#include "gtest/gtest.h"
#include "tests/storage/io/child_process.h"

namespace tidemark::storage {
namespace {

int* volatile kept = nullptr;  // the last of several

void Lose() {
  for (int i = 0; i < 100; ++i) kept = new int[100];
}

TEST(Leaks, AreNoticedWhereTheyAreLookedFor) {
  EXPECT_FALSE(HasLeaks());
  if (!kAddressSanitizer) GTEST_SKIP() << "AddressSanitizer alone knows";
  // Of a child, which does not go on to the check at the end of a process.
  const std::string said = InChild([]() -> std::string {
    Lose();
    return HasLeaks() ? "a leak" : "none";
  });
  EXPECT_EQ(said, "a leak");
}

}  // namespace
}  // namespace tidemark::storage
