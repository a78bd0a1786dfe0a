// TorchCatalog: what a walk over the trainer's modules, optimizers and generators finds, in order: the source of
// TorchState's entries. A later walk that finds the same again allocates nothing.
//
// Each source reports its things by the same calls in the same order, in two kinds of walk: *capture* notes where the
// tensors are and copies the values; *publish* gives values that a restore has received to their owners.
//
// Thread-compatible.

#ifndef TIDEMARK_SNAPSHOT_TORCH_CATALOG_H_
#define TIDEMARK_SNAPSHOT_TORCH_CATALOG_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "c10/core/Device.h"
#include "c10/util/SmallVector.h"
#include "tidemark/entry.h"
#include "tidemark/state.h"

namespace tidemark {

class TorchCatalog {
 public:
  // Says whether a restore may give these bytes to the value's owner.
  using Check = std::function<absl::Status(std::string_view bytes)>;

  // Appends ".part" to the name of what is reported while it lives; parts that are empty add nothing.
  class Scope {
   public:
    Scope(TorchCatalog& catalog, std::string_view part);
    ~Scope() { catalog_.name_.resize(length_before_); }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    TorchCatalog& catalog_;
    const size_t length_before_;
  };

  // ---- A walk: Begin, the reports, End.

  void BeginCapture();
  void BeginPublish();
  // The first failure of the walk; the catalog is then empty.
  absl::Status End();
  bool publishing() const { return publishing_; }

  // `changes_early`: the trainer changes it before it waits for the copies of an overlapped save.
  void Tensor(const at::Tensor& tensor, bool changes_early = false);
  void Int64(int64_t& value) { Scalar(EntryKind::kInt64, Dtype::kInt64, &value, sizeof(value)); }
  void Double(double& value) { Scalar(EntryKind::kDouble, Dtype::kFloat64, &value, sizeof(value)); }
  void Bool(bool& value) { Scalar(EntryKind::kBool, Dtype::kBool, &value, sizeof(value)); }

  // A kString or kBytes. While publishing `now` is not looked at, and the bytes received are returned, if any were.
  std::optional<std::string_view> Blob(EntryKind kind, std::string_view now, const Check& check = nullptr);

  // A kString that is the same in every checkpoint that can be restored.
  void Constant(std::string_view text);

  void Fail(absl::Status status) { failure_.Update(std::move(status)); }
  std::string_view name() const { return name_; }

  // ---- Between walks.

  // Whether the last capture found anything but the same things in the same places.
  bool changed() const { return changed_; }

  // The entries that the last capture found. `alias_of` counts within them, `host` is valid until the next walk.
  std::vector<State::Entry> Entries() const;

  size_t size() const { return items_.size(); }

  // The tensor of an item; undefined if it is a value.
  const at::Tensor& tensor(size_t item) const { return items_[item].tensor; }

  // Devices, other than the CPU, that tensors are on.
  std::vector<c10::Device> Devices() const;

  // Keeps the bytes of a value for the next publish. kInvalidArgument, kDataLoss: the bytes are not for this value.
  absl::Status Receive(size_t item, std::span<const std::byte> bytes);

  // Tells autograd that the tensors were written: it sees neither writes to their memory nor those in inference mode.
  void BumpVersions();

  void ForgetReceived();
  void Clear();

 private:
  // A tensor is recognised by everything that its place and reading depend on. The handle keeps the TensorImpl, so that
  // its address means no other tensor later.
  struct Item {
    std::string name;
    EntryKind kind = EntryKind::kTensor;
    Dtype dtype = Dtype::kUint8;

    at::Tensor tensor;
    bool changes_early = false;
    const void* storage = nullptr;
    void* data = nullptr;
    int64_t storage_offset = 0;
    c10::DispatchKeySet keys;
    at::ScalarType scalar_type = at::ScalarType::Undefined;
    c10::SmallVector<int64_t, 5> sizes;
    c10::SmallVector<int64_t, 5> strides;

    std::string value;
    Check check;
    std::optional<std::string> received;
  };

  bool Matches(const Item& item, const at::Tensor& tensor) const;
  bool Matches(const Item& item, EntryKind kind, size_t bytes) const;
  void Capture(const at::Tensor& tensor, bool changes_early);
  void Capture(EntryKind kind, Dtype dtype, std::string_view bytes, const Check& check);
  Item& Replace();
  const Item* NextReceived();
  void Scalar(EntryKind kind, Dtype dtype, void* value, size_t bytes);

  std::vector<Item> items_;
  std::string name_;
  size_t cursor_ = 0;
  bool publishing_ = false;
  bool changed_ = false;
  absl::Status failure_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_CATALOG_H_
