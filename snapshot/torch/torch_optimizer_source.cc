#include "snapshot/torch/torch_optimizer_source.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <type_traits>

#include "ATen/ATen.h"
#include "c10/core/InferenceMode.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/torch/torch_dtypes.h"
#include "storage/io/printable_text.h"

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
  void set_parameter(const at::TensorImpl* parameter) { parameter_ = parameter; }

  void Int64(std::string_view field, int64_t& value) override {
    const TorchCatalog::Scope in_field(catalog_, field);
    catalog_.Int64(value);
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
    catalog_.Tensor(tensor, {.with = parameter_});
  }
  void Tensors(std::string_view field, Form, std::deque<at::Tensor>& tensors) override {
    const TorchCatalog::Scope in_field(catalog_, field);
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TorchCatalog::Scope in_element(catalog_, std::to_string(i));
      catalog_.Tensor(tensors[i]);
    }
  }

 private:
  TorchCatalog& catalog_;
  const at::TensorImpl* parameter_ = nullptr;
};

// Collects a state's tensors by their fields' names.
class FieldTensors final : public FieldVisitor {
 public:
  const at::Tensor& Find(const std::string& field) const {
    static const at::Tensor none;
    const auto found = tensors_.find(field);
    return found == tensors_.end() ? none : found->second;
  }

  void Int64(std::string_view, int64_t&) override {}
  void Double(std::string_view, double&) override {}
  void Bool(std::string_view, bool&) override {}
  void Text(std::string_view, std::string&) override {}
  void Tensor(std::string_view field, Need, Form, at::Tensor& tensor) override {
    tensors_[std::string(field)] = tensor;
  }
  void Tensors(std::string_view field, Form, std::deque<at::Tensor>& tensors) override {
    for (size_t i = 0; i < tensors.size(); ++i) tensors_[ElementName(field, i)] = tensors[i];
  }

  static std::string ElementName(std::string_view field, size_t i) { return fmt::format("{}.{}", field, i); }

 private:
  absl::flat_hash_map<std::string, at::Tensor> tensors_;
};

// Gives a state the tensors that the checkpoint holds for it. Where shape or dtype differ from what the parameter calls
// for, the tensor gets those of the parameter, and the restore's comparison of entries reports the difference.
class StateMaker final : public FieldVisitor {
 public:
  // Fields under `prefix`. With `all_saved`, the checkpoint must hold every scalar. Tensors of `present` that fit are
  // used again.
  StateMaker(const SavedEntries& saved, std::string prefix, bool all_saved, const FieldTensors& present,
             const at::Tensor& parameter, int64_t flat_size)
      : saved_(saved),
        prefix_(std::move(prefix)),
        all_saved_(all_saved),
        present_(present),
        parameter_(parameter),
        flat_size_(flat_size) {}

  // Whether the checkpoint holds any field of the state.
  bool any() const { return any_; }
  // The name of a field that is needed and absent; empty if there is none.
  const std::string& absent() const { return absent_; }

  void Int64(std::string_view field, int64_t&) override { Scalar(field); }
  void Double(std::string_view field, double&) override { Scalar(field); }
  void Bool(std::string_view field, bool&) override { Scalar(field); }
  void Text(std::string_view field, std::string&) override { Scalar(field); }
  void Tensor(std::string_view field, Need need, Form form, at::Tensor& tensor) override {
    if (const EntrySpec* spec = Find(field)) {
      Make(*spec, form, std::string(field), tensor);
    }
    if (need == Need::kAlways && !tensor.defined()) NoteAbsent(field);
  }
  void Tensors(std::string_view field, Form form, std::deque<at::Tensor>& tensors) override {
    size_t count = 0;
    for (; const EntrySpec* spec = Find(FieldTensors::ElementName(field, count)); ++count) {
      if (count == tensors.size()) tensors.emplace_back();
      Make(*spec, form, FieldTensors::ElementName(field, count), tensors[count]);
    }
    if (count > 0) tensors.resize(count);
    if (sequence_length_ && *sequence_length_ != tensors.size()) NoteAbsent(FieldTensors::ElementName(field, count));
    sequence_length_ = tensors.size();
  }

