#include "tools/checkpoint_inspect/checks/note_check.h"

#include <filesystem>
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "storage/manifest/deletion_mark.h"
#include "storage/manifest/store_identity.h"
#include "storage/records/manifest_records.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::EndsWith;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

const Evaluation kEvaluation = {.evaluator = "validation", .metrics = {{"loss", 0.25}}};

// A store of one step.
class NoteCheck : public testing::Test {
 protected:
  void SetUp() override { store_.Save({1}); }

  std::string Folder() const { return fs::path(store_.ShardPath(1)).parent_path(); }
  std::vector<NoteProblem> Check() const { return CheckStepNotes(store_.directory(), store_.Info(1)); }
  void Pin(const std::string& note) const {
    const Finished pin = RunInspect({"--store", store_.directory(), "pin", "1", "--note", note});
    ASSERT_EQ(pin.exit_code, 0) << pin.err;
  }
  std::unique_ptr<StoreReader> OpenReader() const {
    auto reader = StoreReader::Open(store_.directory());
    EXPECT_TRUE(reader.ok()) << reader.status();
    return *std::move(reader);
  }
  // With what the reader knew when it was opened.
  std::vector<NoteProblem> MissingPins(StoreReader& reader) const {
    return FindMissingPins(reader, store_.directory(), std::vector<StepInfo>(reader.Steps()));
  }
  Finished Verify() const { return RunInspect({"--store", store_.directory(), "verify"}); }
  json VerifyJson() const { return RunInspectJson({"--store", store_.directory(), "verify"}, 3); }
  // The one file in the folder whose name begins so.
  std::string FileIn(const std::string& folder, const std::string& begin) const {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().filename().string().starts_with(begin)) return entry.path();
    }
    ADD_FAILURE() << "nothing in " << folder << " begins with " << begin;
    return "";
  }
  void ChangeLoss(const std::string& path) const {
    std::string bytes = ReadWhole(path);
    const size_t at = bytes.find("0.25");
    ASSERT_NE(at, std::string::npos) << bytes;
    WriteWhole(path, bytes.replace(at, 4, "0.75"));
  }

  TestStore store_;
};

TEST_F(NoteCheck, FindsNothingInWhatWasWritten) {
  EXPECT_THAT(Check(), IsEmpty());
  Pin("");
  store_.Deliver(1, kEvaluation);
  EXPECT_THAT(CheckInboxReports(store_.directory()), IsEmpty());
  store_.TakeInReports();
  EXPECT_THAT(Check(), IsEmpty());
  Pin("for the paper");
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(NoteCheck, NamesAPinThatIsNotUnderstood) {
  Pin("for the paper");
  for (const char* bytes : {"", "x", "[1]"}) {
    WriteWhole(Folder() + "/pin.json", bytes);
    const std::vector<NoteProblem> problems = Check();
    ASSERT_THAT(problems, SizeIs(1)) << bytes;
    EXPECT_EQ(problems[0].step, 1);
    EXPECT_EQ(problems[0].kind, "pin");
    EXPECT_EQ(problems[0].path, Folder() + "/pin.json");
    EXPECT_EQ(problems[0].what, "it is not a JSON object");
  }
}

TEST_F(NoteCheck, NamesAPinThatIsNoFile) {
  fs::create_directory(Folder() + "/pin.json");
  const std::vector<NoteProblem> problems = Check();
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_THAT(problems[0].what, HasSubstr("not a regular file"));
}

TEST_F(NoteCheck, TakesNoOffenceAtAPinOfANewerVersion) {
  WriteWhole(Folder() + "/pin.json", R"({"version": 2, "why": []})");
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(NoteCheck, NamesAReportWhoseBytesAreWrong) {
  store_.Deliver(1, kEvaluation);
  store_.TakeInReports();
  const std::string path = FileIn(Folder(), "metrics-");
  ChangeLoss(path);
  const std::vector<NoteProblem> problems = Check();
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].kind, "report");
  EXPECT_EQ(problems[0].path, path);
  EXPECT_THAT(problems[0].what, HasSubstr(path));
}

