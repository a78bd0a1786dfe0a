#include "snapshot/exchange/torch_contents.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "storage/io/printable_text.h"

namespace tidemark {
namespace {

using NodeKind = PickleNode::Kind;

constexpr size_t kDepthMax = 100;
// Shared objects are visited once for each reference, so a small file can ask for very many visits. Visits are limited
// to so many for each object of the file. Their work is limited for every file: a visit costs the bytes of its name and
// kWorkPerVisit.
constexpr uint64_t kVisitsPerNode = 16;
constexpr uint64_t kWorkMax = uint64_t{256} << 20;
constexpr uint64_t kWorkPerVisit = 64;
constexpr size_t kNameBytesInAllMax = size_t{32} << 20;
constexpr int64_t kExtentMax = int64_t{1} << 48;  // of a dimension; another dimension may be zero
constexpr uint64_t kViewFactorMax = 16;

struct TorchType {
  std::string_view name;
  Dtype dtype;
};
constexpr TorchType kStorageTypes[] = {
    {"torch.FloatStorage", Dtype::kFloat32},
    {"torch.DoubleStorage", Dtype::kFloat64},
    {"torch.HalfStorage", Dtype::kFloat16},
    {"torch.BFloat16Storage", Dtype::kBfloat16},
    {"torch.LongStorage", Dtype::kInt64},
    {"torch.IntStorage", Dtype::kInt32},
    {"torch.ShortStorage", Dtype::kInt16},
    {"torch.CharStorage", Dtype::kInt8},
    {"torch.ByteStorage", Dtype::kUint8},
    {"torch.BoolStorage", Dtype::kBool},
    {"torch.ComplexFloatStorage", Dtype::kComplex64},
    {"torch.ComplexDoubleStorage", Dtype::kComplex128},
};
// Types without a storage class of their own have the untyped one, and are named beside it.
constexpr TorchType kUntypedDtypes[] = {
    {"torch.uint16", Dtype::kUint16},
    {"torch.uint32", Dtype::kUint32},
    {"torch.uint64", Dtype::kUint64},
    {"torch.complex32", Dtype::kComplex32},
    {"torch.float8_e4m3fn", Dtype::kFloat8E4M3Fn},
    {"torch.float8_e5m2", Dtype::kFloat8E5M2},
    {"torch.float8_e4m3fnuz", Dtype::kFloat8E4M3Fnuz},
    {"torch.float8_e5m2fnuz", Dtype::kFloat8E5M2Fnuz},
    {"torch.float8_e8m0fnu", Dtype::kFloat8E8M0Fnu},
    {"torch.float4_e2m1fn_x2", Dtype::kFloat4E2M1FnX2},
};

template <size_t N>
std::optional<Dtype> FindIn(const TorchType (&names)[N], std::string_view name) {
  for (const TorchType& known : names) {
    if (known.name == name) return known.dtype;
  }
  return std::nullopt;
}

std::string NumberText(double number) {
  if (std::isnan(number)) return "NaN";
  if (std::isinf(number)) return number < 0 ? "-Infinity" : "Infinity";
  return nlohmann::json(number).dump();
}

class Finder {
 public:
  Finder(const Pickle& pickle, RecordBytes record_bytes) : pickle_(pickle), record_bytes_(record_bytes) {}

  absl::StatusOr<TorchContents> Find(std::string_view prefix) {
    absl::Status status = Visit(pickle_.root, std::string(prefix), 0);
    if (status.ok()) status = CheckViews();
    if (!status.ok()) return status;
    if (found_.tensors.empty()) {
      return absl::InvalidArgumentError("it has no tensors; of a module that Python pickled save its state_dict()");
    }
    return std::move(found_);
  }

 private:
  // The identity of a tensor, to find it again: record, dtype, offset, sizes, strides.
  using Place = std::tuple<std::string_view, Dtype, int64_t, std::vector<int64_t>, std::vector<int64_t>>;
  struct Record {
    size_t index;  // in TorchContents::records
    uint64_t bytes;
  };

  const PickleNode& Node(uint32_t index) const { return pickle_.nodes[index]; }
  // An item of the tuple of arguments; null if there is none.
  const PickleNode* Argument(const PickleNode& call, size_t index) const {
    const PickleNode& arguments = Node(call.arguments);
    if (arguments.kind != NodeKind::kTuple || index >= arguments.items.size()) return nullptr;
    return &Node(arguments.items[index]);
  }
  static std::string Shown(std::string_view name) { return fmt::format("'{}'", storage::PrintableText(name)); }

