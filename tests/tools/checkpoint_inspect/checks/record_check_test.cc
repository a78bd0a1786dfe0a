#include "tools/checkpoint_inspect/checks/record_check.h"

#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "storage/index/manifest.h"
#include "storage/records/fact.h"
#include "storage/store/garbage.h"
#include "storage/store/store_identity.h"
#include "storage/store/store_layout.h"
#include "tests/storage/index/index_threads.h"
#include "tests/storage/io/child_process.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;

// A store of two trainers, and a step of each.
class RecordCheckTest : public testing::Test {
 protected:
  void SetUp() override {
    store_.Save({1});
    first_end_ = store_.LastEntry();
    store_.Save({2});
  }

  RecordCheck Check(storage::FileSystem& files = storage::PosixFileSystem(), bool trusted = true) const {
    return CheckRecords(files, store_.directory(), Id(), trusted);
  }
  storage::StoreId Id() const {
    const auto id = storage::ReadStoreIdentity(storage::PosixFileSystem(), Layout());
    return id.ok() ? *id : storage::StoreId();
  }
  storage::StoreLayout Layout() const { return storage::StoreLayout(store_.directory()); }
  uint64_t EpochOfStep(int64_t step) const {
    return storage::EpochOf(storage::AttemptId{*storage::FromHex(store_.Info(step).attempt)});
  }
  // The folder of an attempt that no record names.
  void LeaveAttempt(int64_t step, uint64_t epoch) const {
    fs::create_directory(Layout().attempt(step, storage::MakeAttemptId(epoch, 99)));
  }
  void LoseEntriesAfter(uint64_t number) const {
    for (uint64_t lost = store_.LastEntry(); lost > number; --lost) ASSERT_TRUE(fs::remove(store_.EntryPath(lost)));
  }
  Finished Verify() const { return RunInspect({"--store", store_.directory(), "verify"}); }
  json VerifyJson(int exit_code) const { return RunInspectJson({"--store", store_.directory(), "verify"}, exit_code); }
  void Repair() const {
    const Finished repaired = RunInspect({"--store", store_.directory(), "repair", "--apply"});
    EXPECT_EQ(repaired.exit_code, 0) << repaired.out << repaired.err;
  }

  const TestStore store_;
  uint64_t first_end_ = 0;  // the last entry of the first trainer
};

TEST_F(RecordCheckTest, FindsNothingWrongInASoundStore) {
  const RecordCheck check = Check();
  EXPECT_TRUE(check.identity.ok());
  EXPECT_TRUE(check.journal.ok()) << check.journal;
  EXPECT_EQ(check.entries, store_.LastEntry());
  ASSERT_TRUE(check.index.has_value());
  EXPECT_TRUE(check.index->problem.ok()) << check.index->problem;
  EXPECT_EQ(check.index->entry, store_.LastEntry());
  EXPECT_THAT(check.unfinished, IsEmpty());
  EXPECT_TRUE(check.error.ok()) << check.error;
  const json document = VerifyJson(0);
  EXPECT_EQ(document["journal"], json({{"entries", check.entries}, {"damage", nullptr}}));
  EXPECT_EQ(document["index"], json({{"entry", check.entries}, {"problem", nullptr}}));
  EXPECT_EQ(document["unfinished"], json::array());
}

TEST_F(RecordCheckTest, NamesTheEntryThatIsDamagedUntilARepairMakesTheJournalAnew) {
  store_.DamageJournal();
  EXPECT_THAT(std::string(Check().journal.message()), HasSubstr("entry 1"));
  const Finished verify = Verify();
  EXPECT_EQ(verify.exit_code, 3) << verify.err;
  EXPECT_THAT(verify.out, ContainsRegex("\njournal: damaged: [^\n]*entry 1[^\n]*\n  repair --apply makes it anew"));
  EXPECT_THAT(verify.out, EndsWith("2 of 2 steps sound; the journal cannot be read; a restore takes step 2\n"));
  EXPECT_THAT(VerifyJson(3)["journal"]["damage"].get<std::string>(), HasSubstr("entry 1"));
  Repair();
  EXPECT_EQ(VerifyJson(0)["steps"].size(), 2u);
}

