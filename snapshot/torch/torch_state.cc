// The LibTorch edge is the files snapshot/torch_*; the parts of TorchState are split among them by subject.

#include <algorithm>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/ATen.h"
#include "absl/container/flat_hash_map.h"
#include "c10/core/InferenceMode.h"
#include "fmt/format.h"
#include "snapshot/glob.h"
#include "snapshot/torch/torch_boxes.h"
#include "snapshot/torch/torch_catalog.h"
#include "snapshot/torch/torch_copy.h"
#include "snapshot/torch/torch_device_image.h"
#include "snapshot/torch/torch_dtypes.h"
#include "snapshot/torch/torch_errors.h"
#include "snapshot/torch/torch_optimizer_source.h"
#include "snapshot/torch/torch_scheduler_source.h"
#include "snapshot/torch/torch_sources.h"
#include "tidemark/torch.h"

namespace tidemark {

struct TorchState::Impl {
  struct DeviceLess {
    bool operator()(c10::Device a, c10::Device b) const {
      return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index());
    }
  };

  TorchBoxes boxes;  // which the sources refer to
  std::vector<std::unique_ptr<TorchSource>> sources;
  std::vector<const TensorsSource*> tensors;  // those of `sources`
  TensorsSource* last_tensors = nullptr;      // sources.back(), if it is one of these
  TorchCatalog catalog;
  std::map<c10::Device, DeviceReader, DeviceLess> readers;
  std::vector<c10::Stream> written;  // with copies of received tensors that nobody has waited for
  bool converts_dtypes = false;
  absl::flat_hash_map<size_t, at::ScalarType> conversions;  // of this restore: by part, the checkpoint's dtype
  std::vector<at::Tensor> converted;                        // read by devices until FlushReceived
  std::vector<std::string> saved_patterns;                  // of tensors that saves convert
  at::ScalarType saved_type = at::ScalarType::Undefined;    // to this dtype
  absl::flat_hash_map<size_t, at::ScalarType> casts;        // of the last Refresh: by part, the dtype to be saved
  std::vector<TorchBoxes::Part> parts;                      // of the catalog, by derived entry; empty: each item is one
  bool preparing_restore = false;                           // Refresh describes the tensors as they are

  void Add(std::unique_ptr<TorchSource> source) {
    sources.push_back(std::move(source));
    last_tensors = nullptr;
  }

  // By the next Refresh, every tensor.
  void DescribeAnew(const State& state) {
    state.AwaitStaging();  // which reads the catalog
    ClearCatalog();
  }

  void ClearCatalog() {
    catalog.Clear();
    parts.clear();
  }

  // A part is what a derived entry has of the catalog: an item, or a box of the tensor of one.
  size_t part_count() const { return parts.empty() ? catalog.size() : parts.size(); }
  size_t ItemOf(size_t part) const { return parts.empty() ? part : parts[part].item; }
  // Undefined if it is a value.
  const at::Tensor& TensorOf(size_t part) const { return parts.empty() ? catalog.tensor(part) : parts[part].tensor; }

  // The sources report to the catalog, in the kind of walk that has begun.
  absl::Status Walk() {
    for (const auto& source : sources) {
      try {
        source->Walk(catalog);
      } catch (...) {
        catalog.Fail(StatusOfException(fmt::format("entry '{}'", source->name())));
      }
    }
    absl::Status status = catalog.End();
    if (!status.ok()) parts.clear();
    return status;
  }

  absl::Status Publish() {
    catalog.BeginPublish();
    return Walk();
  }

  absl::Status PutBoxes(std::vector<Entry>& entries) {
    parts.clear();
    if (boxes.empty()) return absl::OkStatus();
    for (const auto& source : sources) {
      if (!source->keeps_one_for_all()) continue;
      return absl::UnimplementedError(fmt::format(
          "optimizer '{}' keeps one state for all of its parameters, which cannot be saved while tensors of "
          "the state are parts of others (SetBox, SetBoxes, SetFlatShard)",
          source->name()));
    }
    const auto item = [&](size_t i) { return TorchBoxes::Item{catalog.tensor(i), catalog.use(i)}; };
    return CatchTorch("the boxes of tensors", [&] { return boxes.Put(item, &entries, &parts); });
  }