  absl::Status Spend(uint64_t work) {
    work_ += work;
    return work_ <= kWorkMax ? absl::OkStatus() : TooOften();
  }
  static absl::Status TooOften() { return absl::UnimplementedError("its objects refer to each other too often"); }

  // Visits the item `part` of the object `scope`. A name is refused before it is joined if it is too long: a small file
  // can use one long key in many pairs, and each would copy it.
  absl::Status VisitItem(uint32_t index, const std::string& scope, std::string_view part, size_t depth) {
    if (scope.size() + part.size() + 1 > EntrySpec::kNameBytesMax) {
      return absl::InvalidArgumentError(fmt::format("a name of {} bytes; at most {} are read",
                                                    scope.size() + part.size() + 1, EntrySpec::kNameBytesMax));
    }
    return Visit(index, scope.empty() ? std::string(part) : fmt::format("{}.{}", scope, part), depth + 1);
  }

  absl::Status Visit(uint32_t index, const std::string& name, size_t depth) {
    if (depth > kDepthMax)
      return absl::DataLossError(fmt::format("the objects at {} are nested too deep", Shown(name)));
    if (++visits_ > kVisitsPerNode * pickle_.nodes.size()) return TooOften();
    if (absl::Status status = Spend(kWorkPerVisit + name.size()); !status.ok()) return status;
    const PickleNode& node = Node(index);
    switch (node.kind) {
      case NodeKind::kDict:
        return VisitPairs(node, name, depth);
      case NodeKind::kTuple:
      case NodeKind::kList:
        return VisitList(node, name, depth);
      case NodeKind::kCall:
        return VisitCall(node, name, depth);
      case NodeKind::kText:
        if (absl::Status status = Spend(node.text.size()); !status.ok()) return status;
        AddValue(name, std::string(node.text));
        return absl::OkStatus();
      default:
        break;
    }
    if (const std::optional<std::string> text = PlainText(node)) {
      AddValue(name, *text);
    } else {
      LeaveOut(name, node.kind == NodeKind::kGlobal ? node.text : "an object");
    }
    return absl::OkStatus();
  }

  // Of a number, a bool or None.
  static std::optional<std::string> PlainText(const PickleNode& node) {
    switch (node.kind) {
      case NodeKind::kNone:
        return "null";
      case NodeKind::kBool:
        return node.integer != 0 ? "true" : "false";
      case NodeKind::kInteger:
        return std::to_string(node.integer);
      case NodeKind::kDouble:
        return NumberText(node.number);
      default:
        return std::nullopt;
    }
  }