TEST_F(RecordCheckTest, FindsTheDamageWhicheverEntryItIsIn) {
  for (uint64_t number = 1; number <= store_.LastEntry(); ++number) {
    SCOPED_TRACE(number);
    const std::string path = store_.EntryPath(number);
    const std::string sound = ReadWhole(path);
    std::string damaged = sound;
    damaged[sound.size() / 3] ^= 1;
    WriteWhole(path, damaged);
    EXPECT_TRUE(absl::IsDataLoss(Check().journal)) << Check().journal;
    WriteWhole(path, sound);
  }
  EXPECT_TRUE(Check().journal.ok());
}

TEST_F(RecordCheckTest, FindsAFactThatIsNone) {
  store_.AppendFact("\x01\x01\x1b");
  EXPECT_THAT(std::string(Check().journal.message()), HasSubstr("journal entry " + std::to_string(store_.LastEntry())));
  EXPECT_EQ(Verify().exit_code, 3);
}

TEST_F(RecordCheckTest, FindsTheJournalOfAnotherStore) {
  const TestStore other;
  other.Save({1});
  fs::remove_all(Layout().journal());
  fs::copy(other.directory() + "/journal", Layout().journal(), fs::copy_options::recursive);
  EXPECT_THAT(std::string(Check().journal.message()), HasSubstr("the journal belongs to store"));
  EXPECT_EQ(VerifyJson(3)["steps"].size(), 2u) << "those of the shards";
}

TEST_F(RecordCheckTest, FindsByTheIndexThatTheJournalHasLostItsEnd) {
  LoseEntriesAfter(first_end_);
  const Finished verify = Verify();
  EXPECT_EQ(verify.exit_code, 3) << verify.err;
  EXPECT_THAT(verify.out,
              ContainsRegex("\njournal: damaged: it ends with entry [0-9]+, and the index has applied entry "
                            "[0-9]+\n"));
  EXPECT_THAT(verify.out, EndsWith("1 of 1 step sound; the journal is damaged; a restore takes step 1\n"));
  Repair();
  EXPECT_EQ(VerifyJson(0)["steps"].size(), 2u);
}

TEST_F(RecordCheckTest, FindsByAnAttemptThatTheJournalHasLostItsEnd) {
  LoseEntriesAfter(first_end_);
  store_.RemoveIndex();
  const RecordCheck check = Check();
  EXPECT_THAT(std::string(check.journal.message()),
              AllOf(HasSubstr("it has lost its end"), HasSubstr("of step 2 is of epoch")));
  EXPECT_THAT(check.unfinished, IsEmpty());
  EXPECT_EQ(Verify().exit_code, 3);
  Repair();
  EXPECT_EQ(VerifyJson(0)["steps"].size(), 2u);
}

// "No step is committed" alone would mean a fresh run.
TEST_F(RecordCheckTest, FailsWhereTheJournalHasLostEveryStep) {
  LoseEntriesAfter(1);
  const Finished verify = Verify();
  EXPECT_EQ(verify.exit_code, 13) << verify.out;
  EXPECT_THAT(verify.out, ContainsRegex("^journal: damaged: it ends with entry 1, and the index has applied entry "));
  EXPECT_THAT(verify.err, HasSubstr("no step is committed in "));
  Repair();
  EXPECT_EQ(VerifyJson(0)["steps"].size(), 2u);
}

TEST_F(RecordCheckTest, FindsThatTheJournalIsMissing) {
  fs::remove_all(Layout().journal());
  const Finished verify = Verify();
  EXPECT_EQ(verify.exit_code, 3) << verify.err;
  EXPECT_THAT(verify.out, HasSubstr("\njournal: damaged: it is missing\n  repair --apply makes it anew"));
  EXPECT_EQ(VerifyJson(3)["journal"]["damage"], "it is missing");
  Repair();
  EXPECT_EQ(VerifyJson(0)["steps"].size(), 2u);
}

