#include <sys/mount.h>

#include <filesystem>
#include <set>

#include "gmock/gmock.h"
#include "tests/storage/io/child_process.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;

using nlohmann::json;
using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::MatchesRegex;
using testing::Not;

const std::vector<std::string> kQuick = {"--seconds", "0.01", "--bytes", "8MiB"};

Finished RunDoctor(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), kQuick.begin(), kQuick.end());
  return RunInspect(arguments);
}

json DoctorJson(std::vector<std::string> arguments, int expected_exit_code) {
  arguments.insert(arguments.end(), kQuick.begin(), kQuick.end());
  return RunInspectJson(arguments, expected_exit_code);
}

json CheckNamed(const json& document, const std::string& name) {
  for (const json& check : document["checks"]) {
    if (check["check"] == name) return check;
  }
  return nullptr;
}

TEST(Doctor, FindsThatAStoreCanBeInTheBuildTree) {
  const TestStore folder;
  const Finished doctor = RunDoctor({"doctor", folder.directory()});
  EXPECT_EQ(doctor.exit_code, 0) << doctor.out << doctor.err;
  EXPECT_EQ(doctor.err, "");
  for (const char* check :
       {"directory", "file system",   "writable",   "space",      "durable names", "new names",  "hard links",
        "locks",     "O_DIRECT",      "fallocate",  "O_TMPFILE",  "write speed",   "read speed", "sync",
        "io_uring",  "locked memory", "open files", "huge pages", "CPU vectors",   "cores"}) {
    EXPECT_THAT(doctor.out, HasSubstr("\n" + std::string(check) + " "));
  }
  EXPECT_THAT(doctor.out, HasSubstr("\na store works here"));
  EXPECT_TRUE(fs::is_empty(folder.directory()));
}

TEST(Doctor, GivesEveryFieldAsJson) {
  const TestStore folder;
  const json document = DoctorJson({"doctor", folder.directory() + "/absent"}, 0);
  EXPECT_EQ(document["schema_version"], 2);
  EXPECT_EQ(document["directory"], folder.directory() + "/absent");
  EXPECT_EQ(document["looked_at"], folder.directory());
  EXPECT_NE(document["verdict"], "missing");
  EXPECT_EQ(CheckNamed(document, "writable"),
            ParseJson(R"({"check": "writable", "verdict": "ok", "found": "yes", "advice": ""})"));
  EXPECT_GT(document["speed"]["bytes"], 0);
  EXPECT_LE(document["speed"]["bytes"], 8 << 20);
  EXPECT_GT(document["speed"]["write_bytes_per_second"], 0.0);
  EXPECT_GT(document["speed"]["read_bytes_per_second"], 0.0);
  EXPECT_GT(document["speed"]["sync_seconds_median"], 0.0);
  EXPECT_TRUE(fs::is_empty(folder.directory()));
}

TEST(Doctor, TakesTheStoreWhereNoDirectoryIsNamedAndChangesNothingInIt) {
  TestStore store;
  store.Save({1});
  const auto files_of = [&store] {
    std::set<std::string> names;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(store.directory())) {
      names.insert(entry.path());
    }
    return names;
  };
  const std::set<std::string> before = files_of();
  EXPECT_EQ(DoctorJson({"--store", store.directory(), "doctor"}, 0)["looked_at"], store.directory());
  EXPECT_EQ(files_of(), before);
  EXPECT_EQ(RunInspect({"--store", store.directory(), "verify"}).exit_code, 0);
}

TEST(Doctor, FindsThatNoStoreCanBeAmongTheKernelsFiles) {
  const Finished doctor = RunDoctor({"doctor", "/proc"});
  EXPECT_EQ(doctor.exit_code, 1);
  EXPECT_THAT(doctor.out, AllOf(MatchesRegex("(.|\n)*\nfile system +missing +proc (.|\n)*"),
                                MatchesRegex("(.|\n)*\nwritable +missing (.|\n)*"), HasSubstr("\nio_uring "),
                                Not(HasSubstr("write speed")), EndsWith("\nno store works here\n")));
  const json document = DoctorJson({"doctor", "/proc/store"}, 1);
  EXPECT_EQ(document["looked_at"], "/proc");
  EXPECT_EQ(document["verdict"], "missing");
  EXPECT_EQ(document["speed"], nullptr);
}

TEST(Doctor, FindsThatAFileIsNoDirectory) {
  const TestStore folder;
  WriteWhole(folder.directory() + "/file", "text");
  const json document = DoctorJson({"doctor", folder.directory() + "/file"}, 1);
  EXPECT_EQ(document["looked_at"], nullptr);
  EXPECT_EQ(CheckNamed(document, "directory")["verdict"], "missing");
  EXPECT_EQ(CheckNamed(document, "writable"), nullptr);
}

TEST(Doctor, WarnsOfADirectoryInMemory) {
  if (!fs::is_directory("/dev/shm")) GTEST_SKIP() << "there is no /dev/shm";
  const json document = DoctorJson({"doctor", "/dev/shm"}, 0);
  EXPECT_EQ(document["verdict"], "risk");
  EXPECT_THAT(CheckNamed(document, "file system")["advice"].get<std::string>(), HasSubstr("in memory"));
}

TEST(Doctor, FindsThatNothingCanBeWrittenWhereAllIsReadOnly) {
  const TestStore folder;
  const std::string& place = folder.directory();
  const std::string answer = storage::InChild([&]() -> std::string {
    if (!storage::EnterMountNamespace()) return "SKIP";
    // For root too.
    if (mount(place.c_str(), place.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        mount(nullptr, place.c_str(), nullptr, MS_REMOUNT | MS_BIND | MS_RDONLY, nullptr) != 0) {
      return "cannot mount it";
    }
    const Finished doctor = RunDoctor({"doctor", place});
    return std::to_string(doctor.exit_code) + "\n" + doctor.out;
  });
  if (answer == "SKIP") GTEST_SKIP() << "mount namespaces are not allowed here";
  EXPECT_THAT(answer, AllOf(MatchesRegex("1\n(.|\n)*\nwritable +missing [^\n]*\\(EROFS\\)\n(.|\n)*"),
                            Not(HasSubstr("write speed")), EndsWith("\nno store works here\n")));
}

TEST(Doctor, LeavesNothingWhenItIsInterrupted) {
  const TestStore folder;
  const Finished doctor = RunInspect({"doctor", folder.directory(), "--seconds", "3600", "--bytes", "8GiB"},
                                     {.terminal = true, .interrupt_at = "writing: "});
  EXPECT_EQ(doctor.exit_code, 130) << doctor.out;
  EXPECT_THAT(doctor.out, AllOf(HasSubstr("error: interrupted; the trial file was removed"), Not(HasSubstr("CHECK"))));
  EXPECT_TRUE(fs::is_empty(folder.directory()));
}

TEST(Doctor, RefusesSizesAndTimesThatAreNone) {
  const TestStore folder;
  const std::vector<std::vector<std::string>> wrong = {{"--seconds", "-1"}, {"--seconds", "x"}, {"--bytes", "-1"},
                                                       {"--bytes", "many"}, {"--bytes", "0"},   {"a", "b"}};
  for (const std::vector<std::string>& arguments : wrong) {
    std::vector<std::string> words = {"doctor", "--store", folder.directory()};
    words.insert(words.end(), arguments.begin(), arguments.end());
    EXPECT_EQ(RunInspect(words).exit_code, 2) << testing::PrintToString(arguments);
  }
  EXPECT_EQ(RunInspect({"doctor", "--untrusted"}).exit_code, 2);
}

}  // namespace
}  // namespace tidemark::inspect
