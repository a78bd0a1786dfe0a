// LoadModule: from a snapshot into a module that evaluates it.

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "c10/core/InferenceMode.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/torch/torch_copy.h"
#include "snapshot/torch/torch_dtypes.h"
#include "snapshot/torch/torch_errors.h"
#include "snapshot/torch/torch_sources.h"
#include "storage/io/printable_text.h"
#include "tidemark/torch.h"

namespace tidemark {
namespace {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// One tensor of the module and the entry that goes into it.
struct Assignment {
  std::string name;
  at::Tensor tensor;
  size_t entry;
  c10::ScalarType saved_type;
};

// The parameters and buffers of a module, under the names that TorchState::AddModule gives them.
class Namer final : public ModuleVisitor {
 public:
  explicit Namer(std::string_view prefix) : scope_(std::string(prefix) + ".") {}
  void Parameter(const std::string& key, const at::Tensor& tensor) override {
    tensors.push_back({scope_ + key, tensor});
  }
  void Buffer(const std::string& key, const at::Tensor& tensor) override { tensors.push_back({scope_ + key, tensor}); }
  void Enter(const std::string& key) override {
    outer_.push_back(scope_.size());
    scope_ += key + ".";
  }
  void Leave() override {
    scope_.resize(outer_.back());
    outer_.pop_back();
  }

  std::vector<NamedTensor> tensors;

 private:
  std::string scope_;
  std::vector<size_t> outer_;
};

std::string TypeName(const at::Tensor& tensor) { return std::string(tensor.dtype().name()); }

// What keeps an entry from going into a tensor; empty if nothing does.
std::string Difference(const EntrySpec& spec, const at::Tensor& tensor) {
  if (spec.kind != EntryKind::kTensor) return fmt::format("it is a {}, not a tensor", EntryKindName(spec.kind));
  if (!spec.whole()) return "the snapshot holds only a part of it";
  if (absl::Status status = CheckStorable(tensor); !status.ok()) return std::string(status.message());
  if (tensor.sizes() != c10::IntArrayRef(spec.shape)) {
    return fmt::format("shape: snapshot has [{}], module has [{}]", fmt::join(spec.shape, ", "),
                       fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", "));
  }
  const auto saved_type = ToScalarType(spec.dtype);
  if (!saved_type || !c10::canCast(*saved_type, tensor.scalar_type())) {
    return fmt::format("dtype: snapshot has {}, which does not convert to the module's {}",
                       GetDtypeInfo(spec.dtype).name, TypeName(tensor));
  }
  return "";
}

bool SameBytes(const Snapshot& snapshot, size_t a, size_t b) {
  if (snapshot.entries()[a].dtype != snapshot.entries()[b].dtype) return false;
  const std::span<const std::byte> left = snapshot.bytes(a);
  const std::span<const std::byte> right = snapshot.bytes(b);
  if (left.size() != right.size()) return false;
  return left.empty() || left.data() == right.data() || std::memcmp(left.data(), right.data(), left.size()) == 0;
}

// Pairs the module's tensors with the snapshot's entries; what does not fit goes to `differences`. Only looks.
std::vector<Assignment> Assign(const Snapshot& snapshot, std::string_view prefix,
                               const std::vector<NamedTensor>& tensors, std::vector<std::string>& differences) {
  std::vector<Assignment> assignments;
  absl::flat_hash_set<std::string_view> names;
  absl::flat_hash_map<const void*, size_t> assigned;  // index in `assignments` of a tensor, which may have two names
  for (const auto& [name, tensor] : tensors) {
    names.insert(name);
    const std::optional<size_t> entry = snapshot.Find(name);
    if (!entry) {
      differences.push_back(fmt::format("missing in the snapshot: '{}' {} [{}]", name, TypeName(tensor),
                                        fmt::join(tensor.sizes().begin(), tensor.sizes().end(), ", ")));
      continue;
    }
    const EntrySpec& spec = snapshot.entries()[*entry];
    if (std::string difference = Difference(spec, tensor); !difference.empty()) {
      differences.push_back(fmt::format("'{}': {}", name, difference));
      continue;
    }
    const auto [first, is_new] = assigned.emplace(tensor.unsafeGetTensorImpl(), assignments.size());
    if (is_new) {
      assignments.push_back({name, tensor, *entry, *ToScalarType(spec.dtype)});
    } else if (!SameBytes(snapshot, assignments[first->second].entry, *entry)) {
      differences.push_back(fmt::format("'{}': it is tied to '{}' in the module, but they differ in the snapshot", name,
                                        assignments[first->second].name));
    }
  }
  const std::string scope = std::string(prefix) + ".";
  for (const EntrySpec& spec : snapshot.entries()) {
    if (spec.kind == EntryKind::kTensor && spec.name.starts_with(scope) && !names.contains(spec.name)) {
      differences.push_back(
          fmt::format("not in the module: '{}' {}", storage::PrintableText(spec.name), DescribeEntry(spec)));
    }
  }
  return assignments;
}

absl::Status Load(const Snapshot& snapshot, const Assignment& assignment) {
  return CatchTorch(fmt::format("entry '{}'", assignment.name), [&] {
    const std::span<const std::byte> bytes = snapshot.bytes(assignment.entry);
    at::Tensor saved = at::from_blob(const_cast<std::byte*>(bytes.data()), assignment.tensor.sizes(),
                                     at::TensorOptions().dtype(assignment.saved_type));
    // Converted on the host: every device can copy, and what arrives there needs no room twice.
    saved = saved.to(assignment.tensor.scalar_type());
    at::Tensor tensor = assignment.tensor;
    tensor.copy_(saved);
    return absl::OkStatus();
  });
}

}  // namespace

absl::Status LoadModule(const Snapshot& snapshot, std::string_view prefix, torch::nn::Module& module) {
  if (prefix.empty()) return absl::InvalidArgumentError("the prefix of the module's entries is empty");
  Namer namer(prefix);
  std::vector<std::string> differences;
  std::vector<Assignment> assignments;
  absl::Status status = CatchTorch("the module", [&] {
    WalkModule(module, namer);
    assignments = Assign(snapshot, prefix, namer.tensors, differences);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  if (!differences.empty()) {
    std::string message =
        fmt::format("the snapshot of step {} does not fit the module under '{}', {} differences:", snapshot.step(),
                    prefix, differences.size());
    for (const std::string& difference : differences) message += "\n  " + difference;
    return absl::InvalidArgumentError(message);
  }
  // Leaves that require gradients may be written without leaving a trace in the graph, and tensors that were made for
  // inference alone may be written at all.
  const c10::InferenceMode guard;
  for (const Assignment& assignment : assignments) {
    if (status = Load(snapshot, assignment); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace tidemark