TEST_F(RecordCheckTest, MissesNoJournalInAStoreWhoseMakingWasCutShort) {
  const TestStore fresh;
  fs::copy(Layout().identity(), fresh.directory() + "/store.json");
  fs::create_directory(fresh.directory() + "/steps");
  const Finished verify = RunInspect({"--store", fresh.directory(), "verify"});
  EXPECT_EQ(verify.exit_code, 12) << verify.err;
  EXPECT_EQ(verify.out, "");
}

TEST_F(RecordCheckTest, HasNothingAgainstAnIndexThatIsMissingOrBehind) {
  const TestStore before;
  fs::copy(Layout().index(), before.directory() + "/index", fs::copy_options::recursive);
  store_.Save({3});
  store_.RemoveIndex();
  const json missing = VerifyJson(0);
  EXPECT_EQ(missing["index"], nullptr);
  fs::copy(before.directory() + "/index", Layout().index(), fs::copy_options::recursive);
  const json behind = VerifyJson(0);
  EXPECT_LT(behind["index"]["entry"], behind["journal"]["entries"]);
  EXPECT_EQ(behind["index"]["problem"], nullptr);
  EXPECT_THAT(Verify().out, Not(HasSubstr("index")));
}

TEST_F(RecordCheckTest, SaysThatNothingIsLostWithAnIndexThatIsDamaged) {
  WriteWhole(Layout().index() + "/CURRENT", "no index here\n");
  const Finished verify = Verify();
  EXPECT_EQ(verify.exit_code, 0) << verify.out;
  EXPECT_THAT(verify.out, ContainsRegex("\nindex: unusable: [^\n]+\n  nothing is lost: "));
  EXPECT_THAT(verify.out, EndsWith("2 of 2 steps sound; a restore takes step 2\n"));
  EXPECT_NE(VerifyJson(0)["index"]["problem"], nullptr);
  store_.Save({3});
  EXPECT_EQ(VerifyJson(0)["index"]["problem"], nullptr) << "what mends it";
}

TEST_F(RecordCheckTest, KnowsTheIndexOfAnotherJournal) {
  const TestStore other;
  fs::copy(store_.directory(), other.directory(), fs::copy_options::recursive);
  store_.Save({3});
  other.Save({4});
  ASSERT_EQ(store_.LastEntry(), other.LastEntry());
  store_.RemoveIndex();
  fs::copy(other.directory() + "/index", Layout().index(), fs::copy_options::recursive);
  EXPECT_EQ(VerifyJson(0)["index"]["problem"], "it is of another journal");
  const TestStore strange;
  strange.Save({1});
  store_.RemoveIndex();
  fs::copy(strange.directory() + "/index", Layout().index(), fs::copy_options::recursive);
  EXPECT_EQ(VerifyJson(0)["index"]["problem"], "it is of another store");
}

TEST_F(RecordCheckTest, FindsThatTheIndexSaysSomethingElse) {
  const auto attempt = store_.Info(1).attempt;
  {
    auto index = storage::Manifest::Open(storage::PosixFileSystem(), Layout().index());
    ASSERT_TRUE(index.ok()) << index.status();
    const auto place = (*index)->Applied();
    ASSERT_TRUE(place.ok() && place->has_value());
    const std::vector<storage::Fact> facts = {storage::PinFact{.step = 1, .attempt = attempt, .pinned = true}};
    ASSERT_TRUE((*index)->Apply(**place, facts).ok());
  }
  EXPECT_EQ(VerifyJson(0)["index"]["problem"], "its records differ from those of the journal");
  store_.Save({3});
  EXPECT_EQ(VerifyJson(0)["index"]["problem"], nullptr) << "what mends it";
}

