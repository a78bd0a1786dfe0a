#include "storage/io/registered_memory.h"

#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;

// Writes down what it is told to register.
class RecordingQueue final : public IoQueue {
 public:
  std::string_view name() const override { return "recording"; }
  size_t depth() const override { return 1; }
  size_t in_flight() const override { return 0; }
  void Submit(const IoRequest&) override {}
  IoCompletion Wait() override { return {}; }
  std::optional<IoCompletion> Poll() override { return std::nullopt; }
  absl::Status RegisterMemory(std::span<const std::byte> memory) override {
    log.push_back(fmt::format("+{}", memory.size()));
    return answer;
  }
  void UnregisterMemory(std::span<const std::byte> memory) override {
    log.push_back(fmt::format("-{}", memory.size()));
  }

  absl::Status answer;
  std::vector<std::string> log;
};

class RegisteredMemoryTest : public ::testing::Test {
 protected:
  const std::vector<std::byte> bytes_ = std::vector<std::byte>(100);
  const std::span<const std::byte> small_ = std::span(bytes_).first(10);
  const std::span<const std::byte> large_ = std::span(bytes_).last(90);
  RecordingQueue queue_;
  RegisteredMemory memory_{&queue_};
};

TEST_F(RegisteredMemoryTest, RegistersMemoryOnceWhileItLives) {
  const auto alive = std::make_shared<int>();
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(memory_.Use(small_, alive), IsOk());
    EXPECT_THAT(memory_.Use(large_, alive), IsOk());
  }
  EXPECT_THAT(queue_.log, ElementsAre("+10", "+90"));
}

TEST_F(RegisteredMemoryTest, ForgetsMemoryThatIsGoneBeforeItsAddressIsUsedAgain) {
  auto alive = std::make_shared<int>();
  EXPECT_THAT(memory_.Use(small_, alive), IsOk());
  alive = std::make_shared<int>();
  EXPECT_THAT(memory_.Use(small_, alive), IsOk());
  alive.reset();
  EXPECT_THAT(memory_.Use({}, {}), IsOk());
  EXPECT_THAT(queue_.log, ElementsAre("+10", "-10", "+10", "-10"));
}

TEST_F(RegisteredMemoryTest, LeavesMemoryAloneOfWhichNobodySaysHowLongItLives) {
  EXPECT_THAT(memory_.Use(small_, {}), IsOk());
  EXPECT_THAT(queue_.log, ElementsAre());
}

TEST_F(RegisteredMemoryTest, TriesAgainWhatWasRefused) {
  const auto alive = std::make_shared<int>();
  queue_.answer = absl::ResourceExhaustedError("locked memory");
  EXPECT_THAT(memory_.Use(small_, alive), StatusIs(StatusCode::kResourceExhausted, "locked memory"));
  queue_.answer = absl::OkStatus();
  EXPECT_THAT(memory_.Use(small_, alive), IsOk());
  EXPECT_THAT(memory_.Use(small_, alive), IsOk());
  EXPECT_THAT(queue_.log, ElementsAre("+10", "+10"));
}

}  // namespace
}  // namespace tidemark::storage
