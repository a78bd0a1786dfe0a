// In every test's program. Where TIDEMARK_TEST_CHDIR is set, a thread changes the current directory of the process the
// whole time that a test runs, between the one at its start and the root: a library that sits in a trainer may neither
// rely on that directory nor have one of its own.

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tests/surroundings/keep_directory.h"

namespace tidemark {
namespace {

// Its loop takes no memory and no lock, since tests make those fail and count those.
class DirectoryChanger : public testing::EmptyTestEventListener {
 public:
  DirectoryChanger() : places_{std::filesystem::current_path().string(), "/"} {}

  void OnTestStart(const testing::TestInfo&) override {
    stop_ = false;
    error_ = 0;
    changes_ = 0;
    // No signal that a test sends to its process is for this thread.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    thread_ = std::thread([this] { Change(); });
    pthread_setname_np(thread_.native_handle(), "chdir");  // as child_process.cc knows it
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    changes_.wait(0);  // so that the shortest of tests has it, too
  }

  void OnTestEnd(const testing::TestInfo&) override { Stop(); }

  void Stop() {
    if (!thread_.joinable()) return;
    stop_ = true;
    thread_.join();
    EXPECT_EQ(error_, 0) << "the directory could not be changed";
    EXPECT_EQ(chdir(places_[0].c_str()), 0);
  }

 private:
  void Change() {
    while (!stop_) {
      for (const size_t place : {1, 0}) {
        if (chdir(places_[place].c_str()) != 0) error_ = errno;
        if (++changes_ == 1) changes_.notify_all();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));  // a pause, which leaves the tests the processor
      }
    }
  }

  const std::array<std::string, 2> places_;
  std::thread thread_;
  std::atomic<bool> stop_ = false;
  std::atomic<int> error_ = 0;
  std::atomic<int64_t> changes_ = 0;
};

// Owned by the listeners of GoogleTest; null: the environment does not ask for it.
DirectoryChanger* const changer = [] {
  if (std::getenv("TIDEMARK_TEST_CHDIR") == nullptr) return static_cast<DirectoryChanger*>(nullptr);
  auto* const appended = std::make_unique<DirectoryChanger>().release();
  testing::UnitTest::GetInstance()->listeners().Append(appended);
  return appended;
}();

}  // namespace

void KeepDirectory() {
  if (changer != nullptr) changer->Stop();
}

}  // namespace tidemark