 private:
  const EntrySpec* Find(std::string_view field) {
    const auto found = saved_.find(prefix_ + std::string(field));
    if (found == saved_.end()) return nullptr;
    any_ = true;
    return found->second;
  }

  void Scalar(std::string_view field) {
    if (Find(field) == nullptr && all_saved_) NoteAbsent(field);
  }

  void NoteAbsent(std::string_view field) {
    if (absent_.empty()) absent_ = prefix_ + std::string(field);
  }

  void Make(const EntrySpec& spec, Form form, const std::string& field, at::Tensor& tensor) const {
    tensor = present_.Find(field);
    // This may be a box of the parameter, and the checkpoint has the shape of the whole.
    const at::IntArrayRef shape = form == Form::kParameter ? parameter_.sizes() : at::IntArrayRef(spec.shape);
    const auto fits = [&] { return ToDtype(tensor.scalar_type()) == spec.dtype && tensor.sizes() == shape; };
    if (tensor.defined() && fits()) return;
    // Not inference tensors, even if the restore is called in inference mode: the optimizer must be able to write them.
    const c10::InferenceMode no_inference(false);
    const at::NoGradGuard no_grad;
    switch (form) {
      case Form::kParameter:
        tensor = at::empty_like(parameter_);
        break;
      case Form::kFlat:
        tensor = at::empty({flat_size_}, parameter_.options().requires_grad(false));
        break;
      case Form::kNumber: {
        // LBFGS begins with an integer 1 in host memory, whatever the parameters are.
        const at::ScalarType dtype = ToScalarType(spec.dtype).value_or(parameter_.scalar_type());
        const at::Device device = at::isFloatingType(dtype) ? parameter_.device() : at::Device(at::kCPU);
        tensor = at::empty({}, at::TensorOptions().dtype(dtype).device(device));
        break;
      }
    }
  }

  const SavedEntries& saved_;
  const std::string prefix_;
  const bool all_saved_;
  const FieldTensors& present_;
  const at::Tensor& parameter_;
  const int64_t flat_size_;
  bool any_ = false;
  std::string absent_;
  std::optional<size_t> sequence_length_;
};

// Collects the names of options.
class FieldNames final : public FieldVisitor {
 public:
  explicit FieldNames(std::vector<std::string>& names) : names_(names) {}
  void Int64(std::string_view field, int64_t&) override { names_.emplace_back(field); }
  void Double(std::string_view field, double&) override { names_.emplace_back(field); }
  void Bool(std::string_view field, bool&) override { names_.emplace_back(field); }
  void Text(std::string_view field, std::string&) override { names_.emplace_back(field); }
  void Tensor(std::string_view field, Need, Form, at::Tensor&) override { names_.emplace_back(field); }
  void Tensors(std::string_view field, Form, std::deque<at::Tensor>&) override { names_.emplace_back(field); }

 private:
  std::vector<std::string>& names_;
};

// Which optimizer the checkpoint holds under `name`. The type itself is a value, and values are read only after the
// entries were found to fit; but it shows in the names of the options and the length of the type. Null: none, or one
// that cannot be told.
const OptimizerKind* SavedKind(const SavedEntries& saved, const std::string& name) {
  const auto type = saved.find(name + ".type");
  if (type == saved.end() || type->second->shape.size() != 1) return nullptr;
  for (const OptimizerKind& kind : OptimizerKinds()) {
    if (type->second->shape[0] != static_cast<int64_t>(kind.type.size())) continue;
    std::vector<std::string> fields;
    FieldNames visitor(fields);
    kind.visit_options(*kind.make_options(), visitor);
    const bool has_all = std::all_of(fields.begin(), fields.end(), [&](const std::string& field) {
      return saved.contains(fmt::format("{}.param_groups.0.{}", name, field));
    });
    if (has_all) return &kind;
  }
  return nullptr;
}

}  // namespace

