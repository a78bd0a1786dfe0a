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
#include <tuple>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/container/flat_hash_map.h"
#include "caffe2/serialize/inline_container.h"
#include "fmt/format.h"
#include "snapshot/torch/torch_dtypes.h"
#include "snapshot/torch/torch_errors.h"
#include "snapshot/torch/torch_pickle.h"
#include "tidemark/entry.h"

namespace tidemark {
namespace {

using NodeKind = PickleNode::Kind;

// A state of 100,000 tensors has a pickle of some 20 MB. Reading one takes up to some 100 times its length.
constexpr size_t kPickleBytesMax = size_t{64} << 20;
constexpr int kDepthMax = 100;
// Shared objects are visited once for each reference. A file may nest references so that the visits grow exponentially.
constexpr size_t kVisitsPerNode = 16;
constexpr int64_t kExtentMax = int64_t{1} << 48;  // of a dimension; another dimension may be zero
constexpr size_t kSnapshotAlignment = 64;         // that snapshots promise

struct StorageType {
  std::string_view name;
  at::ScalarType dtype;
};
constexpr StorageType kStorageTypes[] = {
    {"torch.FloatStorage", at::kFloat},
    {"torch.DoubleStorage", at::kDouble},
    {"torch.HalfStorage", at::kHalf},
    {"torch.BFloat16Storage", at::kBFloat16},
    {"torch.LongStorage", at::kLong},
    {"torch.IntStorage", at::kInt},
    {"torch.ShortStorage", at::kShort},
    {"torch.CharStorage", at::kChar},
    {"torch.ByteStorage", at::kByte},
    {"torch.BoolStorage", at::kBool},
    {"torch.ComplexFloatStorage", at::kComplexFloat},
    {"torch.ComplexDoubleStorage", at::kComplexDouble},
};

class FileSnapshot final : public Snapshot {
 public:
  // kInvalidArgument: the name is taken or breaks a rule.
  absl::Status Add(std::string name, const at::Tensor& tensor) {
    EntrySpec spec{.name = std::move(name), .dtype = *ToDtype(tensor.scalar_type()), .shape = tensor.sizes().vec()};
    uint64_t bytes = 0;
    if (absl::Status status = ValidateEntry(spec, &bytes); !status.ok()) return status;
    if (!by_name_.emplace(spec.name, specs_.size()).second) {
      return absl::InvalidArgumentError(fmt::format("two tensors have the name '{}'", spec.name));
    }
    specs_.push_back(std::move(spec));
    tensors_.push_back(tensor);
    return absl::OkStatus();
  }

  int64_t step() const override { return 0; }
  std::span<const EntrySpec> entries() const override { return specs_; }
  std::span<const std::byte> bytes(size_t index) const override {
    return {static_cast<const std::byte*>(tensors_[index].data_ptr()), tensors_[index].nbytes()};
  }
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

// Finds the tensors in a pickle. Throws what LibTorch throws.
class TensorFinder {
 public:
  TensorFinder(caffe2::serialize::PyTorchStreamReader& reader, const Pickle& pickle, FileSnapshot& snapshot)
      : reader_(reader), pickle_(pickle), snapshot_(snapshot) {}

  absl::Status Find(std::string_view prefix) { return Visit(pickle_.root, std::string(prefix), 0); }

 private:
  // The identity of a tensor, to find it again: record, dtype, offset, sizes, strides.
  using Place = std::tuple<std::string, at::ScalarType, int64_t, std::vector<int64_t>, std::vector<int64_t>>;

  const PickleNode& Node(size_t index) const { return pickle_.nodes[index]; }
  // An item of the tuple of arguments; null if there is none.
  const PickleNode* Argument(const PickleNode& call, size_t index) const {
    const PickleNode& arguments = Node(call.arguments);
    if (arguments.kind != NodeKind::kTuple || index >= arguments.items.size()) return nullptr;
    return &Node(arguments.items[index]);
  }

  // Visits the item `part` of the object `scope`. A name is refused before it is joined if it is too long: a small file
  // can use one long key in many pairs, and each would copy it.
  absl::Status VisitItem(size_t index, const std::string& scope, std::string_view part, int depth) {
    if (scope.size() + part.size() + 1 > EntrySpec::kNameBytesMax) {
      return absl::InvalidArgumentError(fmt::format("a name of {} bytes; at most {} are read",
                                                    scope.size() + part.size() + 1, EntrySpec::kNameBytesMax));
    }
    return Visit(index, scope.empty() ? std::string(part) : fmt::format("{}.{}", scope, part), depth + 1);
  }

