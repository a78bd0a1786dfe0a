// What a TorchState was given: modules, generators, tensors; optimizers are in torch_optimizer_source.h.
// Thread-compatible.

#ifndef TIDEMARK_SNAPSHOT_TORCH_SOURCES_H_
#define TIDEMARK_SNAPSHOT_TORCH_SOURCES_H_

#include <string>
#include <string_view>
#include <utility>

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"
#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "snapshot/torch_catalog.h"
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

  // Makes ready to receive what is saved; until Install or Forget, Walk reports the new things instead of the present
  // ones.
  virtual absl::Status Prepare(const SavedEntries&) { return absl::OkStatus(); }
  virtual void Install() {}
  virtual void Forget() {}

 private:
  const std::string name_;
};

// Calls `report` with the name and value of every defined parameter of the module itself, not of those in it. Copies
// nothing, as named_parameters() does.
void ForEachOwnParameter(const torch::nn::Module& module,
                         absl::FunctionRef<void(const std::string&, const at::Tensor&)> report);

class ModuleSource final : public TorchSource {
 public:
  ModuleSource(std::string name, const torch::nn::Module& module) : TorchSource(std::move(name)), module_(module) {}
  void Walk(TorchCatalog& catalog) override;

 private:
  const torch::nn::Module& module_;
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

class TensorSource final : public TorchSource {
 public:
  TensorSource(std::string name, at::Tensor tensor) : TorchSource(std::move(name)), tensor_(std::move(tensor)) {}
  void Walk(TorchCatalog& catalog) override;

 private:
  const at::Tensor tensor_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_SOURCES_H_
