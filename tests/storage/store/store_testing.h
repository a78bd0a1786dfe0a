// Makes steps in a store whose facts are in a journal, the way the persister does.

#ifndef TIDEMARK_TESTS_STORAGE_STORE_STORE_TESTING_H_
#define TIDEMARK_TESTS_STORAGE_STORE_STORE_TESTING_H_

#include <cstdint>
#include <filesystem>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/file_system.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/store.h"
#include "tests/storage/io/crash_states.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {

MATCHER_P(IsOkAndHolds, value, "is ok and that value") {
  *result_listener << arg.status().ToString();
  return arg.ok() && testing::ExplainMatchResult(value, *arg, result_listener);
}

inline absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& directory,
                                                                      std::vector<std::string>* warnings,
                                                                      FileSystem& files = PosixFileSystem()) {
  return Store::Open(
      files, {.directory = directory,
              .warn = [warnings](std::string_view line) { warnings->emplace_back(line); },
              .note = [warnings](std::string_view line) { warnings->push_back("note: " + std::string(line)); }});
}

// What stands beside the journal of the store in `directory` under a name that begins with its own.
inline std::vector<std::string> JournalsPutAside(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("journal.")) names.push_back(name);
  }
  return names;
}

// Begins an attempt and writes its shard. After an error there may be an attempt in steps/.
inline absl::StatusOr<ShardIdentity> TryAttempt(Store& store, int64_t step, int64_t value,
                                                FileSystem& files = PosixFileSystem()) {
  absl::StatusOr<ShardIdentity> identity = store.BeginAttempt(step);
  if (!identity.ok()) return identity;
  if (absl::Status status = WriteShard(store.layout(), *identity, value, files); !status.ok()) return status;
  return identity;
}

inline absl::Status TryCommit(Store& store, const ShardIdentity& identity,
                              FileSystem& files = PosixFileSystem()) {
  auto attempt = ReadAttempt(files, store.layout(), store.id(), {identity.step, identity.attempt});
  return attempt.ok() ? store.CommitAttempt(attempt->record) : attempt.status();
}

inline absl::Status TrySave(Store& store, int64_t step, int64_t value, FileSystem& files = PosixFileSystem()) {
  const absl::StatusOr<ShardIdentity> identity = TryAttempt(store, step, value, files);
  return identity.ok() ? TryCommit(store, *identity, files) : identity.status();
}

inline ShardIdentity SaveStep(Store& store, int64_t step, int64_t value, FileSystem& files = PosixFileSystem()) {
  const absl::StatusOr<ShardIdentity> identity = TryAttempt(store, step, value, files);
  EXPECT_THAT(identity, IsOk());
  EXPECT_THAT(TryCommit(store, *identity, files), IsOk());
  return *identity;
}

// The value of an attempt, whether its step is committed or not.
inline absl::StatusOr<int64_t> ReadValue(FileSystem& files, const StoreLayout& layout, const StoreId& id,
                                         const StepFolder& folder) {
  const absl::StatusOr<Attempt> attempt = ReadAttempt(files, layout, id, folder);
  if (!attempt.ok()) return attempt.status();
  int64_t value = 0;
  EntryRead read{.entry = 0, .destination = std::as_writable_bytes(std::span(&value, 1))};
  absl::Status status = attempt->shards.front()->Read({&read, 1}, {.codec_threads = 1, .io = IoQueueKind::kThreads});
  if (!status.ok()) return status;
  return value;
}

// The value that the committed step restores.
inline absl::StatusOr<int64_t> ReadValue(const Store& store, int64_t step,
                                         FileSystem& files = PosixFileSystem()) {
  absl::StatusOr<std::optional<StepRecord>> record = store.catalog().Find(step);
  if (!record.ok()) return record.status();
  if (!record->has_value() || (*record)->info.state != StepState::kCommitted) {
    return absl::NotFoundError("the step is not committed");
  }
  const StepFolder folder{step, AttemptId{*FromHex((*record)->info.attempt)}};
  return ReadValue(files, store.layout(), store.id(), folder);
}

// Opens one in `stride` of the stores in /store that a crash could leave of what was done to `disk`, and calls `check`,
// which uses gtest's assertions, with each. Stops at the first failure. Returns how many were opened.
inline size_t OpenAfterCrashes(const SimulatedDisk& disk, size_t stride,
                               absl::FunctionRef<void(Store&, FileSystem&)> check) {
  const DiskLog log = disk.log();
  std::unordered_set<uint64_t> seen;
  const CrashOptions options{.all_subsets_up_to = 3, .samples = 2, .torn = 1, .seed = SeedOfCases()};
  std::mt19937 random(static_cast<uint32_t>(options.seed));
  size_t states = 0;
  ForEachCrash(log, options, seen, [&](const Crash& crash, const DiskImage& left) {
    if (random() % stride != 0) return true;
    ++states;
    SCOPED_TRACE(fmt::format("seed {}, {}", options.seed, crash.ToString(log)));
    SimulatedDisk after(left);
    std::vector<std::string> warnings;
    auto store = OpenStore("/store", &warnings, after);
    EXPECT_THAT(store, IsOk());
    if (store.ok()) check(**store, after);
    return !testing::Test::HasFailure();
  });
  return states;
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_STORE_STORE_TESTING_H_
