// What a reader finds of the phases of saves that a checkpointer made.

#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/journal_calls.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/sleeping_thread.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::Contains;
using testing::IsEmpty;
using testing::IsSupersetOf;
using testing::Key;
using testing::Not;

constexpr int64_t kHostTensorBytes = 8 << 20;

// Eight MiB that the host reaches, a value, and a tensor that arrives when the test lets it.
class PartlyGatedState final : public State {
 public:
  PartlyGatedState() : host_(kHostTensorBytes, std::byte{7}) {
    AddTensor("host", Dtype::kUint8, {kHostTensorBytes}, host_.data());
    AddValue("epoch", &epoch_);
    SetDerivedEntries({Entry{.spec = {.name = "late", .dtype = Dtype::kInt32}, .bytes = 4}});
  }
  absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
    gate.WaitForNotification();
    std::memset(requests[0].destination, 1, 4);
    return absl::OkStatus();
  }
  absl::Notification gate;

 private:
  std::vector<std::byte> host_;
  int64_t epoch_ = 3;
};

class RecordedPhasesTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options = {}) {
    options.directory = store_;
    options.observer = NoWarnings();
    auto checkpointer = AsyncCheckpointer::Open(std::move(options));
    EXPECT_THAT(checkpointer, IsOk());
    return *std::move(checkpointer);
  }

  void SaveAndClose(int64_t step, SaveOptions options = {}) {
    PartlyGatedState state;
    state.gate.Notify();
    auto checkpointer = Open();
    auto save = checkpointer->Save(step, state, options);
    ASSERT_THAT(save, IsOk());
    ASSERT_THAT(save->committed().Wait(), IsOk());
    ASSERT_THAT(checkpointer->Close(), IsOk());
  }

  std::vector<SavePhase> Read(int64_t step) {
    auto reader = StoreReader::Open(store_);
    EXPECT_THAT(reader, IsOk());
    auto phases = (*reader)->Phases(step);
    EXPECT_THAT(phases, IsOk());
    return *std::move(phases);
  }

  storage::TestDirectory directory_;
  const std::string store_ = directory_ / "store";
};

// By name, where it is only on one lane and in one piece.
std::map<std::string, SavePhase> ByName(const std::vector<SavePhase>& phases) {
  std::map<std::string, SavePhase> by_name;
  for (const SavePhase& phase : phases) by_name[phase.name] = phase;
  return by_name;
}

absl::Duration EndOf(const SavePhase& phase) { return phase.begin + phase.duration; }

TEST_F(RecordedPhasesTest, OfABlockingSaveFollowEachOther) {
  SaveAndClose(1, {.staging = Staging::kBlocking});
  const std::vector<SavePhase> phases = Read(1);
  const auto by_name = ByName(phases);
  ASSERT_THAT(by_name, IsSupersetOf({Key("refresh"), Key("values"), Key("copy"), Key("queue"), Key("open"),
                                     Key("write"), Key("encode"), Key("sync"), Key("commit")}));
  EXPECT_EQ(by_name.at("values").bytes, 8u);
  EXPECT_EQ(by_name.at("copy").bytes, static_cast<uint64_t>(kHostTensorBytes) + 4);
  EXPECT_EQ(by_name.at("copy").lane, "trainer");
  EXPECT_GE(by_name.at("write").bytes, 4096u);
  uint64_t encoded = 0;
  for (const SavePhase& phase : phases) {
    if (phase.name == "encode") encoded += phase.bytes;
  }
  EXPECT_EQ(encoded, static_cast<uint64_t>(kHostTensorBytes) + 4 + 8);
  // Each ends before the next one begins.
  const std::vector<std::string> trainer = {"refresh", "values", "copy"};
  const std::vector<std::string> persister = {"queue", "open", "write", "sync", "commit"};
  for (const auto& names : {trainer, persister}) {
    for (size_t i = 1; i < names.size(); ++i) {
      EXPECT_LE(EndOf(by_name.at(names[i - 1])), by_name.at(names[i]).begin) << names[i];
    }
  }
  // What a lane does it does one after the other; what happens within the write is within it.
  std::map<std::string, absl::Duration> ends;
  for (const SavePhase& phase : phases) {
    SCOPED_TRACE(phase.name + " on " + phase.lane);
    EXPECT_GE(phase.begin, std::max(absl::ZeroDuration(), ends[phase.lane]));
    EXPECT_LE(phase.busy, phase.duration);
    ends[phase.lane] = EndOf(phase);
    if (phase.name != "encode" && phase.name != "disk wait" && phase.name != "encoder wait") continue;
    EXPECT_GE(phase.begin, by_name.at("write").begin);
    EXPECT_LE(EndOf(phase), EndOf(by_name.at("write")));
  }
}