TEST_F(NoteCheck, NamesAReportInTheInboxWhoseBytesAreWrong) {
  store_.Deliver(1, kEvaluation);
  const std::string path = FileIn(store_.directory() + "/inbox", "0000000001-");
  ChangeLoss(path);
  const std::vector<NoteProblem> problems = CheckInboxReports(store_.directory());
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].step, 1);
  EXPECT_EQ(problems[0].kind, "report in the inbox");
  EXPECT_EQ(problems[0].path, path);
  EXPECT_THAT(Check(), IsEmpty()) << "it lies in no step's folder";
}

TEST_F(NoteCheck, MissesNoFolderThatIsGone) {
  Pin("");
  const StepInfo info = store_.Info(1);
  const auto reader = OpenReader();
  store_.RemoveStep(1);
  EXPECT_THAT(CheckStepNotes(store_.directory(), info), IsEmpty());
  EXPECT_THAT(CheckDeletionMarks(store_.directory()), IsEmpty());
  EXPECT_THAT(MissingPins(*reader), IsEmpty());
  fs::remove_all(store_.directory() + "/steps");
  EXPECT_THAT(CheckDeletionMarks(store_.directory()), IsEmpty());
}

TEST_F(NoteCheck, MissesThePinThatTheRecordHas) {
  Pin("for the paper");
  EXPECT_THAT(MissingPins(*OpenReader()), IsEmpty());
  const std::string path = Folder() + "/pin.json";
  ASSERT_TRUE(fs::remove(path));
  const std::vector<NoteProblem> problems = MissingPins(*OpenReader());
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].step, 1);
  EXPECT_EQ(problems[0].kind, "pin");
  EXPECT_EQ(problems[0].path, path);
  const Finished verify = Verify();
  EXPECT_EQ(verify.exit_code, 3) << verify.err;
  EXPECT_THAT(verify.out, HasSubstr("\nstep 1: its pin cannot be read: " + path +
                                    ": the file is missing, but the step's record has the pin\n"));
  EXPECT_EQ(VerifyJson()["unreadable_notes"][0]["path"], path);
  // Without the manifest nobody knows of it.
  store_.DamageManifest();
  EXPECT_EQ(VerifyJson()["unreadable_notes"], json::array());
  ASSERT_EQ(RunInspect({"--store", store_.directory(), "repair", "--apply"}).exit_code, 0);
  Pin("for the paper");
  EXPECT_EQ(Verify().exit_code, 0) << "what mends it";
}

TEST_F(NoteCheck, MissesNoPinThatSomebodyRemovedMeanwhile) {
  Pin("");
  const auto reader = OpenReader();
  ASSERT_EQ(RunInspect({"--store", store_.directory(), "unpin", "1"}).exit_code, 0);
  EXPECT_THAT(MissingPins(*reader), IsEmpty());
}

TEST_F(NoteCheck, MissesNoPinOfAStepThatWasSavedAnewMeanwhile) {
  Pin("");
  const auto reader = OpenReader();
  ASSERT_TRUE(fs::remove(Folder() + "/pin.json"));
  store_.Save({1}, {.overwrite = true});
  EXPECT_THAT(MissingPins(*reader), IsEmpty());
}

TEST_F(NoteCheck, MissesThePinOfAStoreThatCannotBeReadAnyMore) {
  Pin("");
  const auto reader = OpenReader();
  ASSERT_TRUE(fs::remove(Folder() + "/pin.json"));
  store_.PutRecord(storage::StepKey(1), R"({"version":99})");
  EXPECT_THAT(MissingPins(*reader), SizeIs(1));
}