  // A list of plain values is one value: an optimizer's parameter numbers are very many.
  absl::Status VisitList(const PickleNode& node, const std::string& name, size_t depth) {
    const bool is_plain = std::all_of(node.items.begin(), node.items.end(), [&](uint32_t item) {
      const NodeKind kind = Node(item).kind;
      return kind == NodeKind::kNone || kind == NodeKind::kBool || kind == NodeKind::kInteger ||
             kind == NodeKind::kDouble || kind == NodeKind::kText;
    });
    if (absl::Status status = Spend(node.items.size()); !status.ok()) return status;
    if (is_plain) return AddList(node, name);
    for (size_t i = 0; i < node.items.size(); ++i) {
      absl::Status status = VisitItem(node.items[i], name, std::to_string(i), depth);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status AddList(const PickleNode& node, const std::string& name) {
    std::string text = "[";
    for (const uint32_t item : node.items) {
      if (text.size() > 1) text += ',';
      const PickleNode& value = Node(item);
      const size_t before = text.size();
      if (value.kind == NodeKind::kText) {
        if (absl::Status status = Spend(value.text.size()); !status.ok()) return status;
        text += nlohmann::json(value.text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
      } else {
        text += *PlainText(value);
      }
      if (absl::Status status = Spend(text.size() - before); !status.ok()) return status;
      if (text.size() > kTorchValueBytesMax) break;  // AddValue takes it as the last one
    }
    AddValue(name, text + "]");
    return absl::OkStatus();
  }

  void AddValue(const std::string& name, std::string text) {
    if (value_bytes_ > kTorchValueBytesMax) return;
    value_bytes_ += name.size() + text.size();
    found_.values.push_back({.name = name, .text = std::move(text)});
  }

  void LeaveOut(const std::string& name, std::string_view what) {
    if (found_.left_out++ == 0) {
      found_.first_left_out = fmt::format("{} of {}", Shown(name), storage::PrintableText(what));
    }
  }

  absl::Status VisitPairs(const PickleNode& node, const std::string& name, size_t depth) {
    for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
      const PickleNode& key = Node(node.items[i]);
      if (key.kind != NodeKind::kText && key.kind != NodeKind::kInteger) {
        if (absl::Status status = Spend(kWorkPerVisit); !status.ok()) return status;
        LeaveOut(name, "a key that is neither text nor an integer");
        continue;
      }
      const std::string number = key.kind == NodeKind::kInteger ? std::to_string(key.integer) : std::string();
      const std::string_view part = key.kind == NodeKind::kText ? key.text : std::string_view(number);
      if (absl::Status status = VisitItem(node.items[i + 1], name, part, depth); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status VisitCall(const PickleNode& call, const std::string& name, size_t depth) {
    const std::string_view callee = Node(call.callee).text;
    if (callee == "torch._utils._rebuild_tensor_v2") return AddTensor(call, name, /*names_dtype=*/false);
    if (callee == "torch._utils._rebuild_tensor_v3") return AddTensor(call, name, /*names_dtype=*/true);
    if (callee == "collections.OrderedDict" || callee == "collections.defaultdict") {
      return VisitPairs(call, name, depth);
    }
    // For a parameter, for a size, and for a list with the type of its elements, the first argument is the object.
    if (callee == "torch._utils._rebuild_parameter" || callee == "torch._utils._rebuild_parameter_with_state" ||
        callee == "torch.Size" || callee.starts_with("torch.jit._pickle.")) {
      const PickleNode& arguments = Node(call.arguments);
      if (arguments.kind != NodeKind::kTuple || arguments.items.empty()) {
        return absl::DataLossError(fmt::format("{}: {} has no arguments", Shown(name), storage::PrintableText(callee)));
      }
      return Visit(arguments.items[0], name, depth + 1);
    }
    if (callee.starts_with("__torch__.")) {
      return call.state ? Visit(*call.state, name, depth + 1) : absl::OkStatus();
    }
    if (callee.starts_with("torch._")) {
      return absl::UnimplementedError(
          fmt::format("{}: made by {}, which is not read", Shown(name), storage::PrintableText(callee)));
    }
    LeaveOut(name, callee);
    return absl::OkStatus();
  }

  std::optional<std::vector<int64_t>> Integers(const PickleNode* tuple) const {
    if (tuple == nullptr || tuple->kind != NodeKind::kTuple) return std::nullopt;
    if (tuple->items.size() > EntrySpec::kDimensionsMax) return std::nullopt;
    std::vector<int64_t> integers;
    for (const uint32_t item : tuple->items) {
      if (Node(item).kind != NodeKind::kInteger) return std::nullopt;
      integers.push_back(Node(item).integer);
    }
    return integers;
  }

  // _rebuild_tensor_v2(storage, offset, sizes, strides, requires_grad, hooks, metadata), the storage being
  // ("storage", type, key, device, elements). _rebuild_tensor_v3 has the dtype before the metadata.
  absl::Status AddTensor(const PickleNode& call, const std::string& name, bool names_dtype) {
    const PickleNode* storage = Argument(call, 0);
    const PickleNode* offset = Argument(call, 1);
    auto sizes = Integers(Argument(call, 2));
    auto strides = Integers(Argument(call, 3));
    const bool has_storage = storage != nullptr && storage->kind == NodeKind::kPersistent;
    const PickleNode* type = has_storage ? Argument(*storage, 1) : nullptr;
    const PickleNode* key = has_storage ? Argument(*storage, 2) : nullptr;
    const PickleNode* dtype_name = names_dtype ? Argument(call, 6) : type;
    if (type == nullptr || type->kind != NodeKind::kGlobal || key == nullptr || key->kind != NodeKind::kText ||
        key->text.size() > kRecordNameBytesMax || dtype_name == nullptr || dtype_name->kind != NodeKind::kGlobal ||
        offset == nullptr || offset->kind != NodeKind::kInteger || !sizes || !strides ||
        sizes->size() != strides->size()) {
      return absl::DataLossError(fmt::format("{}: a tensor with arguments of the wrong kind", Shown(name)));
    }
    const std::optional<Dtype> dtype =
        names_dtype ? FindIn(kUntypedDtypes, dtype_name->text) : FindIn(kStorageTypes, dtype_name->text);
    if (!dtype) {
      return absl::UnimplementedError(
          fmt::format("{}: a {}, which is not read", Shown(name), storage::PrintableText(dtype_name->text)));
    }
    // Conjugate and negative bits.
    const PickleNode* metadata = Argument(call, names_dtype ? 7 : 6);
    if (metadata != nullptr && !metadata->items.empty()) {
      return absl::UnimplementedError(fmt::format("{}: a lazily conjugated or negated tensor", Shown(name)));
    }
    if (found_.tensors.size() == kTorchTensorsMax || (name_bytes_ += name.size()) > kNameBytesInAllMax) {
      return absl::UnimplementedError(fmt::format("{} tensors, or {} bytes of their names; at most {} and {} are read",
                                                  found_.tensors.size() + 1, name_bytes_, kTorchTensorsMax,
                                                  kNameBytesInAllMax));
    }
    Place place{key->text, *dtype, offset->integer, *std::move(sizes), *std::move(strides)};
    absl::Status status = Add(place, name);
    if (status.ok() || absl::IsInvalidArgument(status)) return status;
    return absl::Status(status.code(), fmt::format("{}: {}", Shown(name), std::string(status.message())));
  }

  absl::Status Add(const Place& place, const std::string& name) {
    const auto& [key, dtype, offset, sizes, strides] = place;
    TorchTensor tensor{.spec = {.name = name, .dtype = dtype, .shape = sizes}};
    if (absl::Status status = CheckPlace(place, &tensor.record); !status.ok()) return status;
    if (absl::Status status = ValidateEntry(tensor.spec, &tensor.bytes); !status.ok()) return status;
    if (!names_.insert(name).second) {
      return absl::InvalidArgumentError(fmt::format("two tensors have the name {}", Shown(name)));
    }
    tensor.offset = static_cast<uint64_t>(offset);
    tensor.strides = strides;
    const auto [known, is_new] = places_.try_emplace(place, found_.tensors.size());
    if (is_new) {
      view_bytes_ += tensor.bytes;
    } else {
      tensor.tied_to = known->second;
    }
    found_.tensors.push_back(std::move(tensor));
    return absl::OkStatus();
  }

  // Sets `*index` to the record's in found_.records.
  absl::Status CheckPlace(const Place& place, size_t* index) {
    const auto& [key, dtype, offset, sizes, strides] = place;
    auto record = records_.find(key);
    if (record == records_.end()) {
      std::string name = fmt::format("data/{}", key);
      const std::optional<uint64_t> bytes = record_bytes_(name);
      if (!bytes) return absl::DataLossError(fmt::format("the record {} is absent", storage::PrintableText(name)));
      record = records_.emplace(key, Record{.index = found_.records.size(), .bytes = *bytes}).first;
      found_.records.push_back(std::move(name));
      stored_bytes_ += *bytes;
    }
    *index = record->second.index;
    const auto elements = static_cast<int64_t>(record->second.bytes / GetDtypeInfo(dtype).element_bytes);
    // `reach` is the index of the last element. No product overflows: each factor is at most `elements`.
    const auto fail = [bytes = record->second.bytes] {
      return absl::DataLossError(fmt::format("a tensor that is not in its record of {} bytes", bytes));
    };
    if (offset < 0 || offset > elements) return fail();
    bool is_empty = false;
    for (const int64_t size : sizes) {
      if (size < 0 || size > kExtentMax) return fail();
      is_empty = is_empty || size == 0;
    }
    if (is_empty) return absl::OkStatus();
    int64_t count = 1;
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
    return reach >= elements ? fail() : absl::OkStatus();
  }

  // A small file may have very many views of one record, and each view becomes a copy.
  absl::Status CheckViews() const {
    if (view_bytes_ / kViewFactorMax <= stored_bytes_) return absl::OkStatus();
    return absl::UnimplementedError(
        fmt::format("its tensors have {} bytes, as views of records of {}; at most {} times as many are read",
                    view_bytes_, stored_bytes_, kViewFactorMax));
  }

  static constexpr size_t kRecordNameBytesMax = 256;

  const Pickle& pickle_;
  const RecordBytes record_bytes_;
  TorchContents found_;
  uint64_t visits_ = 0;
  uint64_t work_ = 0;
  size_t name_bytes_ = 0;
  size_t value_bytes_ = 0;
  uint64_t view_bytes_ = 0;
  uint64_t stored_bytes_ = 0;  // of the records that tensors lie in
  absl::flat_hash_set<std::string> names_;
  absl::flat_hash_map<std::string_view, Record> records_;  // by key
  std::map<Place, size_t> places_;
};

}  // namespace

absl::StatusOr<TorchContents> FindTorchContents(const Pickle& pickle, std::string_view prefix,
                                                RecordBytes record_bytes) {
  return Finder(pickle, record_bytes).Find(prefix);
}

}  // namespace tidemark
