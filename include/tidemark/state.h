// State: the named tree that a trainer saves and restores.
//
// A State holds names and places, never copies. Build it once, keep it for the run, and hand it to every Save and
// Restore:
//
//   tidemark::State state;
//   state.AddTensor("weight", tidemark::Dtype::kFloat32, {512, 128}, weight.data());
//   state.AddValue("epoch", &epoch);
//
// tidemark/torch.h derives TorchState from it, which knows modules, optimizers and generators.
//
// Thread-compatible. What was added must stay alive and in place as long as the State is used.

#ifndef TIDEMARK_STATE_H_
#define TIDEMARK_STATE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tidemark/entry.h"
#include "tidemark/future.h"

namespace tidemark {

class State {
 public:
  State();
  virtual ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // Adds a tensor in host memory: row-major, contiguous, `shape` elements of `dtype` at `data`. Not owned. Tensors may
  // share memory. If several lie in the very same bytes (tied weights), one is stored and all are restored from it;
  // their dtypes and shapes may differ. Tensors that share only a part of their memory are each stored in full.
  //
  // The Add functions return no error. A wrong argument (a name used twice, a negative extent) makes every Save and
  // Restore kInvalidArgument. The message names the entry.
  void AddTensor(std::string name, Dtype dtype, std::vector<int64_t> shape, void* data);

  // Adds a part of a tensor that the ranks of a job hold together (tidemark/ranks.h): the box of `extent` elements from
  // `offset` on, of a tensor of `shape`, row-major and contiguous at `data`. Not owned. A rank may add several boxes of
  // one tensor under one name, if they do not overlap. An empty box is allowed: an extent may be 0. A restore fills
  // the box from whatever boxes the tensor was saved in, by any number of ranks. RestoreFrom (tidemark/capture.h) does
  // not support boxes.
  void AddBox(std::string name, Dtype dtype, std::vector<int64_t> shape, std::vector<int64_t> offset,
              std::vector<int64_t> extent, void* data);

  // Adds a variable. Every Save reads it on the caller's thread, before it returns, in every staging mode. A Restore
  // that succeeds sets it. Not owned, not null. A string must be UTF-8 at each Save, else that is kInvalidArgument. For
  // other bytes add a vector of bytes.
  void AddValue(std::string name, int64_t* value);
  void AddValue(std::string name, double* value);
  void AddValue(std::string name, bool* value);
  void AddValue(std::string name, std::string* value);
  void AddValue(std::string name, std::vector<std::byte>* value);

  // Adds an object of any kind, as one entry of bytes. `save` returns the bytes, at most EntrySpec::kValueBytesMax; the
  // State keeps them until the next save. `load` sets the object to bytes that `save` returned; they are valid during
  // the call. Both run on the caller's thread: `save` during Save and Prepare, before they return, in every staging
  // mode; `load` at the end of a restore.
  //
  // When `load` runs, every tensor has been written and no value has been set. Objects are loaded in the order in which
  // they were added. If one fails, the restore fails. Then tensors and earlier objects have the contents of the
  // checkpoint, and the object is as `load` left it. Everything else is as it was before the restore.
  //
  // Errors of Save and of the restore; each names the entry:
  //   kInternal          `save` or `load` threw an exception (kResourceExhausted: std::bad_alloc).
  //   kInvalidArgument   A function is null, or the bytes are too many.
  //   other codes        `save` or `load` returned it.
  void AddObject(std::string name, std::function<absl::StatusOr<std::vector<std::byte>>()> save,
                 std::function<absl::Status(std::span<const std::byte>)> load);

  // ---- Below: the protocol between a State and AsyncCheckpointer. Trainers need not read on. ----

  // Every function that a derived class overrides may throw, except destructors; so may those of a DeviceImage. The
  // call that needed the function then fails with kInternal, or with kResourceExhausted after std::bad_alloc. The
  // message names the function.

  struct Entry {
    EntrySpec spec;
    uint64_t bytes = 0;
    // The bytes of the entry, contiguous in host memory; null if only CopyToHost and Receive can reach them.
    std::byte* host = nullptr;
    // The index of an earlier entry that lies in the very same bytes (tied weights), or -1. Such an entry is stored
    // once.
    int64_t alias_of = -1;
    bool changes_early = false;  // must be copied before Save returns, in every staging mode
    // The index of an earlier entry that is changed together with this one (a parameter, and what the optimizer keeps
    // for it): copied behind it. Or -1: copied where it stands.
    int64_t staged_with = -1;
  };
  struct CopyRequest {
    size_t entry;            // index into entries()
    std::byte* destination;  // entries()[entry].bytes of host memory
  };

  // Saving. Brings entries() up to date with what was added; cheap when nothing changed. Trainer's thread.
  virtual absl::Status Refresh();

  // Saving. Called once per save, on the trainer's thread, after Refresh and before any CopyToHost: notes the point in
  // the device's work after which the tensors may be copied.
  virtual absl::Status BeginStaging() { return absl::OkStatus(); }