  // Notes each tensor that is saved in another dtype, and sets that dtype in `entries`.
  void PrepareCasts(std::span<Entry> entries) {
    casts.clear();
    if (preparing_restore || saved_patterns.empty()) return;
    for (size_t part = 0; part < entries.size(); ++part) {
      Entry& entry = entries[part];
      if (entry.spec.kind != EntryKind::kTensor || !at::isFloatingType(TensorOf(part).scalar_type())) continue;
      const std::string& name = entry.alias_of < 0 ? entry.spec.name : entries[entry.alias_of].spec.name;
      const bool wanted = std::any_of(saved_patterns.begin(), saved_patterns.end(),
                                      [&](const std::string& pattern) { return GlobMatches(pattern, name); });
      if (!wanted || TensorOf(part).scalar_type() == saved_type) continue;
      casts.emplace(part, saved_type);
      entry.spec.dtype = *ToDtype(saved_type);
      entry.bytes = static_cast<uint64_t>(TensorOf(part).numel()) * c10::elementSize(saved_type);
      entry.host = nullptr;
    }
  }

  // The dtype in which a tensor is saved.
  at::ScalarType SavedType(size_t part) const {
    const auto cast = casts.find(part);
    return cast == casts.end() ? TensorOf(part).scalar_type() : cast->second;
  }

  // Notes each tensor that the checkpoint holds in another floating-point dtype, and sets that dtype in `entries`.
  // Until the next Refresh `entries` describe the received tensors.
  void PrepareConversions(const SavedEntries& saved, std::span<Entry> entries) {
    for (size_t part = 0; part < entries.size(); ++part) {
      Entry& entry = entries[part];
      const auto found = saved.find(entry.spec.name);
      if (found == saved.end() || entry.spec.kind != EntryKind::kTensor) continue;
      const Dtype held = found->second->dtype;
      const auto held_type = ToScalarType(held);
      if (held == entry.spec.dtype || found->second->kind != EntryKind::kTensor || !held_type) continue;
      if (!at::isFloatingType(*held_type) || !at::isFloatingType(TensorOf(part).scalar_type())) continue;
      conversions.emplace(part, *held_type);
      entry.bytes = entry.bytes / GetDtypeInfo(entry.spec.dtype).element_bytes * GetDtypeInfo(held).element_bytes;
      entry.spec.dtype = held;
      entry.host = nullptr;
    }
  }

  // `bytes` as they go into the tensor of a part. Throws what LibTorch throws.
  std::span<const std::byte> Convert(size_t part, std::span<const std::byte> bytes) {
    const auto conversion = conversions.find(part);
    if (conversion == conversions.end()) return bytes;
    const at::Tensor& tensor = TensorOf(part);
    const c10::InferenceMode no_autograd;
    const at::Tensor held = at::from_blob(const_cast<std::byte*>(bytes.data()), tensor.sizes(),
                                          at::TensorOptions().dtype(conversion->second));
    converted.push_back(held.to(tensor.scalar_type()));
    return {static_cast<const std::byte*>(converted.back().data_ptr()), converted.back().nbytes()};
  }

  // The next Refresh describes the tensors anew: themselves, or as they are saved.
  void ForgetConversions() {
    if (!conversions.empty() || !saved_patterns.empty()) ClearCatalog();
    conversions.clear();
  }

  // The reader of a tensor's device; null for tensors in host memory. kFailedPrecondition before BeginStaging.
  absl::StatusOr<DeviceReader*> ReaderOf(const at::Tensor& tensor, std::string_view name) {
    if (tensor.is_cpu()) return nullptr;
    const auto reader = readers.find(tensor.device());
    if (reader == readers.end()) {
      return absl::FailedPreconditionError(fmt::format("entry '{}': copied before BeginStaging", name));
    }
    return &reader->second;
  }

  // Waits for what was enqueued even after a failure: the destinations belong to the caller.
  absl::Status WaitForReaders() {
    absl::Status status;
    for (auto& [device, reader] : readers) {
      status.Update(CatchTorch(fmt::format("copying from {}", device.str()), [&reader = reader] {
        reader.Wait();
        return absl::OkStatus();
      }));
    }
    return status;
  }
};

