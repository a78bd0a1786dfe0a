#include "snapshot/torch/torch_optimizer_source.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <type_traits>

#include "ATen/ATen.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace tidemark {
namespace {

// States lie all over the heap; they are fetched this many parameters before the walk gets there.
constexpr size_t kPrefetchStates = 8;

// LibTorch keys the states by the parameter's TensorImpl: its address as text up to 2.0, the address itself since.
template <typename Key>
Key StateKey(const at::Tensor& parameter) {
  if constexpr (std::is_same_v<Key, std::string>) {
    std::ostringstream text;
    text << parameter.unsafeGetTensorImpl();
    return text.str();
  } else {
    return parameter.unsafeGetTensorImpl();
  }
}

// Reports fields to a catalog.
class CatalogFields final : public FieldVisitor {
 public:
  explicit CatalogFields(TorchCatalog& catalog) : catalog_(catalog) {}

  // The parameter that the fields which follow are for; null: for several.
  void set_parameter(const at::TensorImpl* parameter) {
    use_ = {.with = parameter};
    is_of_flat_ = false;
  }
  // Of a flat shard, the parameter with this number.
  void set_parameter(const at::TensorImpl* flat, uint32_t number) {
    use_ = {.parameter = number, .with = flat};
    is_of_flat_ = true;
  }

  void Int64(std::string_view field, int64_t& value) override {
    const TorchCatalog::Scope in_field(catalog_, field);
    catalog_.Int64(value, is_of_flat_ ? CheckSameForAll(field) : nullptr);
  }
  void Double(std::string_view field, double& value) override {
    const TorchCatalog::Scope in_field(catalog_, field);
    catalog_.Double(value);
  }
  void Bool(std::string_view field, bool& value) override {
    const TorchCatalog::Scope in_field(catalog_, field);
    catalog_.Bool(value);
  }
  void Text(std::string_view field, std::string& value) override {
    const TorchCatalog::Scope in_field(catalog_, field);
    if (const auto received = catalog_.Blob(EntryKind::kString, value)) value = *received;
  }
  void Tensor(std::string_view field, Need, Form, at::Tensor& tensor) override {
    if (!tensor.defined()) return;
    const TorchCatalog::Scope in_field(catalog_, field);
    catalog_.Tensor(tensor, use_);
  }
  void Tensors(std::string_view field, Form, std::deque<at::Tensor>& tensors) override {
    const TorchCatalog::Scope in_field(catalog_, field);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TorchCatalog::Scope in_element(catalog_, std::to_string(i));
      catalog_.Tensor(tensors[i]);
    }
  }

 private:
  // The optimizer has one value for all parameters of the flat shard.
  TorchCatalog::Check CheckSameForAll(std::string_view field) {
    std::shared_ptr<std::optional<std::string>>& first = first_of_flat_[std::string(field)];
    if (use_.parameter == 0) first = std::make_shared<std::optional<std::string>>();
    return [first](std::string_view bytes) {
      if (!*first) first->emplace(bytes);
      if (**first == bytes) return absl::OkStatus();
      return absl::InvalidArgumentError(
          "the checkpoint has another value for an earlier parameter of the same flat shard, for which there is one");
    };
  }

  TorchCatalog& catalog_;
  TensorUse use_;
  bool is_of_flat_ = false;
  // By field, what the first parameter of the flat shard has received.
  absl::flat_hash_map<std::string, std::shared_ptr<std::optional<std::string>>> first_of_flat_;
};

}  // namespace

OptimizerSource::OptimizerSource(std::string name, torch::optim::Optimizer& optimizer,
                                 std::vector<TorchState::NamedModule> modules,
                                 const std::vector<const TensorsSource*>& tensors, const OptimizerKind& kind,
                                 const TorchBoxes& boxes)
    : TorchSource(std::move(name)),
      optimizer_(optimizer),
      modules_(std::move(modules)),
      tensors_(tensors),
      kind_(kind),
      boxes_(boxes) {}

