// The sources of a TorchState: modules, generators, tensors. Optimizers are in torch_optimizer_source.h, schedulers in
// torch_scheduler_source.h. Thread-compatible.

#ifndef TIDEMARK_SNAPSHOT_TORCH_TORCH_SOURCES_H_
#define TIDEMARK_SNAPSHOT_TORCH_TORCH_SOURCES_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "snapshot/torch/torch_boxes.h"
#include "snapshot/torch/torch_catalog.h"
#include "tidemark/entry.h"
#include "torch/nn/module.h"

namespace tidemark {

// What a checkpoint holds, by name.
using SavedEntries = absl::flat_hash_map<std::string_view, const EntrySpec*>;

// Something that reports entries to a catalog. Functions may throw what LibTorch throws.
class TorchSource {
 public:
  explicit TorchSource(std::string name) : name_(std::move(name)) {}
  virtual ~TorchSource() = default;
  TorchSource(const TorchSource&) = delete;
  TorchSource& operator=(const TorchSource&) = delete;

  const std::string& name() const { return name_; }

  virtual void Walk(TorchCatalog& catalog) = 0;

  // Whether it reports tensors that are of several parameters together.
  virtual bool keeps_one_for_all() const { return false; }

  // Makes ready to receive what is saved; until Install or Forget, Walk reports the new things instead of the present
  // ones.
  virtual absl::Status Prepare(const SavedEntries&) { return absl::OkStatus(); }
  virtual void Install() {}
  virtual void Forget() {}

 private:
  const std::string name_;
};

// Sees a module and those in it, in the order of its named_parameters().
class ModuleVisitor {
 public:
  virtual ~ModuleVisitor() = default;
  virtual void Parameter(const std::string& key, const at::Tensor& tensor) = 0;
  virtual void Buffer(const std::string& key, const at::Tensor& tensor) = 0;
  // What is seen until Leave belongs to the module of this key.
  virtual void Enter(const std::string& key) = 0;
  virtual void Leave() = 0;
};

// Shows the defined parameters and buffers of `module`, and then each module in it likewise. Copies nothing and builds
// no names, as named_parameters() does.
void WalkModule(const torch::nn::Module& module, ModuleVisitor& visitor);

// Reports the tensor; a flat shard as each of the parameters in it.
void ReportTensor(const TorchBoxes& boxes, std::string_view name, const at::Tensor& tensor, TensorUse use,
                  TorchCatalog& catalog);

class ModuleSource final : public TorchSource {
 public:
  // `boxes` is not owned.
  ModuleSource(std::string name, const torch::nn::Module& module, const TorchBoxes& boxes)
      : TorchSource(std::move(name)), module_(module), boxes_(boxes) {}
  void Walk(TorchCatalog& catalog) override;

 private:
  const torch::nn::Module& module_;
  const TorchBoxes& boxes_;
};

class GeneratorSource final : public TorchSource {
 public:
  GeneratorSource(std::string name, at::Generator generator)
      : TorchSource(std::move(name)), generator_(std::move(generator)) {}
  void Walk(TorchCatalog& catalog) override;
  // Refuses a state of another length than this generator's.
  absl::Status Prepare(const SavedEntries& saved) override;

 private:
  at::Tensor StateBytes();

  at::Generator generator_;
};

// Tensors that were given one by one. They may be many, so they and their names lie side by side.
class TensorsSource final : public TorchSource {
 public:
  // `boxes` is not owned.
  explicit TensorsSource(const TorchBoxes& boxes) : TorchSource("tensors"), boxes_(boxes) {}
  void Add(std::string_view name, at::Tensor tensor);
  void Walk(TorchCatalog& catalog) override;

  // Calls `see(name, tensor)` for each, in the order of adding.
  template <typename See>
  void ForEach(See see) const {
    size_t name_begin = 0;
    for (const Named& named : tensors_) {
      see(std::string_view(names_).substr(name_begin, named.name_end - name_begin), named.tensor);
      name_begin = named.name_end;
    }
  }

 private:
  struct Named {
    at::Tensor tensor;
    size_t name_end;  // in names_; it begins where the one before it ends
  };
  const TorchBoxes& boxes_;
  std::vector<Named> tensors_;
  std::string names_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_TORCH_SOURCES_H_
