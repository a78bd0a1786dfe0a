#include "snapshot/torch/torch_sources.h"

#include <cstring>
#include <mutex>

#include "ATen/ATen.h"
#include "fmt/format.h"
#include "snapshot/torch/torch_errors.h"

namespace tidemark {
namespace {

// LibTorch gives a module's dictionaries away as copies only, which cost more than all else that a save does for a
// small tensor. The language lets an explicit instantiation name what is private; the friend that comes with it hands
// it on.
const torch::OrderedDict<std::string, at::Tensor>& BuffersOf(const torch::nn::Module& module);
const torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>& ChildrenOf(const torch::nn::Module& module);

template <auto kBuffers, auto kChildren>
struct ModuleAccess {
  friend const torch::OrderedDict<std::string, at::Tensor>& BuffersOf(const torch::nn::Module& module) {
    return module.*kBuffers;
  }
  friend const torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>& ChildrenOf(
      const torch::nn::Module& module) {
    return module.*kChildren;
  }
};
template struct ModuleAccess<&torch::nn::Module::buffers_, &torch::nn::Module::children_>;

// The parameters are for derived classes to see.
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

void WalkModule(const torch::nn::Module& module, ModuleVisitor& visitor) {
  for (const auto& parameter : ParameterAccess::Of(module)) {
    if (parameter.value().defined()) visitor.Parameter(parameter.key(), parameter.value());
  }
  for (const auto& buffer : BuffersOf(module)) {
    if (buffer.value().defined()) visitor.Buffer(buffer.key(), buffer.value());
  }
  for (const auto& child : ChildrenOf(module)) {
    visitor.Enter(child.key());
    WalkModule(*child.value(), visitor);
    visitor.Leave();
  }
}

void ReportTensor(const TorchBoxes& boxes, std::string_view name, const at::Tensor& tensor, TensorUse use,
                  TorchCatalog& catalog) {
  const std::vector<std::string> names = boxes.FlatNames(tensor, name);
  for (const std::string& of_parameter : names) {
    const TorchCatalog::Scope in_tensor(catalog, of_parameter);
    catalog.Tensor(tensor, use);
    ++use.parameter;
  }
  if (!names.empty()) return;
  const TorchCatalog::Scope in_tensor(catalog, name);
  catalog.Tensor(tensor, use);
}

void ModuleSource::Walk(TorchCatalog& catalog) {
  class Reporter final : public ModuleVisitor {
   public:
    Reporter(const TorchBoxes& boxes, TorchCatalog& catalog) : boxes_(boxes), catalog_(catalog) {}
    void Parameter(const std::string& key, const at::Tensor& tensor) override {
      ReportTensor(boxes_, key, tensor, {}, catalog_);
    }
    void Buffer(const std::string& key, const at::Tensor& tensor) override {
      // The optimizer changes parameters, but forward() changes buffers: BatchNorm its statistics.
      ReportTensor(boxes_, key, tensor, {.early = true}, catalog_);
    }
    void Enter(const std::string& key) override { catalog_.Enter(key); }
    void Leave() override { catalog_.Leave(); }

   private:
    const TorchBoxes& boxes_;
    TorchCatalog& catalog_;
  };
  const TorchCatalog::Scope in_source(catalog, name());
  Reporter reporter(boxes_, catalog);
  WalkModule(module_, reporter);
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

void TensorsSource::Add(std::string_view name, at::Tensor tensor) {
  names_ += name;
  tensors_.push_back({std::move(tensor), names_.size()});
}

void TensorsSource::Walk(TorchCatalog& catalog) {
  ForEach([&](std::string_view name, const at::Tensor& tensor) { ReportTensor(boxes_, name, tensor, {}, catalog); });
}

}  // namespace tidemark