  // Copies of tensors on their devices. Independent of the State; used and destroyed by one thread at a time.
  class DeviceImage {
   public:
    virtual ~DeviceImage() = default;
    // Device memory that it holds.
    virtual uint64_t bytes() const = 0;
    // Fills the destinations with the bytes of the copies, and returns when they are there.
    virtual absl::Status CopyToHost(std::span<const CopyRequest> requests) = 0;
  };

  // Saving, Staging::kOnDevice. On the trainer's thread, after BeginStaging: copies these entries, whose `host` is
  // null, on their devices, and returns when whatever is enqueued there later cannot change the copies any more. Null
  // where that would take more than `bytes_max` bytes, or more than a device has; nothing is kept then.
  virtual absl::StatusOr<std::unique_ptr<DeviceImage>> CopyOnDevice(std::span<const size_t> entries,
                                                                    uint64_t bytes_max);

  // Saving. Host memory from which and to which the state's devices copy fastest (page-locked by their driver), aligned
  // to 4096 bytes, or null where there is none or the state needs none. May outlive the State.
  virtual std::shared_ptr<std::byte> AllocateStaging(uint64_t bytes);

  // Saving, Staging::kOverlapped. The tensors are read until `staged` resolves.
  void NoteStaging(Future staged) { staged_ = std::move(staged); }

  // Blocks until no overlapped save reads the tensors any more; its result does not count as read. Every save, Capture
  // and restore calls it before it touches the state. Returns at once in a forked child, where no thread reads them.
  void AwaitStaging() const;

  // Saving. Fills the destinations of entries whose `host` is null, and returns when the bytes are there. Called on the
  // trainer's thread for values, and on the staging thread for tensors of an overlapped save.
  virtual absl::Status CopyToHost(std::span<const CopyRequest> requests);

  // Restoring. Like Refresh, but told what the checkpoint holds, so that things which come into being later (an
  // optimizer's moments) can be made ready to receive it. That may be nothing. Must change nothing the trainer can see.
  virtual absl::Status PrepareRestore(std::span<const EntrySpec> saved);

  // Restoring. Takes the bytes of an entry that is no tensor, or whose `host` is null. A value may have a different
  // length than entries() says. Tensors are written at once, though a device may still be reading the bytes until
  // FlushReceived; values and whatever PrepareRestore made become visible in FinishRestore.
  virtual absl::Status Receive(size_t entry, std::span<const std::byte> bytes);

  // Restoring. Returns when what was received has been written and its bytes are no longer read. On the same thread as
  // Receive; called before the bytes go, also after a Receive that failed.
  virtual absl::Status FlushReceived() { return absl::OkStatus(); }

  // Restoring. Everything has arrived: publish it.
  virtual absl::Status FinishRestore();

  // Restoring. It failed: forget what PrepareRestore and Receive set aside.
  virtual void AbandonRestore();

  // Valid until the next Refresh or PrepareRestore.
  std::span<const Entry> entries() const { return entries_; }

  // Changes whenever a name, kind, dtype, shape, alias or staging order in entries() does, or whether a tensor's `host`
  // is null. The length of a string or of bytes is not part of the structure. Never equal for two States.
  uint64_t structure_version() const { return structure_version_; }

 protected:
  // entries() is what the Add functions of this class gave, followed by what a derived class finds in its own sources.
  // The derived class calls this from Refresh and PrepareRestore when names, dtypes, shapes or aliases of its part
  // changed; `alias_of` and `staged_with` count from the first entry of `derived`. Changes structure_version().
  void SetDerivedEntries(std::vector<Entry> derived);

  // Index in entries() of the first derived entry.
  size_t derived_begin() const { return own_count_; }

  // For a derived class that only has to bring its `host` pointers up to date.
  std::vector<Entry>& mutable_entries() { return entries_; }

  // Remembers the first error of an Add function.
  void NoteError(absl::Status status);

 private:
  struct Variable {
    std::function<std::span<std::byte>()> bytes;             // where its bytes are now
    std::function<void(std::span<const std::byte>)> assign;  // sets it, to bytes that fit its kind
  };
  struct Object {
    std::function<absl::StatusOr<std::vector<std::byte>>()> save;
    std::function<absl::Status(std::span<const std::byte>)> load;
    std::vector<std::byte> saved;  // by the last call of `save`
  };
  absl::Status SaveObjects();
  absl::Status LoadObjects();

  void AddTensorEntry(EntrySpec spec, void* data);
  void AddOwn(Entry entry);
  void AddVariable(std::string name, EntryKind kind, Dtype dtype, const void* value, Variable variable);

  absl::Status error_;
  std::vector<Entry> entries_;
  size_t own_count_ = 0;
  // By place in memory: the first tensor that was added there, as an index into entries_.
  absl::flat_hash_map<std::pair<const std::byte*, uint64_t>, size_t> tensors_;
  absl::flat_hash_map<size_t, Variable> variables_;               // by index into entries_
  absl::btree_map<size_t, Object> objects_;                       // by index into entries_
  absl::flat_hash_map<size_t, std::vector<std::byte>> received_;  // values waiting for FinishRestore
  bool preparing_restore_ = false;                                // in Refresh: objects need not be saved
  uint64_t structure_version_;
  uint64_t validated_version_ = 0;
  Future staged_;  // of the last overlapped save
};

}  // namespace tidemark

#endif  // TIDEMARK_STATE_H_