TEST_F(NoteCheck, NamesADeletionMarkThatIsNotUnderstood) {
  const StepInfo info = store_.Info(1);
  const absl::Status marked = storage::WriteDeletionMark(
      storage::PosixFileSystem(), storage::StoreLayout(store_.directory()),
      {.step = 1, .attempt = storage::AttemptId{*storage::FromHex(info.attempt)}}, "not among the latest");
  ASSERT_TRUE(marked.ok()) << marked;
  EXPECT_THAT(CheckDeletionMarks(store_.directory()), IsEmpty());
  const std::string path = Folder() + "/deleted.json";
  std::string bytes = ReadWhole(path);
  bytes.at(0) ^= 1;
  WriteWhole(path, bytes);
  const std::vector<NoteProblem> problems = CheckDeletionMarks(store_.directory());
  ASSERT_THAT(problems, SizeIs(1));
  EXPECT_EQ(problems[0].step, 1);
  EXPECT_EQ(problems[0].kind, "deletion mark");
  EXPECT_EQ(problems[0].path, path);
  const Finished verify = Verify();
  EXPECT_EQ(verify.exit_code, 3) << verify.err;
  EXPECT_THAT(verify.out,
              HasSubstr("\nstep 1: its deletion mark cannot be read: " + path + ": it is not a JSON object\n"));
  fs::remove(path);
  fs::create_directory(path);
  EXPECT_THAT(CheckDeletionMarks(store_.directory()), SizeIs(1));
}

TEST_F(NoteCheck, FindsWhicheverBitOfTheIdentityChanges) {
  EXPECT_TRUE(CheckIdentity(store_.directory()).ok());
  const std::string path = store_.directory() + "/store.json";
  const std::string sound = ReadWhole(path);
  size_t newer = 0;
  for (size_t bit = 0; bit < sound.size() * 8; ++bit) {
    SCOPED_TRACE(testing::Message() << "byte " << bit / 8 << ", bit " << bit % 8);
    std::string changed = sound;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
    WriteWhole(path, changed);
    // Of a newer format nobody opens the store.
    const bool is_newer = absl::IsUnimplemented(storage::DecodeStoreIdentity(changed).status());
    newer += is_newer ? 1 : 0;
    EXPECT_EQ(absl::IsDataLoss(CheckIdentity(store_.directory())), !is_newer);
  }
  EXPECT_LT(newer, 8u);
}

TEST_F(NoteCheck, NamesTheIdentityThatIsDamaged) {
  const std::string path = store_.directory() + "/store.json";
  std::string bytes = ReadWhole(path);
  bytes.at(bytes.find("store_id")) ^= 1;
  WriteWhole(path, bytes);
  const Finished verify = Verify();
  EXPECT_EQ(verify.exit_code, 3) << verify.err;
  EXPECT_THAT(verify.out, HasSubstr("\nstore.json: damaged: " + path + ": "));
  EXPECT_THAT(verify.out, EndsWith("\n1 of 1 step sound; store.json is damaged; a restore takes step 1\n"));
  EXPECT_THAT(VerifyJson()["identity_damage"].get<std::string>(), HasSubstr(path));
  ASSERT_EQ(RunInspect({"--store", store_.directory(), "repair", "--apply"}).exit_code, 0);
  const json mended = RunInspectJson({"--store", store_.directory(), "verify"}, 0);
  EXPECT_EQ(mended["identity_damage"], nullptr);
}

TEST(NoteCheckWithoutSteps, NamesAReportInTheInboxThatCannotBeRead) {
  TestStore store;
  store.Save({});
  const std::string inbox = store.directory() + "/inbox";
  fs::create_directory(inbox);
  const std::string digits(32, 'a');
  const std::string path = inbox + "/0000000001-" + digits + "-" + digits + ".json";
  WriteWhole(path, "x");
  const Finished verify = RunInspect({"--store", store.directory(), "verify"});
  EXPECT_EQ(verify.exit_code, 12);
  EXPECT_THAT(verify.out, HasSubstr("step 1: its report in the inbox cannot be read: " + path));
  EXPECT_THAT(verify.err, HasSubstr("no step is committed in "));
  const json document = RunInspectJson({"--store", store.directory(), "verify"}, 12);
  EXPECT_EQ(document["unreadable_notes"][0]["path"], path);
  EXPECT_EQ(document["restore"], nullptr);
}

}  // namespace
}  // namespace tidemark::inspect
