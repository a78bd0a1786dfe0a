// TorchCatalog: what a walk over the trainer's modules, optimizers and generators finds, in order: the source of
// TorchState's entries. A later walk that finds the same again allocates nothing, and builds no names.
//
// Each source reports its things by the same calls in the same order, in two kinds of walk: *capture* notes where the
// tensors are and copies the values; *publish* gives values that a restore has received to their owners.
//
// Thread-compatible.

#ifndef TIDEMARK_SNAPSHOT_TORCH_TORCH_CATALOG_H_
#define TIDEMARK_SNAPSHOT_TORCH_TORCH_CATALOG_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "c10/core/StorageImpl.h"
#include "c10/util/SmallVector.h"
#include "snapshot/torch/torch_name_trace.h"
#include "tidemark/entry.h"
#include "tidemark/state.h"

namespace tidemark {

// How the trainer changes a tensor.
struct TensorUse {
  bool early = false;  // before it waits for the copies of an overlapped save
  // Of a flat shard: which of the parameters in it is reported, in the order of TorchBoxes::FlatNames.
  uint32_t parameter = 0;
  // Together with this parameter, for which an optimizer keeps it, if that is reported too. Null: on its own.
  const at::TensorImpl* with = nullptr;

  friend bool operator==(const TensorUse&, const TensorUse&) = default;
};

class TorchCatalog {
 public:
  // Says whether a restore may give these bytes to the value's owner.
  using Check = std::function<absl::Status(std::string_view bytes)>;

  // Appends ".part" to the name of what is reported while it lives; parts that are empty add nothing.
  class Scope {
   public:
    Scope(TorchCatalog& catalog, std::string_view part) : catalog_(catalog) { catalog_.Enter(part); }
    ~Scope() { catalog_.Leave(); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    TorchCatalog& catalog_;
  };
  void Enter(std::string_view part) { trace_.Push(part); }
  void Leave() { trace_.Pop(); }

  // ---- A walk: Begin, the reports, End.

  void BeginCapture();
  void BeginPublish();
  // The first failure of the walk; the catalog is then empty.
  absl::Status End();
  bool publishing() const { return publishing_; }

  void Tensor(const at::Tensor& tensor, const TensorUse& use = {});
  void Int64(int64_t& value, const Check& check = nullptr) {
    Scalar(EntryKind::kInt64, Dtype::kInt64, &value, sizeof(value), check);
  }
  void Double(double& value) { Scalar(EntryKind::kDouble, Dtype::kFloat64, &value, sizeof(value)); }
  void Bool(bool& value) { Scalar(EntryKind::kBool, Dtype::kBool, &value, sizeof(value)); }

  // A kString or kBytes. While publishing `now` is not looked at, and the bytes received are returned, if any were.
  std::optional<std::string_view> Blob(EntryKind kind, std::string_view now, const Check& check = nullptr);

  // A kString that is the same in every checkpoint that can be restored.
  void Constant(std::string_view text);

  void Fail(absl::Status status) { failure_.Update(std::move(status)); }

  // ---- Between walks.

  // Whether the last capture found anything but the same things in the same places.
  bool changed() const { return changed_; }

  // The entries that the last capture found. `alias_of` and `staged_with` count within them, `host` is valid until the
  // next walk.
  std::vector<State::Entry> Entries() const;

  size_t size() const { return items_.size(); }

  // The tensor of an item; undefined if it is a value.
  const at::Tensor& tensor(size_t item) const { return items_[item].tensor; }

  const TensorUse& use(size_t item) const { return items_[item].use; }

  // Devices, other than the CPU, that tensors are on.
  const std::vector<c10::Device>& devices() const { return devices_; }

  // Keeps the bytes of a value for the next publish. kInvalidArgument, kDataLoss: the bytes are not for this value.
  absl::Status Receive(size_t item, std::span<const std::byte> bytes);

  // Tells autograd that the tensors were written: it sees neither writes to their memory nor those in inference mode.
  void BumpVersions();

  void ForgetReceived();
  void Clear();

 private:
  struct Value {
    std::string bytes;
    Check check;
    std::optional<std::string> received;
  };
  // Kept small, since a save reads them all. A tensor is recognised by everything that its place and reading depend on.
  // The handle keeps the TensorImpl, so that its address means no other tensor later.
  struct Item {
    at::Tensor tensor;
    const c10::StorageImpl* storage = nullptr;
    const void* memory = nullptr;   // of the storage
    const void* context = nullptr;  // of that memory: another one where the storage became copy-on-write
    int64_t storage_offset = 0;
    c10::DispatchKeySet keys;
    c10::SmallVector<int64_t, 4> extents;  // sizes, then strides
    TensorUse use;
    c10::Device device = c10::DeviceType::CPU;  // of that memory
    EntryKind kind = EntryKind::kTensor;
    at::ScalarType scalar_type = at::ScalarType::Undefined;
    Dtype dtype = Dtype::kUint8;
    std::unique_ptr<Value> value;  // if it is none: its address stays while the item does

    at::IntArrayRef sizes() const { return {extents.data(), extents.size() / 2}; }
    at::IntArrayRef strides() const { return {extents.data() + extents.size() / 2, extents.size() / 2}; }
  };

  // Whether the walk is at the item that it reports next, by name.
  bool AtKnownItem();
  static bool Matches(const Item& item, const at::Tensor& tensor);
  void Capture(const at::Tensor& tensor, const TensorUse& use);
  void Capture(EntryKind kind, Dtype dtype, std::string_view bytes, const Check& check);
  void AddValue(EntryKind kind, Dtype dtype, std::string_view bytes, Check check);
  Item& Replace();
  const Value* NextReceived();
  void Scalar(EntryKind kind, Dtype dtype, void* value, size_t bytes, const Check& check = nullptr);
  void FindDevices();

  std::vector<Item> items_;
  std::vector<std::string> names_;  // of the items
  NameTrace trace_;                 // of the last walk; counts the items
  size_t cursor_ = 0;
  bool publishing_ = false;
  bool changed_ = false;
  bool cleared_ = false;  // since the last walk: whatever that one finds is a change
  std::vector<c10::Device> devices_;
  absl::Status failure_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_TORCH_CATALOG_H_
