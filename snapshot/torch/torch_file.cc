#include "tidemark/torch_file.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "caffe2/serialize/inline_container.h"
#include "fmt/format.h"
#include "snapshot/exchange/torch_contents.h"
#include "snapshot/exchange/torch_pickle.h"
#include "snapshot/torch/torch_dtypes.h"
#include "snapshot/torch/torch_errors.h"
#include "storage/io/printable_text.h"
#include "tidemark/entry.h"

namespace tidemark {
namespace {

// A state of 100,000 tensors has a pickle of some 20 MB. Reading one takes up to some 100 times its length.
constexpr size_t kPickleBytesMax = size_t{64} << 20;
constexpr size_t kObjectsMax = kPickleBytesMax;
constexpr size_t kSnapshotAlignment = 64;  // that snapshots promise

class FileSnapshot final : public Snapshot {
 public:
  // Precondition: the name is not taken.
  void Add(const EntrySpec& spec, const at::Tensor& tensor) {
    by_name_.emplace(spec.name, specs_.size());
    specs_.push_back(spec);
    tensors_.push_back(tensor);
  }
  const at::Tensor& tensor(size_t index) const { return tensors_[index]; }

  int64_t step() const override { return 0; }
  std::span<const EntrySpec> entries() const override { return specs_; }
  std::span<const std::byte> bytes(size_t index) const override {
    return {static_cast<const std::byte*>(tensors_[index].data_ptr()), tensors_[index].nbytes()};
  }
  std::shared_ptr<const void> memory() const override { return std::make_shared<std::vector<at::Tensor>>(tensors_); }
  std::optional<size_t> Find(std::string_view name) const override {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? std::nullopt : std::optional(found->second);
  }
  const std::map<std::string, double>& metrics() const override { return metrics_; }
  const std::string& user_metadata() const override { return user_metadata_; }

 private:
  std::vector<EntrySpec> specs_;
  std::vector<at::Tensor> tensors_;  // contiguous, in host memory
  std::map<std::string, size_t, std::less<>> by_name_;
  const std::map<std::string, double> metrics_;
  const std::string user_metadata_ = "{}";
};

// Reads the tensors that FindTorchContents has found. Throws what LibTorch throws.
class TensorLoader {
 public:
  explicit TensorLoader(caffe2::serialize::PyTorchStreamReader& reader) : reader_(reader) {}

  std::optional<uint64_t> RecordBytes(const std::string& name) {
    const Record* record = Find(name);
    return record == nullptr ? std::nullopt : std::optional<uint64_t>(record->bytes);
  }

  // Precondition: RecordBytes has been asked for `record_name`, the tensor's.
  absl::StatusOr<at::Tensor> Load(const TorchTensor& tensor, const std::string& record_name) {
    const std::optional<at::ScalarType> dtype = ToScalarType(tensor.spec.dtype);
    if (!dtype) {
      return absl::UnimplementedError(fmt::format("'{}': a {}, which this LibTorch does not have",
                                                  storage::PrintableText(tensor.spec.name),
                                                  GetDtypeInfo(tensor.spec.dtype).name));
    }
    const at::TensorOptions options = at::TensorOptions().dtype(*dtype);
    if (tensor.bytes == 0) return at::empty(tensor.spec.shape, options);
    const Record& record = *Find(record_name);
    auto* begin =
        static_cast<std::byte*>(record.data->get()) + tensor.offset * GetDtypeInfo(tensor.spec.dtype).element_bytes;
    const at::Tensor loaded = at::from_blob(
                                  begin, tensor.spec.shape, tensor.strides, [data = record.data](void*) {}, options)
                                  .contiguous();
    const bool aligned = reinterpret_cast<uintptr_t>(loaded.data_ptr()) % kSnapshotAlignment == 0;
    return aligned ? loaded : loaded.clone();
  }

 private:
  struct Record {
    std::shared_ptr<at::DataPtr> data;
    size_t bytes = 0;
  };

  const Record* Find(const std::string& name) {
    const auto known = records_.find(name);
    if (known != records_.end()) return &known->second;
    if (!reader_.hasRecord(name)) return nullptr;
    auto [data, bytes] = reader_.getRecord(name);
    return &records_.emplace(name, Record{std::make_shared<at::DataPtr>(std::move(data)), bytes}).first->second;
  }

  caffe2::serialize::PyTorchStreamReader& reader_;
  std::map<std::string, Record> records_;
};

absl::Status ReadInto(const std::string& path, std::string_view prefix, FileSnapshot& snapshot) {
  caffe2::serialize::PyTorchStreamReader reader(path);
  if (!reader.hasRecord("data.pkl")) return absl::InvalidArgumentError("it has no record data.pkl");
  if (reader.hasRecord("byteorder")) {
    const auto [order, bytes] = reader.getRecord("byteorder");
    if (std::string_view(static_cast<const char*>(order.get()), bytes) != "little") {
      return absl::UnimplementedError("its numbers are big-endian");
    }
  }
  const auto [data, bytes] = reader.getRecord("data.pkl");
  if (bytes > kPickleBytesMax) {
    return absl::UnimplementedError(fmt::format("a pickle of {} bytes; at most {} are read", bytes, kPickleBytesMax));
  }
  const absl::StatusOr<Pickle> pickle = ReadPickle({static_cast<const char*>(data.get()), bytes}, kObjectsMax);
  if (!pickle.ok()) return pickle.status();
  TensorLoader loader(reader);
  const absl::StatusOr<TorchContents> contents =
      FindTorchContents(*pickle, prefix, [&](const std::string& record) { return loader.RecordBytes(record); });
  if (!contents.ok()) return contents.status();
  for (const TorchTensor& tensor : contents->tensors) {
    if (tensor.tied_to) {
      snapshot.Add(tensor.spec, snapshot.tensor(*tensor.tied_to));
      continue;
    }
    const absl::StatusOr<at::Tensor> loaded = loader.Load(tensor, contents->records[tensor.record]);
    if (!loaded.ok()) return loaded.status();
    snapshot.Add(tensor.spec, *loaded);
  }
  return absl::OkStatus();
}

// Whether the file begins as zip archives do, which torch.save has written since PyTorch 1.6.
absl::Status CheckIsZip(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return absl::NotFoundError("there is no such file");
  std::ifstream file(path, std::ios::binary);
  char magic[2] = {};
  file.read(magic, sizeof(magic));
  if (std::string_view(magic, sizeof(magic)) == "PK") return absl::OkStatus();
  return absl::InvalidArgumentError("it is not a zip archive, which torch.save writes since PyTorch 1.6");
}

}  // namespace

absl::StatusOr<std::shared_ptr<const Snapshot>> ReadTorchFile(const std::string& path, std::string_view prefix) {
  auto snapshot = std::make_shared<FileSnapshot>();
  absl::Status status = CheckIsZip(path);
  if (status.ok()) {
    status = CatchTorch("reading", [&] { return ReadInto(path, prefix, *snapshot); });
  }
  if (!status.ok()) return absl::Status(status.code(), fmt::format("{}: {}", path, std::string(status.message())));
  return snapshot;
}

}  // namespace tidemark
