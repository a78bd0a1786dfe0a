#include "tools/checkpoint_inspect/checks/unrecorded_steps.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "storage/records/manifest_records.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

std::string FolderOf(const TestStore& store, int64_t step) { return fs::path(store.ShardPath(step)).parent_path(); }

// The manifest's log that is written last.
std::string LogOf(const TestStore& store) {
  std::string log;
  for (const auto& entry : fs::directory_iterator(store.directory() + "/manifest")) {
    if (entry.path().extension() == ".log") log = std::max(log, entry.path().string());
  }
  EXPECT_NE(log, "");
  return log;
}

Finished Verify(const TestStore& store) { return RunInspect({"--store", store.directory(), "verify"}); }

json VerifyJson(const TestStore& store, int exit_code) {
  return RunInspectJson({"--store", store.directory(), "verify"}, exit_code);
}

std::unique_ptr<StoreReader> OpenReader(const TestStore& store) {
  auto reader = StoreReader::Open(store.directory());
  EXPECT_TRUE(reader.ok()) << reader.status();
  return *std::move(reader);
}

// Steps 100 and 200 are in a table of the manifest, those that follow in its log.
class UnrecordedSteps : public testing::Test {
 protected:
  void SetUp() override {
    store_.Save({100, 200}, {}, /*elements=*/300);
    store_.Save({400, 500, 600, 700, 800}, {}, /*elements=*/300);
    log_ = LogOf(store_);
  }

  void LoseLog() { ASSERT_TRUE(fs::remove(log_)); }

  const TestStore store_;
  std::string log_;
};