TorchState::TorchState() : impl_(std::make_unique<Impl>()) {}
TorchState::~TorchState() = default;

void TorchState::AddModule(std::string name, torch::nn::Module& module) {
  impl_->Add(std::make_unique<ModuleSource>(std::move(name), module, impl_->boxes));
}

void TorchState::AddOptimizer(std::string name, torch::optim::Optimizer& optimizer, const torch::nn::Module& module) {
  AddOptimizer(std::move(name), optimizer, {{"", module}});
}

void TorchState::AddOptimizer(std::string name, torch::optim::Optimizer& optimizer, std::vector<NamedModule> modules) {
  const OptimizerKind* kind = FindOptimizerKind(optimizer);
  if (kind == nullptr) {
    NoteError(absl::UnimplementedError(fmt::format(
        "optimizer '{}' is not one of SGD, Adam, AdamW, RMSprop, Adagrad and LBFGS; AddArchive saves one of "
        "another class that overrides save and load",
        name)));
    return;
  }
  impl_->Add(std::make_unique<OptimizerSource>(std::move(name), optimizer, std::move(modules), impl_->tensors, *kind,
                                               impl_->boxes));
}

void TorchState::AddGenerator(std::string name, at::Generator generator) {
  impl_->Add(std::make_unique<GeneratorSource>(std::move(name), std::move(generator)));
}

void TorchState::AddScheduler(std::string name, torch::optim::LRScheduler& scheduler) {
  impl_->Add(MakeSchedulerSource(std::move(name), scheduler));
}

#if TIDEMARK_HAS_PLATEAU_SCHEDULER
void TorchState::AddScheduler(std::string name, torch::optim::ReduceLROnPlateauScheduler& scheduler) {
  impl_->Add(MakeSchedulerSource(std::move(name), scheduler));
}
#endif

void TorchState::AddTensor(std::string name, at::Tensor tensor) {
  if (impl_->last_tensors == nullptr) {
    auto tensors = std::make_unique<TensorsSource>(impl_->boxes);
    TensorsSource* last = tensors.get();
    impl_->Add(std::move(tensors));
    impl_->last_tensors = last;
    impl_->tensors.push_back(last);
  }
  impl_->last_tensors->Add(name, std::move(tensor));
}

void TorchState::AddBox(std::string name, at::Tensor tensor, std::vector<int64_t> shape, std::vector<int64_t> offset) {
  SetBox(tensor, std::move(shape), std::move(offset));
  AddTensor(std::move(name), std::move(tensor));
}

void TorchState::SetBox(const at::Tensor& tensor, std::vector<int64_t> shape, std::vector<int64_t> offset) {
  impl_->DescribeAnew(*this);
  TensorLayout layout{.shape = std::move(shape), .boxes = {}};
  if (tensor.defined()) {
    layout.boxes.push_back(
        {.begin = std::vector<int64_t>(offset.size(), 0), .extent = tensor.sizes().vec(), .offset = std::move(offset)});
  }
  impl_->boxes.Set("SetBox", tensor, std::move(layout));
}

void TorchState::SetBoxes(const at::Tensor& tensor, TensorLayout layout) {
  impl_->DescribeAnew(*this);
  impl_->boxes.Set("SetBoxes", tensor, std::move(layout));
}

void TorchState::SetFlatShard(const at::Tensor& tensor, const FlatShard& shard) {
  impl_->DescribeAnew(*this);
  impl_->boxes.SetFlat("SetFlatShard", tensor, shard);
}

void TorchState::ClearBoxes() {
  impl_->DescribeAnew(*this);
  impl_->boxes.Clear();
}

void TorchState::set_converts_dtypes(bool converts) { impl_->converts_dtypes = converts; }

