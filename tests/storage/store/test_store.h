// Writes attempts into a store the way the persister does, up to the point of the test's choice.

#ifndef TIDEMARK_TESTS_STORAGE_STORE_TEST_STORE_H_
#define TIDEMARK_TESTS_STORAGE_STORE_TEST_STORE_H_

#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "storage/shard/write/shard_writer.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/store.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {

// A note is a line of `*warnings` that begins with "note: ".
inline absl::StatusOr<std::unique_ptr<Store>> OpenStore(const std::string& directory, std::string* warnings,
                                                        FileSystem& files = PosixFileSystem()) {
  return Store::Open(files,
                     {.directory = directory,
                      .warn = [warnings](std::string_view line) { *warnings += std::string(line) + "\n"; },
                      .note = [warnings](std::string_view line) { *warnings += "note: " + std::string(line) + "\n"; },
                      .read = {.io = IoQueueKind::kThreads}});
}

// The same for a test that counts on it: null, and the test has failed, if it cannot be opened. Forgets earlier
// warnings.
inline std::unique_ptr<Store> OpenSoundStore(const std::string& directory, std::string* warnings,
                                             FileSystem& files = PosixFileSystem()) {
  warnings->clear();
  auto store = OpenStore(directory, warnings, files);
  EXPECT_THAT(store, IsOk());
  return store.ok() ? *std::move(store) : nullptr;
}

// One int64 entry, "value".
inline absl::Status WriteShard(const StoreLayout& layout, const ShardIdentity& identity, int64_t value,
                               FileSystem& files = PosixFileSystem()) {
  auto writer = ShardWriter::Create(files, {.io = IoQueueKind::kThreads});
  if (!writer.ok()) return writer.status();
  ShardContents contents;
  contents.entries.push_back({.spec = {.name = "value", .kind = EntryKind::kInt64, .dtype = Dtype::kInt64},
                              .bytes = std::as_bytes(std::span(&value, 1))});
  contents.metrics = {{"loss", static_cast<double>(value)}};
  return (*writer)
      ->Write(layout.shard(identity.step, identity.attempt, identity.rank, identity.world_size), identity, contents)
      .status();
}

// A complete attempt without a record: what a kill between the shard's sync and the commit leaves.
inline ShardIdentity WriteAttempt(Store& store, int64_t step, int64_t value, FileSystem& files = PosixFileSystem()) {
  auto identity = store.BeginAttempt(step);
  EXPECT_THAT(identity, IsOk());
  EXPECT_THAT(WriteShard(store.layout(), *identity, value, files), IsOk());
  return *identity;
}

// What there is of the attempt, whose shards are complete, becomes the record of its step.
inline absl::Status Commit(Store& store, const ShardIdentity& identity, FileSystem& files = PosixFileSystem()) {
  auto attempt = ReadAttempt(files, store.layout(), store.id(), {identity.step, identity.attempt});
  return attempt.ok() ? store.CommitAttempt(attempt->record) : attempt.status();
}

inline ShardIdentity CommitStep(Store& store, int64_t step, int64_t value, FileSystem& files = PosixFileSystem()) {
  const ShardIdentity identity = WriteAttempt(store, step, value, files);
  EXPECT_THAT(Commit(store, identity, files), IsOk());
  return identity;
}

// What the trainer says with one report, of an attempt that is this one's.
inline absl::Status RecordOwn(Store& store, const ShardIdentity& identity, Evaluation evaluation) {
  const EvaluationFact report{
      .step = identity.step, .attempt = ToHex(identity.attempt.bytes), .evaluation = std::move(evaluation)};
  const absl::StatusOr<std::vector<ReportOutcome>> outcomes = store.RecordReports({&report, 1});
  return outcomes.ok() ? outcomes->front().status : outcomes.status();
}

// A complete attempt without a record whose only chunk lies in the shard of another one.
inline ShardIdentity WriteReferringAttempt(Store& store, int64_t step, const ShardIdentity& base,
                                           FileSystem& files = PosixFileSystem()) {
  auto identity = store.BeginAttempt(step);
  EXPECT_THAT(identity, IsOk());
  const StoreLayout& layout = store.layout();
  auto shard = ShardReader::Open(files, layout.shard(base.step, base.attempt, 0, 1), layout.steps());
  EXPECT_THAT(shard, IsOk());
  ShardIndex index = (*shard)->index();
  index.files = {{.step = base.step, .attempt = base.attempt}};
  index.chunks[0].file = 1;
  PutFile(files, layout.shard(step, identity->attempt, 0, 1),
          BuildShard({.identity = *identity, .chunk_bytes = (*shard)->header().chunk_bytes}, "", index));
  return *identity;
}

inline ShardIdentity CommitReferringStep(Store& store, int64_t step, const ShardIdentity& base,
                                         FileSystem& files = PosixFileSystem()) {
  const ShardIdentity identity = WriteReferringAttempt(store, step, base, files);
  EXPECT_THAT(Commit(store, identity, files), IsOk());
  return identity;
}

// What the store would restore for a step: the value, or -1 where the step is not committed or cannot be read.
inline int64_t ValueAt(const Store& store, int64_t step, FileSystem& files = PosixFileSystem()) {
  auto record = store.catalog().Find(step);
  if (!record.ok() || !record->has_value() || (*record)->info.state != StepState::kCommitted) return -1;
  const StepFolder folder{step, AttemptId{*FromHex((*record)->info.attempt)}};
  auto attempt = ReadAttempt(files, store.layout(), store.id(), folder);
  if (!attempt.ok()) return -1;
  int64_t value = -1;
  const EntryRead read{.entry = 0, .destination = std::as_writable_bytes(std::span(&value, 1))};
  return attempt->shards[0]->Read({&read, 1}, {.io = IoQueueKind::kThreads}).ok() ? value : -1;
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_STORE_TEST_STORE_H_
