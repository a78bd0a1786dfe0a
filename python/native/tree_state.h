// TreeState: the State of a Python tree, which Python gives as flat lists of arrays and values.

#ifndef TIDEMARK_PYTHON_NATIVE_TREE_STATE_H_
#define TIDEMARK_PYTHON_NATIVE_TREE_STATE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "python/native/device_tensors.h"
#include "tidemark/state.h"

namespace tidemark::python {

// An array of the trainer: an entry, or a box of one. Not owned.
struct Array {
  EntrySpec spec;
  std::byte* data = nullptr;
  std::vector<int64_t> strides;  // in bytes, for each dimension held; empty: row-major and contiguous
  bool changes_early = false;    // as State::Entry
  std::string device;            // on which `data` is; empty: in host memory
  bool operator==(const Array&) const = default;
};

// A value in the bytes that the shard stores.
struct Value {
  EntrySpec spec;
  std::string bytes;
};

// What a restore found for an entry that it does not write into an array of the trainer.
struct Received {
  EntrySpec spec;
  std::vector<std::byte> bytes;
};

// Looks at the values of a restore, by name, when the last one has come and no array was written, and at the tensors
// that are yet to be received. Throws to end the restore.
using ValuesLook =
    std::function<void(const std::map<std::string, Received>& received, std::span<const EntrySpec> tensors)>;

// The box that a rank holds of each tensor beneath a name, if the tensor has this shape: the state that an optimizer
// keeps for a parameter which the ranks hold together.
struct BoxBeneath {
  std::vector<int64_t> shape;
  std::vector<int64_t> offset;
  std::vector<int64_t> extent;
};

// How a checkpoint and a state differ; names of entries.
struct Differences {
  std::vector<std::string> missing;     // the checkpoint lacks them
  std::vector<std::string> unexpected;  // the state lacks them
  std::vector<std::string> reshaped;
  std::vector<std::string> retyped;
};

// Thread-compatible, except that CopyToHost may run on one other thread, while no other function but AwaitStaging does.
// Calls Python only for arrays on devices and to look at values. No function may be called with the interpreter's lock
// held.
class TreeState : public State {
 public:
  // For the next save: exactly these entries. Blocks until no overlapped save reads the earlier ones any more. The
  // structure counts as unchanged if only places and values differ. `devices` copies the arrays that are on devices;
  // null if there are none.
  absl::Status SetEntries(std::shared_ptr<const std::vector<Array>> arrays, std::vector<Value> values,
                          std::shared_ptr<DeviceTensors> devices);

  // For the next restore: it writes into `arrays`. For each of `values`, which are names, and for each entry whose name
  // begins with one of `open` and a dot, it keeps what the checkpoint has: of a tensor NAME.FIELD only the box that
  // `boxes` has for NAME, if it has one. So it does with `converts` for each of `arrays` that has another
  // floating-point dtype in the checkpoint, and Python converts it. `devices`: as above. `look` may be null.
  void SetDestinations(std::shared_ptr<const std::vector<Array>> arrays, std::vector<std::string> values,
                       std::vector<std::string> open, std::map<std::string, BoxBeneath> boxes, bool converts,
                       std::shared_ptr<DeviceTensors> devices, ValuesLook look);

  // False if all of the arrays lie elsewhere than all those of the last save or restore: they are of another state.
  bool MayBeIn(const std::vector<Array>& arrays) const;

  // Of the last restore that succeeded: values and what is open by name, and arrays that Python converts by index.
  std::map<std::string, Received> TakeReceived() { return std::move(received_.by_name); }
  std::map<size_t, Received> TakeConverted() { return std::move(received_.arrays); }
  // Of the last restore.
  const Differences& differences() const { return differences_; }

  absl::Status Refresh() override;
  absl::Status CopyToHost(std::span<const CopyRequest> requests) override;
  absl::StatusOr<std::unique_ptr<DeviceImage>> CopyOnDevice(std::span<const size_t> entries,
                                                            uint64_t bytes_max) override;
  std::shared_ptr<std::byte> AllocateStaging(uint64_t bytes) override;
  absl::Status PrepareRestore(std::span<const EntrySpec> saved) override;
  absl::Status Receive(size_t entry, std::span<const std::byte> bytes) override;
  absl::Status FlushReceived() override;
  absl::Status FinishRestore() override;
  void AbandonRestore() override;

 private:
  struct AllReceived {
    std::map<std::string, Received> by_name;
    std::map<size_t, Received> arrays;  // by index into own_arrays()
  };

  bool IsOpen(const std::string& name) const;
  // Of a saved entry that is open.
  EntrySpec WantedPart(EntrySpec saved) const;
  // Of an array in host memory.
  void CopyOfHost(size_t entry, std::byte* destination) const;

  const std::vector<Array>& own_arrays() const { return *arrays_; }

  // The first entries, in their order.
  std::shared_ptr<const std::vector<Array>> arrays_ = std::make_shared<const std::vector<Array>>();
  bool entries_are_of_arrays_ = false;  // of a save: entries() are what own_arrays() and values_ ask for
  bool has_only_destinations_ = false;  // of a restore that has not begun, or found nothing
  std::vector<Value> values_;           // of a save: the entries behind them
  std::vector<std::string> names_;
  std::vector<std::string> open_;
  std::map<std::string, BoxBeneath> boxes_;
  bool converts_ = false;
  std::vector<bool> kept_;  // of a restore: by index into own_arrays(), those that Python converts
  ValuesLook look_;
  size_t values_to_come_ = 0;  // of a restore, before `look_`
  AllReceived receiving_;
  AllReceived received_;
  Differences differences_;
  std::shared_ptr<DeviceTensors> devices_;
  std::vector<DeviceTensors::Write> writes_;  // of a restore, since the last FlushReceived
};

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_TREE_STATE_H_
