// What a restore does to an optimizer: the part of OptimizerSource that makes states for what the checkpoint holds.

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/container/flat_hash_map.h"
#include "c10/core/InferenceMode.h"
#include "fmt/format.h"
#include "snapshot/torch/torch_dtypes.h"
#include "snapshot/torch/torch_optimizer_source.h"
#include "storage/io/printable_text.h"

namespace tidemark {
namespace {

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
  // used again; others begin as zeros if they have padding, which no restore sets.
  StateMaker(const SavedEntries& saved, std::string prefix, bool all_saved, const FieldTensors& present,
             const at::Tensor& parameter, int64_t flat_size, bool has_padding)
      : saved_(saved),
        prefix_(std::move(prefix)),
        all_saved_(all_saved),
        present_(present),
        parameter_(parameter),
        flat_size_(flat_size),
        has_padding_(has_padding) {}

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
        tensor = has_padding_ ? at::zeros_like(parameter_) : at::empty_like(parameter_);
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
  const bool has_padding_;
  bool any_ = false;
  std::string absent_;
  std::optional<size_t> sequence_length_;
};

// Collects the names of fields.
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

// A flat shard has one state for all of its parameters.
absl::Status OptimizerSource::CheckAllSavedAlike(const SavedEntries& saved, const Holder& holder) const {
  if (holder.other_names.empty()) return absl::OkStatus();
  std::vector<std::string> fields;
  FieldNames visitor(fields);
  kind_.visit_state(*kind_.make_state(), visitor);
  for (const std::string& field : fields) {
    const bool first_has_it = saved.contains(fmt::format("{}.{}.{}", name(), holder.name, field));
    for (const std::string& other : holder.other_names) {
      const bool has_it = saved.contains(fmt::format("{}.{}.{}", name(), other, field));
      if (has_it == first_has_it) continue;
      return absl::InvalidArgumentError(
          fmt::format("entry '{}.{}.{}': the checkpoint lacks it, but has that of '{}', and both are of one flat shard",
                      name(), has_it ? holder.name : other, field, has_it ? other : holder.name));
    }
  }
  return absl::OkStatus();
}

absl::Status OptimizerSource::PrepareHolder(const SavedEntries& saved, bool all_saved, const Holder& holder,
                                            Prepared& prepared) {
  if (absl::Status status = CheckAllSavedAlike(saved, holder); !status.ok()) return status;
  ParamState* present = Present(holder);
  FieldTensors present_tensors;
  if (present != nullptr) kind_.visit_state(*present, present_tensors);
  StateMaker maker(saved, fmt::format("{}.{}.", name(), holder.name), all_saved, present_tensors, holder.parameter,
                   holder.flat_size, holder.is_flat);
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
