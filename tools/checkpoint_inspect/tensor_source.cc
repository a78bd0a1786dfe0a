#include "tools/checkpoint_inspect/tensor_source.h"

#include <algorithm>
#include <utility>

namespace tidemark::inspect {
namespace {

class StepSource : public TensorSource {
 public:
  StepSource(std::unique_ptr<StepReader> step, std::string name) : step_(std::move(step)), name_(std::move(name)) {}

  const std::string& name() const override { return name_; }
  std::span<const StoredEntry> entries() const override { return step_->contents().entries; }
  absl::Status Read(std::span<const StepReader::Window> windows) const override { return step_->Read(windows); }
  uint64_t chunk_bytes() const override { return std::max<uint64_t>(step_->chunk_bytes(), 1); }

 private:
  const std::unique_ptr<StepReader> step_;
  const std::string name_;
};

}  // namespace

std::unique_ptr<TensorSource> MakeStepSource(std::unique_ptr<StepReader> step, std::string name) {
  return std::make_unique<StepSource>(std::move(step), std::move(name));
}

}  // namespace tidemark::inspect
