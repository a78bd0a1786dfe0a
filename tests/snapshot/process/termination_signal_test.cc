#include "snapshot/process/termination_signal.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::HasSubstr;

volatile sig_atomic_t former_calls = 0;
void CountCall(int) { former_calls = former_calls + 1; }

// SIGUSR1 with a handler of the test's own, so that what "the effect that it had before" is can be seen.
class TerminationSignalTest : public testing::Test {
 protected:
  TerminationSignalTest() {
    former_calls = 0;
    struct sigaction action = {};
    action.sa_handler = CountCall;
    sigaction(SIGUSR1, &action, &before_);
  }
  ~TerminationSignalTest() override { sigaction(SIGUSR1, &before_, nullptr); }

  static void (*HandlerOf(int signal))(int) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    return action.sa_handler;
  }

  struct sigaction before_ = {};
};

TEST_F(TerminationSignalTest, NotesTheFirstSignalAndWhenItCame) {
  auto noting = TerminationSignal::Install({SIGUSR1});
  ASSERT_THAT(noting, IsOk());
  EXPECT_FALSE((*noting)->received());
  EXPECT_FALSE((*noting)->received_at().has_value());
  const absl::Time before = absl::Now();
  raise(SIGUSR1);
  EXPECT_TRUE((*noting)->received());
  ASSERT_TRUE((*noting)->received_at().has_value());
  EXPECT_GE(*(*noting)->received_at(), before - absl::Milliseconds(1));
  EXPECT_LE(*(*noting)->received_at(), absl::Now());
  EXPECT_EQ(former_calls, 0);
}

TEST_F(TerminationSignalTest, GivesTheSecondSignalItsFormerEffect) {
  auto noting = TerminationSignal::Install({SIGUSR1});
  ASSERT_THAT(noting, IsOk());
  raise(SIGUSR1);
  raise(SIGUSR1);
  EXPECT_EQ(former_calls, 1);
  raise(SIGUSR1);
  EXPECT_EQ(former_calls, 2);
  EXPECT_TRUE((*noting)->received());
}

TEST_F(TerminationSignalTest, LetsTheSecondSignalEndTheProcess) {
  EXPECT_EQ(storage::InChild([]() -> std::string {
              auto noting = TerminationSignal::Install({SIGTERM});
              if (!noting.ok()) return noting.status().ToString();
              raise(SIGTERM);
              if (!(*noting)->received()) return "not noted";
              raise(SIGTERM);
              return "survived";
            }),
            "killed by signal 15");
}

TEST_F(TerminationSignalTest, WakesWhoWaits) {
  auto noting = TerminationSignal::Install({SIGUSR1, SIGUSR2});
  ASSERT_THAT(noting, IsOk());
  EXPECT_FALSE((*noting)->WaitFor(absl::ZeroDuration()));
  EXPECT_FALSE((*noting)->WaitFor(absl::Milliseconds(1)));
  bool first = false;
  bool second = false;
  std::thread one([&] { first = (*noting)->WaitFor(absl::InfiniteDuration()); });
  std::thread two([&] { second = (*noting)->WaitFor(absl::Hours(1)); });
  kill(getpid(), SIGUSR1);
  one.join();
  two.join();
  EXPECT_TRUE(first);
  EXPECT_TRUE(second);
}

TEST_F(TerminationSignalTest, IsShared) {
  auto one = TerminationSignal::Install({SIGUSR1});
  auto other = TerminationSignal::Install({SIGUSR1, SIGUSR1});
  ASSERT_THAT(one, IsOk());
  ASSERT_THAT(other, IsOk());
  one->reset();
  raise(SIGUSR1);
  EXPECT_TRUE((*other)->received());
  other->reset();
  EXPECT_EQ(HandlerOf(SIGUSR1), CountCall);
}

TEST_F(TerminationSignalTest, ForgetsWhatCameBeforeItWasInstalled) {
  {
    auto noting = TerminationSignal::Install({SIGUSR1});
    ASSERT_THAT(noting, IsOk());
    raise(SIGUSR1);
  }
  auto noting = TerminationSignal::Install({SIGUSR1});
  ASSERT_THAT(noting, IsOk());
  EXPECT_FALSE((*noting)->received());
  EXPECT_FALSE((*noting)->WaitFor(absl::Milliseconds(1)));
  raise(SIGUSR1);
  EXPECT_TRUE((*noting)->WaitFor(absl::InfiniteDuration()));
}

TEST_F(TerminationSignalTest, LeavesAHandlerThatWasInstalledLater) {
  auto noting = TerminationSignal::Install({SIGUSR1});
  ASSERT_THAT(noting, IsOk());
  signal(SIGUSR1, SIG_IGN);
  noting->reset();
  EXPECT_EQ(HandlerOf(SIGUSR1), SIG_IGN);
}

TEST_F(TerminationSignalTest, DoesNotNoteTheSignalsOfAForkedChild) {
  auto noting = TerminationSignal::Install({SIGTERM});
  ASSERT_THAT(noting, IsOk());
  EXPECT_EQ(storage::InChild([]() -> std::string {
              raise(SIGTERM);
              return "survived";
            }),
            "killed by signal 15");
  EXPECT_FALSE((*noting)->WaitFor(absl::Milliseconds(1)));
}

TEST_F(TerminationSignalTest, RefusesWhatCannotBeCaught) {
  EXPECT_THAT(TerminationSignal::Install({SIGUSR1, SIGKILL}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("signal 9 cannot be caught")));
  EXPECT_THAT(TerminationSignal::Install({0}), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no signal 0")));
  EXPECT_THAT(TerminationSignal::Install({65}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no signal 65")));
  EXPECT_EQ(HandlerOf(SIGUSR1), CountCall) << "what was installed before the one that failed is taken back";
}

}  // namespace
}  // namespace tidemark