TEST_F(UnrecordedSteps, AreNamedWhateverLengthTheLogIsCutTo) {
  EXPECT_EQ(VerifyJson(store_, 0)["unrecorded_steps"], json::array());
  const std::string whole = ReadWhole(log_);
  ASSERT_GT(whole.size(), 1000u);
  size_t lost = 0;
  for (size_t length = 0; length < whole.size(); length += whole.size() / 11) {
    SCOPED_TRACE(testing::Message() << "cut to " << length << " of " << whole.size());
    WriteWhole(log_, std::string_view(whole).substr(0, length));
    const Finished verify = RunInspect({"--store", store_.directory(), "--json", "verify"});
    const json document = ParseJson(verify.out, nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(document.is_object()) << verify.err;
    auto steps = document["unrecorded_steps"].get<std::vector<int64_t>>();
    lost += steps.size();
    const bool complete = steps.empty() && document["store"]["manifest_problem"].is_null();
    EXPECT_EQ(verify.exit_code, complete ? 0 : 3) << verify.err;
    for (const json& step : document["steps"]) {
      EXPECT_EQ(step["result"], "sound");
      steps.push_back(step["step"].get<int64_t>());
    }
    EXPECT_THAT(steps, UnorderedElementsAre(100, 200, 400, 500, 600, 700, 800));
    EXPECT_EQ(document["restore"]["step"], 800);
    const json repair = ParseJson(RunInspect({"--store", store_.directory(), "--json", "repair"}).out, nullptr, false);
    ASSERT_TRUE(repair.is_object());
    EXPECT_EQ(repair["restore"], 800);
    if (HasFailure()) return;
  }
  EXPECT_GT(lost, 5u) << "an empty log has lost five";
  WriteWhole(log_, whole);
  EXPECT_EQ(VerifyJson(store_, 0)["unrecorded_steps"], json::array());
}

TEST_F(UnrecordedSteps, AreNamedWhereTheLogIsGoneUntilARepairTakesThemIn) {
  LoseLog();
  const Finished verify = Verify(store_);
  EXPECT_EQ(verify.exit_code, 3) << verify.err;
  EXPECT_EQ(verify.err, "");
  EXPECT_THAT(verify.out, HasSubstr("\nmanifest: incomplete: it does not know the latest save of steps 400, 500, 600, "
                                    "700, 800, whose files are complete\n"));
  EXPECT_THAT(verify.out,
              EndsWith("\n2 of 2 steps sound; not in the manifest: 400, 500, 600, 700, 800; a restore takes "
                       "step 800, which was not verified\n"));
  EXPECT_EQ(RunInspectJson({"--store", store_.directory(), "verify", "200"}, 0)["unrecorded_steps"], json::array());
  EXPECT_EQ(RunInspect({"--store", store_.directory(), "repair", "--apply"}).exit_code, 0);
  EXPECT_EQ(VerifyJson(store_, 0)["steps"].size(), 7u);
}

TEST_F(UnrecordedSteps, AreAStepThatRemainsWhereNoRecordedOneIsSound) {
  LoseLog();
  store_.DamageIndex(100);
  store_.DamageIndex(200);
  EXPECT_EQ(VerifyJson(store_, 3)["restore"], ParseJson(R"({"step": 800, "verified": false})"));
}

TEST_F(UnrecordedSteps, AreNoneThatAreNotWholeOrWereDeleted) {
  LoseLog();
  store_.RemoveShard(800);
  store_.DamageIndex(700);
  WriteWhole(FolderOf(store_, 600) + "/deleted.json", R"({"version": 1, "note": "old"})");
  EXPECT_EQ(VerifyJson(store_, 3)["unrecorded_steps"], json::array({400, 500}));
}

TEST_F(UnrecordedSteps, AreNoneThatAreOfAnotherStoreOrANewerVersion) {
  LoseLog();
  const TestStore other;
  other.Save({800}, {}, /*elements=*/300);
  fs::remove_all(FolderOf(store_, 800));
  const fs::path foreign = FolderOf(other, 800);
  fs::copy(foreign, store_.directory() + "/steps/" + foreign.filename().string(), fs::copy_options::recursive);
  store_.MakeShardNewer(700);
  EXPECT_EQ(VerifyJson(store_, 3)["unrecorded_steps"], json::array({400, 500, 600}));
}

TEST_F(UnrecordedSteps, AreNotNamedWhileSomebodyHoldsTheStore) {
  LoseLog();
  {
    const auto held = storage::PosixFileSystem().TryLock(store_.directory() + "/LOCK");
    ASSERT_TRUE(held.ok()) << held.status();
    EXPECT_EQ(VerifyJson(store_, 0)["unrecorded_steps"], json::array());
  }
  EXPECT_EQ(VerifyJson(store_, 3)["unrecorded_steps"].size(), 5u);
  // A copy may lack the file.
  fs::remove(store_.directory() + "/LOCK");
  EXPECT_EQ(VerifyJson(store_, 3)["unrecorded_steps"].size(), 5u);
}

TEST_F(UnrecordedSteps, AreLookedForOnceMoreInWhatWasRecordedSince) {
  const auto reader = OpenReader(store_);
  store_.Save({900}, {}, /*elements=*/300);
  ASSERT_FALSE(reader->FindStep(900).ok());
  const auto steps = FindUnrecordedSteps(storage::PosixFileSystem(), *reader, store_.directory());
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_THAT(*steps, IsEmpty());
  EXPECT_TRUE(reader->FindStep(900).ok());
}

TEST_F(UnrecordedSteps, AreNoneWhereAnotherAttemptHasTakenTheStepsPlace) {
  const std::string replaced = FolderOf(store_, 200);
  const TestStore elsewhere;
  fs::copy(replaced, elsewhere.directory() + "/kept", fs::copy_options::recursive);
  store_.Save({200}, {.overwrite = true}, /*elements=*/300);
  ASSERT_FALSE(fs::exists(replaced));
  fs::copy(elsewhere.directory() + "/kept", replaced, fs::copy_options::recursive);
  EXPECT_EQ(VerifyJson(store_, 0)["unrecorded_steps"], json::array());
}

TEST_F(UnrecordedSteps, AreThoseWhoseLatestSaveTheManifestDoesNotKnow) {
  const TestStore before;
  fs::copy(store_.directory() + "/manifest", before.directory() + "/manifest", fs::copy_options::recursive);
  store_.Save({200}, {.overwrite = true}, /*elements=*/300);
  fs::remove_all(store_.directory() + "/manifest");
  fs::copy(before.directory() + "/manifest", store_.directory() + "/manifest", fs::copy_options::recursive);
  const json document = VerifyJson(store_, 3);
  EXPECT_EQ(document["unrecorded_steps"], json::array({200}));
  EXPECT_EQ(document["restore"], ParseJson(R"({"step": 800, "verified": true})"));
}

// As after a commit that was refused, and another save of the step that failed while it was written.
TEST_F(UnrecordedSteps, AreThoseOfWhichOnlyALaterSaveThatFailedIsRecorded) {
  StepInfo failed = store_.Info(800);
  failed.state = StepState::kFailed;
  failed.attempt = std::string(32, '7');
  failed.sequence += 1;
  failed.reason = "ENOSPC";
  store_.PutRecord(storage::StepKey(800), storage::EncodeStepRecord({.info = failed}));
  const json document = VerifyJson(store_, 3);
  EXPECT_EQ(document["unrecorded_steps"], json::array({800}));
  const Finished repaired = RunInspect({"--store", store_.directory(), "repair", "--apply"});
  EXPECT_EQ(repaired.exit_code, 0) << repaired.err;
  EXPECT_EQ(store_.Info(800).state, StepState::kCommitted);
}

TEST_F(UnrecordedSteps, CannotBeLookedForWhereNobodyCanSayWhetherTheStoreIsHeld) {
  LoseLog();
  fs::remove(store_.directory() + "/LOCK");
  fs::create_directory(store_.directory() + "/LOCK");
  const Finished verify = Verify(store_);
  EXPECT_EQ(verify.exit_code, 1);
  EXPECT_THAT(verify.err, HasSubstr("steps that the manifest does not know could not be searched for: "));
  EXPECT_THAT(verify.err, HasSubstr("LOCK"));
  EXPECT_THAT(verify.out, EndsWith("2 of 2 steps sound; a restore takes step 200\n"));
}

TEST_F(UnrecordedSteps, AreNotLookedForOnceSomebodyInterrupts) {
  const auto reader = OpenReader(store_);
  const std::string said = storage::InChild([&]() -> std::string {
    CatchInterrupts();
    std::raise(SIGINT);
    return FindUnrecordedSteps(storage::PosixFileSystem(), *reader, store_.directory()).status().ToString();
  });
  EXPECT_EQ(said, "CANCELLED: interrupted");
}

TEST(UnrecordedStep, RemainsWhereTheManifestKnowsNone) {
  TestStore store;
  store.Save({1, 2});
  ASSERT_TRUE(fs::remove(LogOf(store)));
  const Finished verify = Verify(store);
  EXPECT_EQ(verify.exit_code, 3) << verify.err;
  EXPECT_EQ(verify.err, "");
  EXPECT_THAT(verify.out, EndsWith("\n0 of 0 steps sound; not in the manifest: 1, 2; a restore takes step 2, which was "
                                   "not verified\n"));
  EXPECT_EQ(VerifyJson(store, 3)["steps"], json::array());
}

TEST(UnrecordedStep, CannotBeLookedForWhereStepsIsNoFolder) {
  TestStore store;
  store.Save({});
  fs::remove_all(store.directory() + "/steps");
  EXPECT_EQ(Verify(store).exit_code, 12) << "without it there is none";
  WriteWhole(store.directory() + "/steps", "x");
  const Finished verify = Verify(store);
  EXPECT_EQ(verify.exit_code, 1);
  EXPECT_THAT(verify.err, HasSubstr("steps that the manifest does not know could not be searched for: "));
  EXPECT_THAT(verify.err, HasSubstr("no step is committed in "));
}

TEST(UnrecordedStep, IsNullToProgramsWhereNobodyCanSay) {
  TestStore store;
  store.Save({1});
  fs::rename(store.directory() + "/steps", store.directory() + "/elsewhere");
  WriteWhole(store.directory() + "/steps", "x");
  EXPECT_EQ(VerifyJson(store, 13)["unrecorded_steps"], nullptr);
}

TEST(UnrecordedStep, IsNoneWhereAFileIsGoneThatItRefersTo) {
  TestStore store;
  store.Save({1});
  store.SaveReusing({2});
  ASSERT_TRUE(fs::remove(LogOf(store)));
  EXPECT_EQ(VerifyJson(store, 3)["unrecorded_steps"], json::array({2}));
  store.RemoveShard(1);
  EXPECT_EQ(VerifyJson(store, 13)["unrecorded_steps"], json::array());
}

TEST(UnrecordedStep, IsNotJudgedWhereTheDiskFails) {
  TestStore store;
  store.Save({1});
  store.SaveReusing({2});
  ASSERT_TRUE(fs::remove(LogOf(store)));
  const auto reader = OpenReader(store);
  storage::FailingFileSystem files(storage::PosixFileSystem());
  const std::pair<const char*, const char*> calls[] = {{"ListDirectory", "/steps"}, {"TypeOf", "/deleted.json"},
                                                       {"OpenForRead", ".tmk"},     {"TypeOf", ".tmk"},
                                                       {"TypeOf", "/LOCK"},         {"OpenForRead", "/LOCK"}};
  for (const auto& [operation, end] : calls) {
    SCOPED_TRACE(std::string(operation) + " of " + end);
    files.SetRule([operation = std::string(operation), end = std::string(end)](const auto& call) {
      if (call.operation != operation || !call.path.ends_with(end)) return absl::OkStatus();
      return absl::InternalError("the disk fails");
    });
    const auto steps = FindUnrecordedSteps(files, *reader, store.directory());
    EXPECT_EQ(steps.status().code(), absl::StatusCode::kInternal) << steps.status();
  }
  files.Reset();
  const auto steps = FindUnrecordedSteps(files, *reader, store.directory());
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_THAT(*steps, ElementsAre(2));
}

TEST(UnrecordedStep, IsNotJudgedWhereTheRecordsCannotBeReadAnyMore) {
  TestStore store;
  store.Save({1});
  store.Save({2});
  ASSERT_TRUE(fs::remove(LogOf(store)));
  const auto reader = OpenReader(store);
  store.PutRecord(storage::StepKey(1), R"({"version":99})");
  const auto steps = FindUnrecordedSteps(storage::PosixFileSystem(), *reader, store.directory());
  EXPECT_EQ(steps.status().code(), absl::StatusCode::kUnimplemented) << steps.status();
}

}  // namespace
}  // namespace tidemark::inspect
