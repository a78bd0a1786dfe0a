// That the suite really has the surroundings that a test preset asks for: without this a thread that never runs or a
// locale that cannot be set would go unnoticed.

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "tests/storage/io/sanitizers.h"

namespace tidemark {
namespace {

using storage::kAddressSanitizer;
using testing::StrEq;

// Whether the program must have the surroundings, whatever the environment says.
#ifdef TESTS_ALWAYS_IN_SURROUNDINGS
constexpr bool kAlways = true;
#else
constexpr bool kAlways = kAddressSanitizer;
#endif

// The directories in which the process is during the test; gives up where it goes on seeing only one.
std::set<std::string> DirectoriesSeen(absl::Duration at_most) {
  std::set<std::string> seen;
  const absl::Time deadline = absl::Now() + at_most;
  do {
    seen.insert(std::filesystem::current_path().string());
  } while (seen.size() < 2 && absl::Now() < deadline);
  return seen;
}

TEST(SurroundingsTest, TheDirectoryChangesWhileATestRunsWhereTheBuildOrTheEnvironmentSaysSo) {
  if (kAlways || std::getenv("TIDEMARK_TEST_CHDIR") != nullptr) {
    EXPECT_EQ(DirectoriesSeen(absl::Seconds(30)).size(), 2)
        << "ctest --preset asan sets TIDEMARK_TEST_CHDIR, as ask_for_surroundings.cc does; it must have an effect";
  } else {
    EXPECT_EQ(DirectoriesSeen(absl::Milliseconds(20)).size(), 1);
  }
}

TEST(SurroundingsTest, TheDecimalPointHasSeveralBytesWhereTheBuildOrTheEnvironmentSaysSo) {
  char half[16];
  std::snprintf(half, sizeof(half), "%.1f", 0.5);
  if (!kAlways && std::getenv("TIDEMARK_TEST_LOCALE") == nullptr) {
    EXPECT_THAT(half, StrEq("0.5"));
    return;
  }
  if (!std::filesystem::exists(TESTS_LOCALE)) GTEST_SKIP() << "no localedef, or no source: the locale was not made";
  EXPECT_THAT(std::localeconv()->decimal_point, StrEq("\u066b"))
      << "ctest --preset asan sets TIDEMARK_TEST_LOCALE, LOCPATH and LC_ALL, as ask_for_surroundings.cc does; they "
         "must have an effect";
  EXPECT_THAT(half, StrEq("0\u066b5"));
}

}  // namespace
}  // namespace tidemark