  absl::Status Visit(size_t index, const std::string& name, int depth) {
    if (depth > kDepthMax) return absl::DataLossError(fmt::format("the objects at '{}' are nested too deep", name));
    if (++visits_ > kVisitsPerNode * pickle_.nodes.size()) {
      return absl::UnimplementedError("its objects refer to each other too often");
    }
    const PickleNode& node = Node(index);
    switch (node.kind) {
      case NodeKind::kDict:
        return VisitPairs(node, name, depth);
      case NodeKind::kTuple:
      case NodeKind::kList:
        for (size_t i = 0; i < node.items.size(); ++i) {
          absl::Status status = VisitItem(node.items[i], name, std::to_string(i), depth);
          if (!status.ok()) return status;
        }
        return absl::OkStatus();
      case NodeKind::kCall:
        return VisitCall(node, name, depth);
      default:
        return absl::OkStatus();
    }
  }

  absl::Status VisitPairs(const PickleNode& node, const std::string& name, int depth) {
    for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
      const PickleNode& key = Node(node.items[i]);
      if (key.kind != NodeKind::kText && key.kind != NodeKind::kInteger) continue;
      const std::string number = key.kind == NodeKind::kInteger ? std::to_string(key.integer) : std::string();
      const std::string_view part = key.kind == NodeKind::kText ? std::string_view(key.text) : number;
      if (absl::Status status = VisitItem(node.items[i + 1], name, part, depth); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status VisitCall(const PickleNode& call, const std::string& name, int depth) {
    const std::string& callee = Node(call.callee).text;
    if (callee == "torch._utils._rebuild_tensor_v2") return AddTensor(call, name);
    if (callee == "collections.OrderedDict") return VisitPairs(call, name, depth);
    // For a parameter, and for a list with the type of its elements, the first argument is the object.
    if (callee == "torch._utils._rebuild_parameter" || callee.starts_with("torch.jit._pickle.")) {
      const PickleNode& arguments = Node(call.arguments);
      if (arguments.kind != NodeKind::kTuple || arguments.items.empty()) {
        return absl::DataLossError(fmt::format("'{}': {} has no arguments", name, callee));
      }
      return Visit(arguments.items[0], name, depth + 1);
    }
    if (callee.starts_with("__torch__.")) {
      return call.state ? Visit(*call.state, name, depth + 1) : absl::OkStatus();
    }
    if (callee.starts_with("torch._")) {
      return absl::UnimplementedError(fmt::format("'{}': made by {}, which is not read", name, callee));
    }
    return absl::OkStatus();
  }

  static std::optional<std::vector<int64_t>> Integers(const Pickle& pickle, const PickleNode* tuple) {
    if (tuple == nullptr || tuple->kind != NodeKind::kTuple) return std::nullopt;
    std::vector<int64_t> integers;
    for (const size_t item : tuple->items) {
      if (pickle.nodes[item].kind != NodeKind::kInteger) return std::nullopt;
      integers.push_back(pickle.nodes[item].integer);
    }
    return integers;
  }

  // _rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, hooks, metadata), the storage being
  // ("storage", type, key, device, elements).
  absl::Status AddTensor(const PickleNode& call, const std::string& name) {
    const PickleNode* storage = Argument(call, 0);
    const PickleNode* offset = Argument(call, 1);
    auto sizes = Integers(pickle_, Argument(call, 2));
    auto strides = Integers(pickle_, Argument(call, 3));
    const bool has_storage = storage != nullptr && storage->kind == NodeKind::kPersistent;
    const PickleNode* type = has_storage ? Argument(*storage, 1) : nullptr;
    const PickleNode* key = has_storage ? Argument(*storage, 2) : nullptr;
    if (type == nullptr || type->kind != NodeKind::kGlobal || key == nullptr || key->kind != NodeKind::kText ||
        offset == nullptr || offset->kind != NodeKind::kInteger || !sizes || !strides ||
        sizes->size() != strides->size()) {
      return absl::DataLossError(fmt::format("'{}': a tensor with arguments of the wrong kind", name));
    }
    std::optional<at::ScalarType> dtype;
    for (const StorageType& known : kStorageTypes) {
      if (known.name == type->text) dtype = known.dtype;
    }
    if (!dtype) return absl::UnimplementedError(fmt::format("'{}': a {}, which is not read", name, type->text));
    // Conjugate and negative bits.
    if (const PickleNode* metadata = Argument(call, 6); metadata != nullptr && !metadata->items.empty()) {
      return absl::UnimplementedError(fmt::format("'{}': a lazily conjugated or negated tensor", name));
    }
    const Place place{key->text, *dtype, offset->integer, *std::move(sizes), *std::move(strides)};
    auto known = tensors_.find(place);
    if (known == tensors_.end()) {
      absl::StatusOr<at::Tensor> tensor = Read(place);
      if (!tensor.ok())
        return absl::Status(tensor.status().code(),
                            fmt::format("'{}': {}", name, std::string(tensor.status().message())));
      known = tensors_.emplace(place, *std::move(tensor)).first;
    }
    return snapshot_.Add(name, known->second);
  }

  absl::StatusOr<at::Tensor> Read(const Place& place) {
    const auto& [key, dtype, offset, sizes, strides] = place;
    auto record = records_.find(key);
    if (record == records_.end()) {
      const std::string name = "data/" + key;
      if (!reader_.hasRecord(name)) return absl::DataLossError(fmt::format("the record {} is absent", name));
      auto [data, bytes] = reader_.getRecord(name);
      record = records_.emplace(key, Record{std::make_shared<at::DataPtr>(std::move(data)), bytes}).first;
    }
    const auto element_bytes = static_cast<int64_t>(c10::elementSize(dtype));
    const auto elements = static_cast<int64_t>(record->second.bytes) / element_bytes;
    // `reach` is the index of the last element. No product overflows: each factor is at most `elements`.
    const auto fail = [&] {
      return absl::DataLossError(fmt::format("a tensor that is not in its record of {} bytes", record->second.bytes));
    };
    if (offset < 0 || offset > elements) return fail();
    int64_t count = 1;
    for (const int64_t size : sizes) {
      if (size < 0 || size > kExtentMax) return fail();
      count = size == 0 ? 0 : count;
    }
    if (count == 0) return at::empty(sizes, at::TensorOptions().dtype(dtype));
    int64_t reach = offset;
    for (size_t d = 0; d < sizes.size(); ++d) {
      if (sizes[d] == 1) continue;
      if (strides[d] == 0) return absl::UnimplementedError("an expanded tensor");
      if (strides[d] < 0 || strides[d] > elements || sizes[d] > elements) return fail();
      if (__builtin_mul_overflow(count, sizes[d], &count) || count > elements) return fail();
      int64_t extent = 0;
      if (__builtin_mul_overflow(sizes[d] - 1, strides[d], &extent) || extent >= elements) return fail();
      reach += extent;
      if (reach >= elements) return fail();
    }
    if (reach >= elements) return fail();
    auto* begin = static_cast<std::byte*>(record->second.data->get()) + offset * element_bytes;
    at::Tensor tensor = at::from_blob(
        begin, sizes, strides, [data = record->second.data](void*) {}, at::TensorOptions().dtype(dtype));
    tensor = tensor.contiguous();
    const bool aligned = reinterpret_cast<uintptr_t>(tensor.data_ptr()) % kSnapshotAlignment == 0;
    return aligned ? tensor : tensor.clone();
  }

  struct Record {
    std::shared_ptr<at::DataPtr> data;
    size_t bytes;
  };

  caffe2::serialize::PyTorchStreamReader& reader_;
  const Pickle& pickle_;
  FileSnapshot& snapshot_;
  size_t visits_ = 0;
  absl::flat_hash_map<std::string, Record> records_;
  std::map<Place, at::Tensor> tensors_;
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
  const absl::StatusOr<Pickle> pickle = ReadPickle({static_cast<const char*>(data.get()), bytes});
  if (!pickle.ok()) return pickle.status();
  if (absl::Status status = TensorFinder(reader, *pickle, snapshot).Find(prefix); !status.ok()) return status;
  if (snapshot.entries().empty()) {
    return absl::InvalidArgumentError("it has no tensors; of a module that Python pickled save its state_dict()");
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
