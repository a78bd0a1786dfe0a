#include "tools/checkpoint_inspect/note_check.h"

#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;
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
    EXPECT_EQ(problems[0].what, "it is no JSON object");
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
  const StepInfo info = store_.Info(1);
  store_.RemoveStep(1);
  EXPECT_THAT(CheckStepNotes(store_.directory(), info), IsEmpty());
}

}  // namespace
}  // namespace tidemark::inspect
