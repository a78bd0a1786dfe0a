// Every hostile file gets its error, within 256 MiB and 2 seconds of the processor's time, each in a process of its
// own; and so do the commands of checkpoint-inspect over a store that is made of it.

#include "fuzz/hostile_case.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <set>

#include "absl/time/time.h"
#include "fmt/format.h"
#include "fuzz/store_image.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/printable_text.h"
#include "storage/manifest/lease.h"
#include "storage/manifest/manifest_records.h"
#include "storage/manifest/report_files.h"
#include "storage/manifest/store_identity.h"
#include "storage/manifest/store_request.h"
#include "storage/shard/shard_reader.h"
#include "storage/shard/shard_verify.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"
#include "tools/checkpoint_inspect/commands.h"
#include "tools/checkpoint_inspect/safetensors.h"

namespace tidemark::fuzz {
namespace {

using testing::HasSubstr;

constexpr bool kSanitized = storage::kAddressSanitizer || storage::kThreadSanitizer;
constexpr int64_t kMemoryKibMax = kSanitized ? 2 << 20 : 256 << 10;
constexpr double kSecondsMax = kSanitized ? 20 : 2;
// Of a clock, on a machine that has much else to do: it ends what waits for ever.
constexpr unsigned kHangSeconds = 300;

struct Outcome {
  std::string answer;  // how the process died, if it did
  int64_t memory_kib = 0;
  double seconds = 0;  // that a processor has worked for it
};

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// What a process of its own returns, and what it took.
Outcome InMeasuredChild(const std::function<std::string()>& body) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child < 0) std::abort();
  if (child == 0) {
    alarm(kHangSeconds);
    const std::string answer = body();
    _exit(write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size()) ? 0 : 1);
  }
  close(ends[1]);
  Outcome outcome;
  char buffer[4096];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof(buffer))) > 0;) outcome.answer.append(buffer, size);
  close(ends[0]);
  int how = 0;
  rusage usage = {};
  wait4(child, &how, 0, &usage);
  if (how != 0) outcome.answer = fmt::format("died of {:#x}: {}", how, outcome.answer);
  outcome.memory_kib = usage.ru_maxrss;
  outcome.seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  return outcome;
}

// A store whose only shard is the file's.
class HostileStore {
 public:
  explicit HostileStore(std::string_view shard) : layout_(directory_.path()) {
    std::filesystem::create_directories(std::filesystem::path(path()).parent_path());
    storage::WriteWhole(layout_.identity(), EncodeStoreIdentity(identity_.store));
    storage::WriteWhole(path(), shard);
  }

  std::string path() const { return layout_.shard(identity_.step, identity_.attempt, 0, 1); }

  absl::Status Read() const {
    storage::FileSystem& files = storage::PosixFileSystem();
    const auto reader = storage::ShardReader::Open(files, path(), layout_.steps());
    if (!reader.ok()) return reader.status();
    const auto verified =
        VerifyShard(files, path(), layout_.steps(), &identity_, {.io = storage::IoQueueKind::kThreads});
    if (!verified.ok()) return verified.status();
    if (verified->damage.empty()) return absl::OkStatus();
    return absl::DataLossError(verified->damage[0].what);
  }

  // Whether the commands call it sound, or print what a terminal should not get.
  std::string Inspect() const {
    char* text = nullptr;
    size_t size = 0;
    std::FILE* const stream = open_memstream(&text, &size);
    inspect::Console console(stream, stream);
    const auto reader = StoreReader::OpenUntrusted(directory_.path());
    if (!reader.ok()) return "";
    const inspect::Invocation invocation{console,        **reader,          directory_.path(),
                                         /*json=*/false, absl::UnixEpoch(), directory_.path()};
    ListSteps(invocation, {.all = true});
    ShowStep(invocation, {});
    const inspect::ExitCode verified = VerifySteps(invocation, std::nullopt, {});
    std::fclose(stream);
    std::string printed(text, size);
    std::erase(printed, '\n');
    if (storage::PrintableText(printed) != printed) return "an output has what a terminal should not get";
    return verified == inspect::ExitCode::kOk ? "verify calls it sound" : "";
  }

 private:
  const storage::TestDirectory directory_;
  const storage::StoreLayout layout_;
  const storage::ShardIdentity identity_ = IdentityAt(kHostilePlace);
};

absl::Status ReadFileOf(const HostileCase& hostile) {
  const std::string& name = hostile.file;
  if (name.ends_with(".step")) return storage::DecodeStepRecord(hostile.bytes).status();
  if (name.ends_with(".request")) return storage::DecodeStoreRequest(hostile.bytes).status();
  if (name.ends_with(".lease")) return storage::DecodeLeaseNote(hostile.bytes).status();
  const storage::TestDirectory directory;
  if (name.ends_with(".safetensors") || name.ends_with(".index.json")) {
    storage::WriteWhole(directory / name, hostile.bytes);
    return inspect::OpenSafetensors(directory / name).status();
  }
  const storage::StoreLayout layout(directory.path());
  storage::WriteWhole(layout.identity(), hostile.bytes);
  if (name.ends_with(".identity")) return ReadStoreIdentity(storage::PosixFileSystem(), layout).status();
  if (name.ends_with(".report")) return storage::ReadReport(storage::PosixFileSystem(), layout.identity()).status();
  return absl::UnknownError("what is " + name + "?");
}

std::string Handle(const HostileCase& hostile) {
  if (!hostile.file.ends_with(".tmk")) return ReadFileOf(hostile).ToString();
  const HostileStore store(hostile.bytes);
  const std::string inspected = store.Inspect();
  return inspected.empty() ? store.Read().ToString() : inspected;
}

TEST(HostileFiles, AreThoseOfTheTable) {
  EXPECT_EQ(HostileTable(HostileCases()), storage::ReadWhole(HOSTILE_TABLE))
      << "write it anew with fuzz_make_hostile, and look at what has changed";
}

TEST(HostileFiles, AreManyAndOfEveryClass) {
  std::set<std::string> names;
  std::set<std::string> classes;
  for (const HostileCase& hostile : HostileCases()) {
    EXPECT_TRUE(names.insert(hostile.file).second) << hostile.file << " is there twice";
    EXPECT_FALSE(hostile.message.empty()) << hostile.file;
    classes.insert(hostile.file.substr(0, hostile.file.find('-')));
  }
  EXPECT_GE(names.size(), 200u);
  EXPECT_THAT(classes, testing::IsSupersetOf(
                           {"bomb", "count", "name", "nesting", "overflow", "overlap", "path", "truncation", "utf8"}));
}

TEST(HostileFiles, EachGetsItsErrorInLittleTimeAndMemory) {
  if (storage::kThreadSanitizer) GTEST_SKIP() << storage::kNoThreadsInChild;
  for (const HostileCase& hostile : HostileCases()) {
    SCOPED_TRACE(hostile.file);
    const Outcome outcome = InMeasuredChild([&] { return Handle(hostile); });
    EXPECT_THAT(outcome.answer, testing::StartsWith(absl::StatusCodeToString(hostile.code) + ": "));
    EXPECT_THAT(outcome.answer, HasSubstr(hostile.message));
    EXPECT_EQ(storage::PrintableText(outcome.answer), outcome.answer);
    EXPECT_LE(outcome.memory_kib, kMemoryKibMax);
    EXPECT_LE(outcome.seconds, kSecondsMax);
  }
}

}  // namespace
}  // namespace tidemark::fuzz
