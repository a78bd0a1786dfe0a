#include "tools/checkpoint_inspect/cli/interrupt.h"

#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "gmock/gmock.h"
#include "snapshot/exchange/safetensors_header.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

// Of zeros, which take hardly any room in a file or in a step, and long enough to read for a signal to come meanwhile.
constexpr uint64_t kStepBytes = uint64_t{1} << 30;

class InterruptTest : public testing::Test {
 protected:
  InterruptTest() { fs::create_directories(folder_); }

  std::string Path(const std::string& name) const { return elsewhere_.directory() + "/" + name; }

  // A safetensors file of one tensor: `first_bytes`, and zeros behind them.
  void WriteZeros(const std::string& name, std::string_view first_bytes, uint64_t bytes) const {
    const SafetensorsHeader header{.tensors = {{"w", Dtype::kFloat32, {static_cast<int64_t>(bytes / 4)}, 0, bytes}},
                                   .metadata = {}};
    const std::string begin = EncodeSafetensorsHeader(header).value();
    WriteWhole(Path(name), begin + std::string(first_bytes));
    fs::resize_file(Path(name), begin.size() + bytes);
  }

  // A small step, and two large ones that differ.
  void SaveSteps() const {
    store_.Save({1});
    WriteZeros("zeros", "", kStepBytes);
    WriteZeros("others", "1234", kStepBytes);
    for (const auto& [step, name] : {std::pair("2", "zeros"), std::pair("3", "others")}) {
      const Finished saved = RunInspect({"--store", store_.directory(), "import", Path(name), "--step", step});
      ASSERT_EQ(saved.exit_code, 0) << saved.err;
    }
  }

  // On a terminal, with SIGINT as soon as it says how fast it is and how long it will still take. Once more, should it
  // have come to its end while this process waited for a processor, from where it had begun.
  Finished Interrupt(
      std::vector<std::string> arguments, const std::function<void()>& begin = [] {}) const {
    begin();
    arguments.insert(arguments.begin(), {"--store", store_.directory()});
    const RunOptions on_terminal = {.terminal = true, .interrupt_at = " left"};
    Finished run = RunInspect(arguments, on_terminal);
    for (int i = 0; i < 3 && run.exit_code != 130; ++i) {
      fs::remove_all(folder_);
      fs::create_directories(folder_);
      begin();
      run = RunInspect(arguments, on_terminal);
    }
    EXPECT_EQ(run.exit_code, 130) << run.out;
    EXPECT_THAT(run.out, HasSubstr("/s, "));
    return run;
  }

  const TestStore store_;
  const TestStore elsewhere_;
  const std::string folder_ = Path("out");
};

TEST_F(InterruptTest, WhatTakesLongEndsWithoutAResultOrAFile) {
  SaveSteps();
  const auto before = store_.Listing();
  EXPECT_THAT(Interrupt({"verify"}).out,
              AllOf(ContainsRegex("error: interrupted; [0-2] of 3 steps were read"), Not(HasSubstr("restore takes"))));
  EXPECT_THAT(Interrupt({"tensors", "2", "--stats"}).out,
              AllOf(HasSubstr("error: interrupted"), Not(HasSubstr("NAME"))));
  EXPECT_THAT(Interrupt({"diff", "2", "3"}).out, AllOf(HasSubstr("error: interrupted"), Not(HasSubstr("A: "))));
  EXPECT_THAT(Interrupt({"repair"}).out, HasSubstr("error: interrupted; nothing was changed"));
  for (const char* format : {"safetensors", "npz", "raw"}) {
    SCOPED_TRACE(format);
    EXPECT_THAT(Interrupt({"export", "2", "--format", format, "-o", folder_ + "/w"}).out,
                HasSubstr("error: interrupted; nothing was written"));
    EXPECT_TRUE(fs::is_empty(folder_));
  }
  EXPECT_THAT(Interrupt({"report", "-o", folder_ + "/page.html", "--max-read", "8GiB"}).out,
              AllOf(HasSubstr("error: interrupted; nothing was written"), Not(HasSubstr("wrote"))));
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_THAT(Interrupt({"doctor", folder_, "--seconds", "3600", "--bytes", "4GiB"}).out,
              AllOf(HasSubstr("error: interrupted; the trial file was removed"), Not(HasSubstr("a store works"))));
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_EQ(store_.Listing(), before);
}

TEST_F(InterruptTest, AnImportLeavesTheRecordOfAFailedStep) {
  WriteZeros("zeros", "", 2 * kStepBytes);
  const auto begin = [&] {
    fs::remove_all(store_.directory());
    store_.Save({1});
  };
  EXPECT_THAT(Interrupt({"import", Path("zeros"), "--step", "2"}, begin).out,
              HasSubstr("error: interrupted; no step was imported"));
  EXPECT_EQ(store_.Info(2).state, StepState::kFailed);
  EXPECT_EQ(std::distance(fs::directory_iterator(store_.directory() + "/steps"), fs::directory_iterator()), 1);
  EXPECT_EQ(RunInspect({"--store", store_.directory(), "repair"}).exit_code, 0);
}

TEST_F(InterruptTest, ARepairTouchesNoFurtherStepAndTheNextOneDoes) {
  const auto begin = [&] {
    fs::remove_all(store_.directory());
    SaveSteps();
    store_.DamageChunk(1);
  };
  EXPECT_THAT(Interrupt({"repair", "--apply"}, begin).out,
              HasSubstr("error: interrupted; each change so far is complete; the next repair does the rest"));
  EXPECT_EQ(store_.Info(1).state, StepState::kCommitted);
  EXPECT_FALSE(fs::exists(store_.directory() + "/quarantine"));
  EXPECT_EQ(RunInspect({"--store", store_.directory(), "repair", "--apply"}).exit_code, 3);
  EXPECT_EQ(store_.Info(1).state, StepState::kLost);
  EXPECT_EQ(store_.Info(3).state, StepState::kCommitted);
}

}  // namespace
}  // namespace tidemark::inspect
