#include "snapshot/torch_sources.h"

#include <cstring>
#include <mutex>

#include "ATen/ATen.h"
#include "fmt/format.h"
#include "snapshot/torch_errors.h"

namespace tidemark {
namespace {

// Module gives its own parameters only as a copy of the whole dictionary, which costs more than all else that a save
// does for a small tensor. The dictionary itself is for derived classes to see.
struct ParameterAccess : torch::nn::Module {
  static const torch::OrderedDict<std::string, at::Tensor>& Of(const torch::nn::Module& module) {
    return module.*(&ParameterAccess::parameters_);
  }
};

void SetGeneratorState(at::Generator& generator, std::string_view bytes) {
  const at::Tensor state = at::empty({static_cast<int64_t>(bytes.size())}, at::kByte);
  std::memcpy(state.data_ptr(), bytes.data(), bytes.size());
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(state);
}

}  // namespace

void ForEachOwnParameter(const torch::nn::Module& module,
                         absl::FunctionRef<void(const std::string&, const at::Tensor&)> report) {
  for (const auto& item : ParameterAccess::Of(module)) {
    if (item.value().defined()) report(item.key(), item.value());
  }
}

void ModuleSource::Walk(TorchCatalog& catalog) {
  const TorchCatalog::Scope in_source(catalog, name());
  module_.apply([&](const std::string& path, const torch::nn::Module& module) {
    const TorchCatalog::Scope in_module(catalog, path);
    ForEachOwnParameter(module, [&](const std::string& key, const at::Tensor& parameter) {
      const TorchCatalog::Scope in_tensor(catalog, key);
      catalog.Tensor(parameter);
    });
    for (const auto& buffer : module.named_buffers(/*recurse=*/false)) {
      const TorchCatalog::Scope in_tensor(catalog, buffer.key());
      // The optimizer changes parameters, but forward() changes buffers: BatchNorm its statistics.
      catalog.Tensor(buffer.value(), /*changes_early=*/true);
    }
  });
}

at::Tensor GeneratorSource::StateBytes() {
  const std::lock_guard<std::mutex> lock(generator_.mutex());
  return generator_.get_state().contiguous();
}

absl::Status GeneratorSource::Prepare(const SavedEntries& saved) {
  const auto found = saved.find(name());
  if (!generator_.defined() || found == saved.end()) return absl::OkStatus();
  const EntrySpec& spec = *found->second;
  if (spec.kind != EntryKind::kBytes || spec.shape.size() != 1) return absl::OkStatus();  // found by the comparison
  const auto expected = static_cast<int64_t>(StateBytes().nbytes());
  if (spec.shape[0] == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("entry '{}': the checkpoint holds {} bytes, and the state of the {} generator is {} bytes long: it "
                  "was saved from a generator of another kind",
                  name(), spec.shape[0], generator_.device().str(), expected));
}

void GeneratorSource::Walk(TorchCatalog& catalog) {
  const TorchCatalog::Scope in_source(catalog, name());
  if (!generator_.defined()) {
    catalog.Fail(absl::InvalidArgumentError(fmt::format("entry '{}': the generator is undefined", name())));
    return;
  }
  if (catalog.publishing()) {
    if (const auto received = catalog.Blob(EntryKind::kBytes, {})) SetGeneratorState(generator_, *received);
    return;
  }
  const at::Tensor state = StateBytes();
  // A clone tries the bytes, so that those which set_state refuses are found before anything is restored.
  const auto check = [this](std::string_view bytes) {
    absl::Status status = CatchTorch("the generator refused its state", [&] {
      at::Generator clone;
      {
        const std::lock_guard<std::mutex> lock(generator_.mutex());
        clone = generator_.clone();
      }
      SetGeneratorState(clone, bytes);
      return absl::OkStatus();
    });
    // Not a failure of LibTorch: the bytes are another generator's.
    return absl::IsInternal(status) ? absl::InvalidArgumentError(status.message()) : status;
  };
  catalog.Blob(EntryKind::kBytes, {static_cast<const char*>(state.data_ptr()), state.nbytes()}, check);
}

void TensorSource::Walk(TorchCatalog& catalog) {
  const TorchCatalog::Scope in_source(catalog, name());
  catalog.Tensor(tensor_);
}

}  // namespace tidemark