void TorchState::set_saved_dtype(std::vector<std::string> entries, Dtype dtype) {
  if (dtype != Dtype::kFloat16 && dtype != Dtype::kBfloat16 && dtype != Dtype::kFloat32 && dtype != Dtype::kFloat64) {
    NoteError(absl::InvalidArgumentError(fmt::format(
        "set_saved_dtype: expected float16, bfloat16, float32 or float64, found {}", GetDtypeInfo(dtype).name)));
    return;
  }
  impl_->DescribeAnew(*this);
  impl_->saved_patterns = std::move(entries);
  impl_->saved_type = *ToScalarType(dtype);
}

absl::Status TorchState::Refresh() {
  impl_->catalog.BeginCapture();
  if (absl::Status status = impl_->Walk(); !status.ok()) {
    SetDerivedEntries({});
    return status;
  }
  if (impl_->catalog.changed()) {
    std::vector<Entry> found = impl_->catalog.Entries();
    if (absl::Status status = impl_->PutBoxes(found); !status.ok()) {
      impl_->ClearCatalog();
      SetDerivedEntries({});
      return status;
    }
    impl_->PrepareCasts(found);
    const size_t begin = derived_begin();
    const auto same = [&](size_t i) {
      const Entry& known = entries()[begin + i];
      const auto in_entries = [begin](int64_t index) { return index < 0 ? -1 : index + static_cast<int64_t>(begin); };
      // Who copies an entry, and when, is part of the structure too: plans are made for it.
      return known.spec == found[i].spec && known.alias_of == in_entries(found[i].alias_of) &&
             known.staged_with == in_entries(found[i].staged_with) && known.changes_early == found[i].changes_early &&
             (known.host == nullptr) == (found[i].host == nullptr);
    };
    bool all_same = entries().size() - begin == found.size();
    for (size_t i = 0; all_same && i < found.size(); ++i) all_same = same(i);
    if (all_same) {
      for (size_t i = 0; i < found.size(); ++i) mutable_entries()[begin + i].host = found[i].host;
    } else {
      SetDerivedEntries(std::move(found));
    }
  }
  return State::Refresh();
}