// In a block that has nothing of what is compared: the keys by which the best step is found.
TEST_F(RecordCheckTest, FindsADamagedBlockOfTheIndex) {
  SaveOptions options;
  for (int i = 100; i < 600; ++i) options.metrics["metric " + std::to_string(i)] = i;
  store_.Save({3}, options);
  store_.Save({4});  // the log of the trainer before becomes a table
  ASSERT_EQ(VerifyJson(0)["index"]["problem"], nullptr);
  size_t damaged = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(Layout().index())) {
    std::string bytes = ReadWhole(file.path());
    const size_t at = bytes.find("metric/");
    if (file.path().extension() != ".sst" || at == std::string::npos) continue;
    bytes[at + (size_t{8} << 10)] ^= 1;
    WriteWhole(file.path(), bytes);
    ++damaged;
  }
  ASSERT_EQ(damaged, 1u);
  const json problem = VerifyJson(0)["index"]["problem"];
  ASSERT_TRUE(problem.is_string());
  EXPECT_THAT(problem.get<std::string>(), HasSubstr("verify database"));
}

TEST_F(RecordCheckTest, NamesTheSavesThatWereCutShort) {
  LeaveAttempt(9, EpochOfStep(1));
  LeaveAttempt(8, EpochOfStep(2));
  const json document = VerifyJson(0);
  ASSERT_THAT(document["unfinished"], SizeIs(2));
  EXPECT_EQ(document["unfinished"][0]["step"], 8);
  EXPECT_EQ(document["unfinished"][1]["attempt"], storage::ToHex(storage::MakeAttemptId(EpochOfStep(1), 99).bytes));
  EXPECT_THAT(Verify().out, HasSubstr("\nunfinished: saves of steps 8, 9 were cut short; repair says which can be "
                                      "committed; the next trainer, or repair --apply, removes their files\n2 of 2 "
                                      "steps sound; a restore takes step 2\n"));
  Repair();
  EXPECT_EQ(VerifyJson(0)["unfinished"], json::array());
}

TEST_F(RecordCheckTest, CallsNothingUnfinishedThatAHolderIsSaving) {
  LeaveAttempt(7, EpochOfStep(1));
  LeaveAttempt(8, EpochOfStep(2));
  {
    const auto held = storage::PosixFileSystem().TryLock(Layout().lock());
    ASSERT_TRUE(held.ok()) << held.status();
    ASSERT_THAT(Check().unfinished, SizeIs(1)) << "the holder's epoch is the newest";
    EXPECT_EQ(Check().unfinished[0].step, 7);
  }
  EXPECT_THAT(Check().unfinished, SizeIs(2));
  // A copy may lack the file.
  fs::remove(Layout().lock());
  EXPECT_THAT(Check().unfinished, SizeIs(2));
}

TEST(RecordCheck, CallsADeletedStepToWhichAnotherRefersNotUnfinished) {
  TestStore store;
  store.SaveReusing({1, 2});
  const std::string folder = fs::path(store.ShardPath(1)).parent_path();
  store.Delete(1, "too old");
  ASSERT_TRUE(fs::exists(folder));
  EXPECT_EQ(RunInspectJson({"--store", store.directory(), "verify"})["unfinished"], json::array());
}

TEST_F(RecordCheckTest, SaysWhatCouldNotBeLookedAt) {
  storage::FailingFileSystem files(storage::PosixFileSystem());
  const std::pair<const char*, const char*> calls[] = {{"ListDirectory", "/steps"},
                                                       {"TypeOf", "/LOCK"},
                                                       {"OpenForRead", "/LOCK"},
                                                       {"ListDirectory", "/journal"},
                                                       {"OpenForRead", "/0000000001"}};
  for (const auto& [operation, end] : calls) {
    SCOPED_TRACE(std::string(operation) + " of " + end);
    files.SetRule([operation = std::string(operation), end = std::string(end)](const auto& call) {
      if (call.operation != operation || !call.path.ends_with(end)) return absl::OkStatus();
      return absl::InternalError("the disk fails");
    });
    const RecordCheck check = Check(files);
    EXPECT_EQ(check.error.code(), absl::StatusCode::kInternal) << check.error;
    EXPECT_TRUE(check.journal.ok()) << check.journal;
    EXPECT_THAT(check.unfinished, IsEmpty());
  }
  files.Reset();
  EXPECT_TRUE(Check(files).error.ok());
}