TEST_F(RecordedPhasesTest, OfAnOverlappedSaveHaveTheCopyOnALaneOfItsOwn) {
  SaveAndClose(1, {.staging = Staging::kOverlapped});
  const auto phases = ByName(Read(1));
  ASSERT_THAT(phases, Contains(Key("copy")));
  EXPECT_EQ(phases.at("copy").lane, "staging");
  EXPECT_EQ(phases.at("copy").bytes, static_cast<uint64_t>(kHostTensorBytes) + 4);
  EXPECT_EQ(phases.at("values").lane, "trainer");
}

TEST_F(RecordedPhasesTest, TellOfASaveThatWaitedForTheOneBefore) {
  std::map<std::string, SavePhase> phases;
  // Again where the second save slept so long on its way to the first one that it was taken for waiting.
  for (int64_t step = 1; step <= 5 && !phases.contains("earlier save"); step += 2) {
    PartlyGatedState state;
    auto checkpointer = Open();
    ASSERT_THAT(checkpointer->Save(step, state, {.staging = Staging::kOverlapped}), IsOk());
    std::atomic<pid_t> saver_id = 0;
    std::thread saver([&] {
      saver_id = gettid();
      EXPECT_THAT(checkpointer->Save(step + 1, state, {.staging = Staging::kBlocking}), IsOk());
    });
    // It may sleep on its way there, too, but hardly for so many looks. Looks are counted, and not time, which also
    // passes while this thread has no processor; each opens a file, so they take some milliseconds.
    for (int looks = 0; looks < 1000;) looks = saver_id != 0 && Sleeps(saver_id) ? looks + 1 : 0;
    state.gate.Notify();
    saver.join();
    ASSERT_THAT(checkpointer->Close(), IsOk());
    phases = ByName(Read(step + 1));
  }
  ASSERT_THAT(phases, IsSupersetOf({Key("earlier save"), Key("refresh"), Key("queue")}));
  EXPECT_GE(phases.at("earlier save").duration, absl::Milliseconds(1) / 2);
  EXPECT_LE(EndOf(phases.at("earlier save")), phases.at("refresh").begin);
}

TEST_F(RecordedPhasesTest, OfTheLatestStepLackOnlyTheCommitWhileTheTrainerRuns) {
  PartlyGatedState state;
  state.gate.Notify();
  auto checkpointer = Open();
  const auto save = [&](int64_t step) {
    auto saved = checkpointer->Save(step, state);
    return saved.ok() ? saved->committed().Wait() : absl::Status(saved.status());
  };
  ASSERT_THAT(save(1), IsOk());
  ASSERT_THAT(save(2), IsOk());
  EXPECT_THAT(ByName(Read(1)), Contains(Key("commit")));
  EXPECT_THAT(ByName(Read(2)), Contains(Key("sync")));
  ASSERT_THAT(checkpointer->Close(), IsOk());
  EXPECT_THAT(ByName(Read(2)), Contains(Key("commit")));
}

TEST_F(RecordedPhasesTest, OfAReplacedStepAreThoseOfTheNewAttempt) {
  SaveAndClose(1, {.staging = Staging::kOverlapped});
  SaveAndClose(1, {.overwrite = true, .staging = Staging::kBlocking});
  EXPECT_EQ(ByName(Read(1)).at("copy").lane, "trainer");
}

TEST_F(RecordedPhasesTest, OutliveTheLossOfEitherJournalOrIndex) {
  SaveAndClose(1);
  EXPECT_THAT(Read(1), Not(IsEmpty()));
  for (const char* lost : {"/index", "/journal"}) {
    std::filesystem::remove_all(store_ + lost);
    ASSERT_THAT(Open()->Close(), IsOk());
    EXPECT_THAT(Read(1), Not(IsEmpty())) << lost;
  }
  LoseJournalAndIndex(store_);
  EXPECT_THAT(Read(1), IsEmpty()) << "the steps are those of the shards";
  ASSERT_THAT(Open()->Close(), IsOk());
  EXPECT_THAT(Read(1), IsEmpty());
}

TEST_F(RecordedPhasesTest, AreNotKnownOfAStepThatIsNotThere) {
  SaveAndClose(1);
  auto reader = StoreReader::Open(store_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT((*reader)->Phases(2), StatusIs(absl::StatusCode::kNotFound, testing::HasSubstr("step 2 is not in")));
  auto untrusted = StoreReader::OpenUntrusted(store_);
  ASSERT_THAT(untrusted, IsOk());
  EXPECT_THAT((*untrusted)->Phases(2), StatusIs(absl::StatusCode::kNotFound, testing::HasSubstr("step 2 is not in")));
}

}  // namespace
}  // namespace tidemark