OptimizerSource::OptimizerSource(std::string name, torch::optim::Optimizer& optimizer,
                                 std::vector<TorchState::NamedModule> modules,
                                 const std::vector<const TensorsSource*>& tensors, const OptimizerKind& kind)
    : TorchSource(std::move(name)),
      optimizer_(optimizer),
      modules_(std::move(modules)),
      tensors_(tensors),
      kind_(kind) {}

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
      group.parameter_names += (i > 0 ? "\n" : "") + std::string(found->second);
      if (kind_.one_state && !holders_.empty()) {
        holders_.front().flat_size += parameter.numel();
        continue;
      }
      holders_.push_back({.name = kind_.one_state ? "lbfgs" : std::string(found->second),
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
  if (!modules_changed && !GroupsChanged()) return absl::OkStatus();
  prepared_.clear();
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
    const TorchCatalog::Scope in_holder(catalog, holders_[h].name);
    ParamState* state = states_[h];
    if (!prepared_.empty() && prepared_[h].then != Prepared::Then::kKeep) state = prepared_[h].state.get();
    if (state == nullptr) continue;
    fields.set_parameter(kind_.one_state ? nullptr : holders_[h].parameter.unsafeGetTensorImpl());
    kind_.visit_state(*state, fields);
  }
}

absl::Status OptimizerSource::PrepareHolder(const SavedEntries& saved, bool all_saved, const Holder& holder,
                                            Prepared& prepared) {
  ParamState* present = Present(holder);
  FieldTensors present_tensors;
  if (present != nullptr) kind_.visit_state(*present, present_tensors);
  StateMaker maker(saved, fmt::format("{}.{}.", name(), holder.name), all_saved, present_tensors, holder.parameter,
                   holder.flat_size);
  // What is no field (LBFGS's `al`, as long as the history was) must not come from the present state when all of it is
  // replaced.
  std::unique_ptr<ParamState> state = present != nullptr && !all_saved ? present->clone() : kind_.make_state();
  kind_.visit_state(*state, maker);
  if (!maker.any()) {
    if (all_saved && present != nullptr && !kind_.state_from_start) prepared.then = Prepared::Then::kErase;
    return absl::OkStatus();
  }
  if (!maker.absent().empty()) {
    return absl::InvalidArgumentError(fmt::format(
        "entry '{}': the checkpoint lacks it, but holds other entries of the same optimizer state", maker.absent()));
  }
  prepared.then = Prepared::Then::kReplace;
  prepared.state = std::move(state);
  return absl::OkStatus();
}

absl::Status OptimizerSource::Prepare(const SavedEntries& saved) {
  prepared_.clear();
  if (absl::Status status = Bind(); !status.ok()) return status;
  const OptimizerKind* saved_kind = SavedKind(saved, name());
  if (saved_kind != nullptr && saved_kind != &kind_) {
    return absl::InvalidArgumentError(fmt::format("entry '{}.type': the checkpoint has '{}', the state '{}'", name(),
                                                  storage::PrintableText(saved_kind->type), kind_.type));
  }
  // Without the type, a part of the optimizer was chosen, and the rest is to stay.
  const bool all_saved = saved.contains(name() + ".type");
  std::vector<Prepared> prepared(holders_.size());
  for (size_t h = 0; h < holders_.size(); ++h) {
    if (absl::Status status = PrepareHolder(saved, all_saved, holders_[h], prepared[h]); !status.ok()) return status;
  }
  prepared_ = std::move(prepared);
  return absl::OkStatus();
}

void OptimizerSource::Install() {
  for (size_t h = 0; h < prepared_.size(); ++h) {
    switch (prepared_[h].then) {
      case Prepared::Then::kKeep:
        break;
      case Prepared::Then::kReplace:
        optimizer_.state()[holders_[h].key] = std::move(prepared_[h].state);
        break;
      case Prepared::Then::kErase:
        optimizer_.state().erase(holders_[h].key);
        break;
    }
  }
  prepared_.clear();
}

}  // namespace tidemark