TEST_F(RecordCheckTest, FailsWhereSomethingCouldNotBeLookedAt) {
  fs::remove(Layout().lock());
  fs::create_directory(Layout().lock());
  const Finished verify = Verify();
  EXPECT_EQ(verify.exit_code, 1);
  EXPECT_THAT(verify.err, AllOf(HasSubstr("not all records could be looked at: "), HasSubstr("LOCK")));
  EXPECT_THAT(verify.out, EndsWith("2 of 2 steps sound; a restore takes step 2\n"));
  EXPECT_EQ(VerifyJson(1)["unfinished"], nullptr);
}

TEST_F(RecordCheckTest, EndsOnceAPersonInterrupts) {
  storage::EndIndexThreads();
  const std::string said = storage::InChild([&]() -> std::string {
    CatchInterrupts();
    std::raise(SIGINT);
    return Check().error.ToString();
  });
  EXPECT_EQ(said, "CANCELLED: interrupted");
}

// What opening RocksDB would stumble over: its folder is a fifo.
TEST_F(RecordCheckTest, OpensNoIndexOfAnUntrustedStore) {
  store_.RemoveIndex();
  ASSERT_EQ(mkfifo(Layout().index().c_str(), 0600), 0);
  const RecordCheck check = Check(storage::PosixFileSystem(), /*trusted=*/false);
  EXPECT_FALSE(check.index.has_value());
  EXPECT_TRUE(check.journal.ok()) << check.journal;
  EXPECT_EQ(check.entries, store_.LastEntry());
  EXPECT_TRUE(check.error.ok()) << check.error;
}

TEST_F(RecordCheckTest, FindsWhicheverBitOfTheIdentityChanges) {
  const std::string path = Layout().identity();
  const std::string sound = ReadWhole(path);
  const storage::StoreId id = Id();
  size_t newer = 0;
  for (size_t bit = 0; bit < sound.size() * 8; ++bit) {
    SCOPED_TRACE(testing::Message() << "byte " << bit / 8 << ", bit " << bit % 8);
    std::string changed = sound;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    WriteWhole(path, changed);
    // A store of a newer format is not opened.
    const bool is_newer = absl::IsUnimplemented(storage::DecodeStoreIdentity(changed).status());
    newer += is_newer ? 1 : 0;
    const absl::Status found =
        CheckRecords(storage::PosixFileSystem(), store_.directory(), id, /*trusted=*/false).identity;
    EXPECT_EQ(absl::IsDataLoss(found), !is_newer);
  }
  EXPECT_LT(newer, 8u);
}

TEST_F(RecordCheckTest, NamesTheIdentityThatIsDamaged) {
  const std::string path = Layout().identity();
  std::string bytes = ReadWhole(path);
  bytes.at(bytes.find("store_id")) ^= 1;
  WriteWhole(path, bytes);
  const Finished verify = Verify();
  EXPECT_EQ(verify.exit_code, 3) << verify.err;
  EXPECT_THAT(verify.out, HasSubstr("\nstore.json: damaged: " + path + ": "));
  EXPECT_THAT(verify.out, EndsWith("\n2 of 2 steps sound; store.json is damaged; a restore takes step 2\n"));
  EXPECT_THAT(VerifyJson(3)["identity_damage"].get<std::string>(), HasSubstr(path));
  Repair();
  EXPECT_EQ(VerifyJson(0)["identity_damage"], nullptr);
}

}  // namespace
}  // namespace tidemark::inspect
