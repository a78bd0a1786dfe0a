// OptimizerSource: an optimizer's state and options as entries. Thread-compatible.

#ifndef TIDEMARK_SNAPSHOT_TORCH_TORCH_OPTIMIZER_SOURCE_H_
#define TIDEMARK_SNAPSHOT_TORCH_TORCH_OPTIMIZER_SOURCE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "snapshot/torch/torch_optimizer_fields.h"
#include "snapshot/torch/torch_sources.h"
#include "tidemark/torch.h"

namespace tidemark {

class OptimizerSource final : public TorchSource {
 public:
  // Parameters have their names from `modules`. Parameters outside of these modules have them from `tensors`, which may
  // grow later. Neither `tensors` nor `boxes` is owned.
  OptimizerSource(std::string name, torch::optim::Optimizer& optimizer, std::vector<TorchState::NamedModule> modules,
                  const std::vector<const TensorsSource*>& tensors, const OptimizerKind& kind, const TorchBoxes& boxes);

  void Walk(TorchCatalog& catalog) override;
  bool keeps_one_for_all() const override { return kind_.one_state; }
  absl::Status Prepare(const SavedEntries& saved) override;
  void Install() override;
  void Forget() override { prepared_.clear(); }

 private:
  using StateMap = std::remove_reference_t<decltype(std::declval<torch::optim::Optimizer&>().state())>;
  using ParamState = torch::optim::OptimizerParamState;

  // A parameter, or for LBFGS the first one, standing for all.
  struct Holder {
    std::string name;                      // within the optimizer's: the parameter's qualified name, or "lbfgs"
    bool is_flat = false;                  // the parameter is a flat shard
    std::vector<std::string> other_names;  // of its parameters behind the first
    StateMap::key_type key;
    at::Tensor parameter;
    int64_t flat_size = 0;  // elements of all parameters that it stands for
  };
  struct Group {
    std::string name;  // "param_groups.0"
    std::string parameter_names;
    std::vector<at::Tensor> parameters;
  };
  // One place in the order of the optimizer's map of states.
  struct Slot {
    StateMap::key_type key;
    size_t holder;
  };
  // What Install does to a holder's state.
  struct Prepared {
    enum class Then { kKeep, kReplace, kErase } then = Then::kKeep;
    std::unique_ptr<ParamState> state;
  };

  // Brings holders_ and groups_ up to date; cheap when nothing changed.
  absl::Status Bind();
  bool BindModules();
  bool GroupsChanged() const;
  absl::Status BindGroups();
  absl::Status NamelessError(const at::Tensor& parameter, size_t group, size_t index) const;
  absl::Status PrepareHolder(const SavedEntries& saved, bool all_saved, const Holder& holder, Prepared& prepared);
  absl::Status CheckAllSavedAlike(const SavedEntries& saved, const Holder& holder) const;
  ParamState* Present(const Holder& holder) const;
  // Brings states_ up to date: in the order of the map, which takes no look-ups while its keys stay where they are.
  void FindStates();

  torch::optim::Optimizer& optimizer_;
  const std::vector<TorchState::NamedModule> modules_;
  const std::vector<const TensorsSource*>& tensors_;
  const OptimizerKind& kind_;
  const TorchBoxes& boxes_;
  uint64_t boxes_version_ = 0;  // when holders_ was made

  // The modules' parameters as they were when holders_ was made; the handles keep their addresses from being reused.
  std::vector<at::Tensor> module_parameters_;
  NameTrace module_trace_;
  std::vector<Group> groups_;
  std::vector<Holder> holders_;
  std::vector<ParamState*> states_;  // of the holders, or null; valid during a walk
  std::vector<Slot> slots_;
  std::vector<Prepared> prepared_;  // empty, or one for each of holders_
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_TORCH_OPTIMIZER_SOURCE_H_