bool OptimizerSource::BindModules() {
  struct Comparison final : ModuleVisitor {
    Comparison(NameTrace& trace, std::vector<at::Tensor>& known) : trace(trace), known(known) { trace.Begin(); }
    void Parameter(const std::string& key, const at::Tensor& tensor) override {
      trace.Push(key);
      trace.Count();
      if (count == known.size()) known.emplace_back();
      if (!known[count].is_same(tensor)) {
        known[count] = tensor;
        changed = true;
      }
      ++count;
      trace.Pop();
    }
    void Buffer(const std::string&, const at::Tensor&) override {}
    void Enter(const std::string& key) override { trace.Push(key); }
    void Leave() override { trace.Pop(); }

    NameTrace& trace;
    std::vector<at::Tensor>& known;
    size_t count = 0;
    bool changed = false;
  };
  Comparison comparison(module_trace_, module_parameters_);
  for (const TorchState::NamedModule& named : modules_) {
    comparison.Enter(named.name);
    WalkModule(named.module, comparison);
    comparison.Leave();
  }
  module_parameters_.resize(comparison.count);
  const bool same_names = module_trace_.End();
  return comparison.changed || !same_names;
}

bool OptimizerSource::GroupsChanged() const {
  return !std::equal(groups_.begin(), groups_.end(), optimizer_.param_groups().begin(), optimizer_.param_groups().end(),
                     [](const Group& known, const torch::optim::OptimizerParamGroup& now) {
                       return std::equal(known.parameters.begin(), known.parameters.end(), now.params().begin(),
                                         now.params().end(),
                                         [](const at::Tensor& a, const at::Tensor& b) { return a.is_same(b); });
                     });
}

absl::Status OptimizerSource::NamelessError(const at::Tensor& parameter, size_t group, size_t index) const {
  std::string modules = modules_.size() == 1 ? "the module" : "the modules";
  for (size_t i = 0; i < modules_.size(); ++i) {
    if (!modules_[i].name.empty()) modules += fmt::format("{} '{}'", i > 0 ? "," : "", modules_[i].name);
  }
  return absl::InvalidArgumentError(fmt::format(
      "optimizer '{}': parameter {} of group {}, {} [{}], has no name: it is {}no tensor that AddTensor added", name(),
      index, group, c10::toString(parameter.scalar_type()),
      fmt::join(parameter.sizes().begin(), parameter.sizes().end(), ", "),
      modules_.empty() ? "" : fmt::format("not in {} of this optimizer, and ", modules)));
}

absl::Status OptimizerSource::BindGroups() {
  groups_.clear();
  holders_.clear();
  slots_.clear();
  // A parameter with two names, a tied one, goes by the first.
  absl::flat_hash_map<const at::TensorImpl*, std::string> names;
  for (const TorchState::NamedModule& named : modules_) {
    const std::string scope = named.name.empty() ? "" : named.name + ".";
    for (const auto& item : named.module.named_parameters()) {
      names.emplace(item.value().unsafeGetTensorImpl(), scope + item.key());
    }
  }
  for (const TensorsSource* tensors : tensors_) {
    tensors->ForEach([&](std::string_view name, const at::Tensor& tensor) {
      if (tensor.defined()) names.emplace(tensor.unsafeGetTensorImpl(), name);
    });
  }
  for (const torch::optim::OptimizerParamGroup& now : optimizer_.param_groups()) {
    Group group{.name = fmt::format("param_groups.{}", groups_.size()), .parameters = now.params()};
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const at::Tensor& parameter = group.parameters[i];
      const auto found = names.find(parameter.unsafeGetTensorImpl());
      if (found == names.end()) return NamelessError(parameter, groups_.size(), i);
      std::vector<std::string> names_of_flat = boxes_.FlatNames(parameter, found->second);
      group.parameter_names += (i > 0 ? "\n" : "");
      group.parameter_names +=
          names_of_flat.empty() ? found->second : fmt::format("{}", fmt::join(names_of_flat, "\n"));
      if (kind_.one_state && !holders_.empty()) {
        holders_.front().flat_size += parameter.numel();
        continue;
      }
      std::string name = kind_.one_state ? "lbfgs" : found->second;
      const bool is_flat = !names_of_flat.empty();
      if (is_flat) {
        name = std::move(names_of_flat.front());
        names_of_flat.erase(names_of_flat.begin());
      }
      holders_.push_back({.name = std::move(name),
                          .is_flat = is_flat,
                          .other_names = std::move(names_of_flat),
                          .key = StateKey<StateMap::key_type>(parameter),
                          .parameter = parameter,
                          .flat_size = parameter.numel()});
    }
    groups_.push_back(std::move(group));
  }
  return absl::OkStatus();
}

