#include "tests/fuzz/measured_child.h"

#include <csignal>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "tests/storage/io/sanitizers.h"

namespace tidemark::fuzz {
namespace {

TEST(MeasuredChild, GivesTheAnswerAndLeavesThisProcessAlone) {
  int calls = 0;
  const std::string answer = InMeasuredChild([&] { return std::string(100'000, 'x') + std::to_string(++calls); });
  EXPECT_EQ(answer, std::string(100'000, 'x') + "1");
  EXPECT_EQ(calls, 0);
}

TEST(MeasuredChild, TellsOfADeath) {
  const std::string answer = InMeasuredChild([] {
    raise(SIGKILL);
    return std::string();
  });
  EXPECT_THAT(answer, testing::StartsWith("died of 0x9"));
}

TEST(MeasuredChild, MindsWhatIsTaken) {
  if (storage::kAddressSanitizer) GTEST_SKIP() << "2 GiB are more than a test may take";
  EXPECT_NONFATAL_FAILURE(InMeasuredChild([] {
                            const std::string much(300 << 20, 'x');
                            return much.substr(0, 1);
                          }),
                          "kMemoryKibMax");
}

}  // namespace
}  // namespace tidemark::fuzz
