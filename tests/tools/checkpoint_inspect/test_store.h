// TestStore: a store with whatever a test needs to find in it, sound or broken.

#ifndef TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_TEST_STORE_H_
#define TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_TEST_STORE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/async_checkpointer.h"

namespace tidemark::storage {
class Store;
class StoreJournal;
}  // namespace tidemark::storage

namespace tidemark::inspect {

// Two tensors that are one, a tensor of its own, and one value of each kind.
class TestState : public State {
 public:
  // `elements`: of the tensor 'model.weight'; at least 1.
  explicit TestState(int64_t elements);
  absl::Status Refresh() override;

 private:
  std::vector<float> weight_;
  std::vector<float> bias_;
  int64_t epoch_ = 3;
  double rate_ = 0.125;
  bool ended_ = false;
  std::string text_ = "hello";
  std::vector<std::byte> blob_;
  bool derived_ = false;
};

// Removed at the end of the test. In the build tree, which lies on a real disk where there is one.
class TestStore {
 public:
  TestStore();
  ~TestStore();

  const std::string& directory() const { return directory_; }

  // Opens it to write; what the store warns of is dropped. Fails the test if that fails. `reuse`: a step has those of
  // its chunks that have not changed in the files of earlier ones.
  std::unique_ptr<AsyncCheckpointer> OpenCheckpointer(absl::Time now = absl::Now(), bool reuse = false) const;

  // Saves and commits steps of a TestState with `elements`.
  void Save(const std::vector<int64_t>& steps, const SaveOptions& options = {}, int64_t elements = 5000,
            absl::Time now = absl::Now()) const;

  // The same with reuse, of a state that does not change: all of the chunks lie in the file of the step before these,
  // or in that of the first of them.
  void SaveReusing(const std::vector<int64_t>& steps, const SaveOptions& options = {}) const;

  // The step gets the record of a save that failed, because its file could not grow. The store has a step before.
  void SaveInVain(int64_t step) const;

  // A worker reports on the step.
  void Deliver(int64_t step, const Evaluation& evaluation) const;
  // The step's files go and its record stays, as retention does it.
  void Delete(int64_t step, const std::string& reason) const;
  // The record of a step that was only evaluated.
  void RecordUnsaved(int64_t step, const Evaluation& evaluation) const;
  // The records of steps 1 to `count`, as saves leave them, and not one of their files. The store is there.
  void RecordWithoutFiles(int64_t count) const;
  // What a reader says of a step. Fails the test if it says nothing.
  StepInfo Info(int64_t step) const;
  // Changes what is recorded of a step.
  void Update(int64_t step, const std::function<void(StepInfo&)>& change) const;
  // Records the best modes of metrics, as a trainer does.
  void RecordBestModes(const std::map<std::string, BestMode, std::less<>>& modes) const;

  // A byte in the middle of the chunks of the step's shard is changed: those of 'model.weight'.
  void DamageChunk(int64_t step) const;
  // A byte of the index.
  void DamageIndex(int64_t step) const;
  // The same as the store would if it was written by a newer version.
  void MakeShardNewer(int64_t step) const;
  void MakeStoreNewer() const;
  // Appends an entry to the journal that has these bytes for a fact.
  void AppendFact(const std::string& bytes) const;
  // A fact as a newer version would write it: nothing after it can be read.
  void MakeJournalNewer() const { AppendFact("\x01\x63"); }
  void RemoveShard(int64_t step) const;
  void RemoveStep(int64_t step) const;
  // A byte of the first entry is changed. The index stays, as it is after a bit has flipped on the disk.
  void DamageJournal() const;
  void RemoveIndex() const;
  // The path of an entry's file.
  std::string EntryPath(uint64_t number) const;
  // The number of the last entry.
  uint64_t LastEntry() const;
  // What a trainer does that starts again: it finds what is lost, and by restoring what is damaged.
  void Restart() const;

  // The only shard of the step.
  std::string ShardPath(int64_t step) const;

  // Every path in the store with type, size, inode and times; but for the time of access.
  std::map<std::string, std::string> Listing() const;

 private:
  // Opens it the way a checkpointer does.
  std::unique_ptr<storage::Store> OpenStore() const;
  // Opens the journal as a holder does, whom no fact is refused, or as a worker does.
  std::unique_ptr<storage::StoreJournal> OpenJournal(bool holder) const;
  static void SaveWith(AsyncCheckpointer& checkpointer, const std::vector<int64_t>& steps, const SaveOptions& options,
                       int64_t elements);

  std::string directory_;
};

std::string ReadWhole(const std::string& path);
void WriteWhole(const std::string& path, std::string_view contents);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TESTS_TOOLS_CHECKPOINT_INSPECT_TEST_STORE_H_