absl::Status OptimizerSource::Bind() {
  const bool modules_changed = BindModules();
  if (!modules_changed && !GroupsChanged() && boxes_version_ == boxes_.version()) return absl::OkStatus();
  prepared_.clear();
  boxes_version_ = boxes_.version();
  absl::Status status = BindGroups();
  if (!status.ok()) groups_.clear();  // the next Bind must not take them for complete
  return status;
}

OptimizerSource::ParamState* OptimizerSource::Present(const Holder& holder) const {
  const auto found = optimizer_.state().find(holder.key);
  return found == optimizer_.state().end() ? nullptr : found->second.get();
}

void OptimizerSource::FindStates() {
  auto& map = optimizer_.state();
  states_.assign(holders_.size(), nullptr);
  size_t found = 0;
  for (const auto& [key, state] : map) {
    if (found == slots_.size() || slots_[found].key != key) break;
    states_[slots_[found++].holder] = state.get();
  }
  if (found == slots_.size() && found == map.size()) return;
  slots_.clear();
  absl::flat_hash_map<StateMap::key_type, size_t> holders;
  for (size_t h = 0; h < holders_.size(); ++h) {
    states_[h] = Present(holders_[h]);
    holders.emplace(holders_[h].key, h);
  }
  if (holders.size() != holders_.size()) return;  // a parameter given twice, which its names will show
  for (const auto& [key, state] : map) {
    const auto holder = holders.find(key);
    // The state of a parameter that has left the groups: there is no order to go by.
    if (holder == holders.end()) break;
    slots_.push_back({key, holder->second});
  }
}

void OptimizerSource::Walk(TorchCatalog& catalog) {
  if (absl::Status status = Bind(); !status.ok()) {
    catalog.Fail(std::move(status));
    return;
  }
  const TorchCatalog::Scope in_source(catalog, name());
  CatalogFields fields(catalog);
  {
    const TorchCatalog::Scope in_type(catalog, "type");
    catalog.Constant(kind_.type);
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    const TorchCatalog::Scope in_group(catalog, groups_[g].name);
    {
      const TorchCatalog::Scope in_names(catalog, "params");
      catalog.Constant(groups_[g].parameter_names);
    }
    kind_.visit_options(optimizer_.param_groups()[g].options(), fields);
  }
  FindStates();
  for (size_t h = 0; h < holders_.size(); ++h) {
    if (h + kPrefetchStates < states_.size()) __builtin_prefetch(states_[h + kPrefetchStates]);
    const Holder& holder = holders_[h];
    ParamState* state = states_[h];
    if (!prepared_.empty() && prepared_[h].then != Prepared::Then::kKeep) state = prepared_[h].state.get();
    if (state == nullptr) continue;
    const at::TensorImpl* parameter = holder.parameter.unsafeGetTensorImpl();
    if (!holder.is_flat) {
      fields.set_parameter(kind_.one_state ? nullptr : parameter);
      const TorchCatalog::Scope in_holder(catalog, holder.name);
      kind_.visit_state(*state, fields);
      continue;
    }
    for (size_t i = 0; i <= holder.other_names.size(); ++i) {
      fields.set_parameter(parameter, static_cast<uint32_t>(i));
      const TorchCatalog::Scope in_holder(catalog, i == 0 ? holder.name : holder.other_names[i - 1]);
      kind_.visit_state(*state, fields);
    }
  }
}

}  // namespace tidemark