absl::Status TorchState::BeginStaging() {
  for (const c10::Device device : impl_->catalog.devices()) {
    const absl::Status status = CatchTorch(fmt::format("staging from {}", device.str()), [&] {
      impl_->readers.try_emplace(device, device).first->second.Mark();
      return absl::OkStatus();
    });
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<State::DeviceImage>> TorchState::CopyOnDevice(std::span<const size_t> entries,
                                                                             uint64_t bytes_max) {
  // Only tensors that are out of order in host memory: a second copy of them there would gain nothing.
  if (impl_->catalog.devices().empty()) return nullptr;
  std::vector<TorchDeviceImage::Source> sources;
  sources.reserve(entries.size());
  for (const size_t index : entries) {
    const Entry& entry = this->entries()[index];
    if (entry.host != nullptr) {
      return absl::InternalError(fmt::format("entry '{}' is in host memory and needs no copy", entry.spec.name));
    }
    const size_t part = index - derived_begin();
    const at::Tensor& tensor = impl_->TensorOf(part);
    const absl::StatusOr<DeviceReader*> reader = impl_->ReaderOf(tensor, entry.spec.name);
    if (!reader.ok()) return reader.status();
    sources.push_back({.entry = index, .tensor = tensor, .type = impl_->SavedType(part), .reader = *reader});
  }
  try {
    return TorchDeviceImage::Make(sources, bytes_max);
  } catch (...) {
    return StatusOfException("copying on the device");
  }
}

std::shared_ptr<std::byte> TorchState::AllocateStaging(uint64_t bytes) {
  if (impl_->catalog.devices().empty()) return nullptr;
  return AllocatePageLocked(bytes);
}

absl::Status TorchState::CopyToHost(std::span<const CopyRequest> requests) {
  absl::Status status;
  std::vector<CopyRequest> own;
  for (const CopyRequest& request : requests) {
    const Entry& entry = entries()[request.entry];
    if (entry.host != nullptr) {
      std::memcpy(request.destination, entry.host, entry.bytes);
      continue;
    }
    if (request.entry < derived_begin()) {
      own.push_back(request);
      continue;
    }
    try {
      const size_t part = request.entry - derived_begin();
      const at::Tensor& tensor = impl_->TensorOf(part);
      const absl::StatusOr<DeviceReader*> reader = impl_->ReaderOf(tensor, entry.spec.name);
      if (!reader.ok()) {
        status = reader.status();
      } else if (*reader != nullptr) {
        (*reader)->Enqueue(tensor, impl_->SavedType(part), request.destination);
      } else {
        EnqueueCopyToHost(tensor, impl_->SavedType(part), request.destination);
      }
    } catch (...) {
      status = StatusOfException(fmt::format("entry '{}'", entry.spec.name));
    }
    if (!status.ok()) break;
  }
  status.Update(impl_->WaitForReaders());
  if (status.ok() && !own.empty()) status = State::CopyToHost(own);
  return status;
}

absl::Status TorchState::PrepareRestore(std::span<const EntrySpec> saved) {
  SavedEntries by_name;
  by_name.reserve(saved.size());
  for (const EntrySpec& spec : saved) by_name.emplace(spec.name, &spec);
  absl::Status status;
  for (const auto& source : impl_->sources) {
    status.Update(CatchTorch(fmt::format("preparing '{}'", source->name()), [&] { return source->Prepare(by_name); }));
  }
  impl_->catalog.ForgetReceived();
  impl_->ForgetConversions();
  // Refreshes, and the sources then report what they have prepared.
  impl_->preparing_restore = true;
  if (status.ok()) status = State::PrepareRestore(saved);
  impl_->preparing_restore = false;
  if (!status.ok()) {
    AbandonRestore();
  } else if (impl_->converts_dtypes) {
    impl_->PrepareConversions(by_name, std::span(mutable_entries()).subspan(derived_begin()));
  }
  return status;
}

absl::Status TorchState::Receive(size_t entry, std::span<const std::byte> bytes) {
  if (entry < derived_begin()) return State::Receive(entry, bytes);
  const size_t part = entry - derived_begin();
  if (part >= impl_->part_count()) {
    return absl::FailedPreconditionError(fmt::format("entry {} arrived outside of a restore", entry));
  }
  const at::Tensor& tensor = impl_->TensorOf(part);
  const std::string& name = entries()[entry].spec.name;
  if (!tensor.defined()) return impl_->catalog.Receive(impl_->ItemOf(part), bytes);
  if (bytes.size() != entries()[entry].bytes) {
    return absl::InternalError(
        fmt::format("entry '{}': {} bytes arrived for a tensor of {}", name, bytes.size(), entries()[entry].bytes));
  }
  return CatchTorch(fmt::format("entry '{}'", name), [&] {
    if (!tensor.is_cpu()) {
      const c10::Stream stream = c10::impl::VirtualGuardImpl(tensor.device().type()).getStream(tensor.device());
      if (std::find(impl_->written.begin(), impl_->written.end(), stream) == impl_->written.end()) {
        impl_->written.push_back(stream);
      }
    }
    return WriteTensor(name, tensor, impl_->Convert(part, bytes));
  });
}

absl::Status TorchState::FlushReceived() {
  absl::Status status;
  for (const c10::Stream& stream : std::exchange(impl_->written, {})) {
    status.Update(CatchTorch(fmt::format("writing to {}", stream.device().str()), [&] {
      c10::impl::VirtualGuardImpl(stream.device_type()).synchronizeStream(stream);
      return absl::OkStatus();
    }));
  }
  impl_->converted.clear();
  return status;
}

absl::Status TorchState::FinishRestore() {
  // The trainer's objects first: they may fail.
  absl::Status status = State::FinishRestore();
  if (status.ok()) status = impl_->Publish();
  if (!status.ok()) return status;
  return CatchTorch("finishing the restore", [&] {
    for (const auto& source : impl_->sources) source->Install();
    impl_->catalog.BumpVersions();
    impl_->catalog.ForgetReceived();
    impl_->ForgetConversions();
    return absl::OkStatus();
  });
}

void TorchState::AbandonRestore() {
  for (const auto& source : impl_->sources) source->Forget();
  // Releases the tensors that Prepare made. entries() still names them, until the next Refresh.
  impl_->ClearCatalog();
  impl_->ForgetConversions();
  State::AbandonRestore();
}

}  // namespace tidemark
