// RepairTest: a store on a disk in memory, and the ways in which the tests of repairs break it.

#ifndef TIDEMARK_TESTS_STORAGE_STORE_REPAIR_REPAIR_TESTING_H_
#define TIDEMARK_TESTS_STORAGE_STORE_REPAIR_REPAIR_TESTING_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/draft_file_system.h"
#include "storage/store/lease.h"
#include "storage/store/repair/repair.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {

class RepairTest : public testing::Test {
 protected:
  RepairTest() : files_(PosixFileSystem(), home_.path()) {}

  RepairOptions Options() const { return {.directory = path_, .read = {.io = IoQueueKind::kThreads}}; }
  absl::StatusOr<RepairReport> Plan() { return PlanRepair(files_, Options()); }
  absl::StatusOr<RepairReport> Apply() { return RepairStore(files_, Options()); }
  std::unique_ptr<Store> Open() { return OpenSoundStore(path_, &warnings_, files_); }
  std::string ShardOf(const ShardIdentity& identity) { return layout_.shard(identity.step, identity.attempt, 0, 1); }
  std::string FolderOf(const ShardIdentity& identity) { return layout_.attempt(identity.step, identity.attempt); }
  bool IsThere(const std::string& path) { return files_.TypeOf(path).ok(); }

  // Bytes of a shard that WriteShard wrote.
  static constexpr size_t kInHeader = 100;
  static constexpr size_t kInChunk = 4096;
  static constexpr size_t kInIndex = 8192 + 100;

  void Flip(const ShardIdentity& identity, size_t at) {
    auto bytes = ReadSmallFile(files_, ShardOf(identity), 1 << 20);
    ASSERT_THAT(bytes, IsOk());
    (*bytes)[at] = static_cast<char>((*bytes)[at] ^ 1);
    PutFile(files_, ShardOf(identity), *bytes);
  }

  // "action step" of each, in order; the path's last component where there is no step.
  static std::vector<std::string> Of(const std::vector<StoreChange>& changes) {
    std::vector<std::string> texts;
    for (const StoreChange& change : changes) {
      static constexpr const char* kNames[] = {"identity", "convert", "rebuild",    "index",  "again", "adopt",
                                               "lost",     "damaged", "quarantine", "remove", "left"};
      texts.push_back(std::string(kNames[static_cast<size_t>(change.kind)]) + " " +
                      (change.step ? std::to_string(*change.step) : change.path.substr(change.path.rfind('/') + 1)));
    }
    return texts;
  }
  static std::vector<std::string> Sentences(const RepairReport& report) {
    std::vector<std::string> texts;
    for (const StoreChange& change : report.changes) texts.push_back(change.path + ": " + change.why);
    return texts;
  }

  // Steps 1 to 4; 2 is damaged at this place, so is 3, to which 4 refers, which is sound; 5 and 6 were never committed:
  // 5 is complete, 6 is not. There is what dead processes left, and what is not Tidemark's.
  void MakeAMess(size_t place = kInChunk) {
    {
      auto store = Open();
      one_ = CommitStep(*store, 1, 100, files_);
      two_ = CommitStep(*store, 2, 200, files_);
      three_ = CommitStep(*store, 3, 300, files_);
      CommitReferringStep(*store, 4, three_, files_);
      five_ = WriteAttempt(*store, 5, 500, files_);
      six_ = *store->BeginAttempt(6);
    }
    Flip(two_, place);
    Flip(three_, kInIndex);
    PutFile(files_, layout_.identity() + ".tmp", "{");
    PutFile(files_, layout_.retired(), "blocks");
    PutFile(files_, FolderOf(one_) + "/pin.json.tmp", "{");
    PutFile(files_, FolderOf(one_) + "/core.17", "not ours");
    PutFile(files_, path_ + "/notes.txt", "not ours");
    PutFile(files_, layout_.steps() + "/x", "not ours");
    LeaseByADeadProcess(one_);
  }

  void LeaseByADeadProcess(const ShardIdentity& identity) {
    ASSERT_THAT(files_.CreateDirectory(layout_.leases()), IsOk());
    PutFile(files_, layout_.leases() + "/" + LeaseFileName(identity.attempt, "validation"),
            EncodeLeaseNote({.step = identity.step,
                             .attempt = identity.attempt,
                             .evaluator = "validation",
                             .holder = "pid 7",
                             .machine = ThisMachine(),
                             .expiry = absl::Minutes(1)}));
  }

  // Repairs the store of `begin`, cancelled when it asks for the first time, then for the second, and so on until it is
  // not cancelled any more. `check` is called after each, with whether it was. Returns how often it was.
  size_t CancelAtEachQuestion(RepairOptions options, const FileTree& begin, absl::FunctionRef<void(bool)> check) {
    size_t times = 0;
    for (bool cancelled = true; cancelled && !HasFailure(); times += cancelled ? 1 : 0) {
      SCOPED_TRACE(testing::Message() << "asked " << times << " times before");
      EXPECT_LT(times, 300u);
      EXPECT_THAT(RemoveTree(files_, path_), IsOk());
      WriteTree(files_, path_, begin);
      std::atomic<size_t> asked = 0;
      options.cancelled = [&] { return ++asked > times; };
      const auto report = RepairStore(files_, options);
      cancelled = !report.ok();
      if (cancelled) {
        EXPECT_THAT(report, StatusIs(absl::StatusCode::kCancelled, testing::HasSubstr("cancelled")));
        EXPECT_EQ(asked, times + 1);
      }
      check(cancelled);
    }
    return times;
  }

  // The mark alone: its files stay where they are leased.
  void LetGo(const ShardIdentity& identity) {
    auto store = Open();
    const std::string attempt = ToHex(identity.attempt.bytes);
    ASSERT_THAT(store->NoteSteps({{.step = identity.step, .attempt = attempt, .deleted = true, .reason = "too old"}}),
                IsOk());
  }

  void ExpectInOrder() {
    const auto again = Apply();
    ASSERT_THAT(again, IsOk());
    EXPECT_THAT(Of(again->changes), testing::IsEmpty());
    auto store = Open();
    ASSERT_NE(store, nullptr);
    EXPECT_EQ(ValueAt(*store, 1, files_), 100);
    EXPECT_EQ(ValueAt(*store, 2, files_), -1);
    EXPECT_EQ(ValueAt(*store, 3, files_), -1);
    EXPECT_EQ(ValueAt(*store, 4, files_), 300);
    EXPECT_EQ(ValueAt(*store, 5, files_), -1);
    EXPECT_FALSE(IsThere(FolderOf(five_)));
    CommitStep(*store, 7, 700, files_);
    EXPECT_EQ(ValueAt(*store, 7, files_), 700);
  }

  const TestDirectory home_;
  DraftFileSystem files_;
  const std::string path_ = home_ / "store";
  const StoreLayout layout_{path_};
  std::string warnings_;
  ShardIdentity one_, two_, three_, five_, six_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_STORE_REPAIR_REPAIR_TESTING_H_
