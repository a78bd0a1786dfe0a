// TorchState: a State that knows LibTorch's modules, optimizers, generators and tensors.
//
//   tidemark::TorchState state;
//   state.AddModule("model", *model);
//   state.AddOptimizer("optimizer", optimizer, *model);
//   state.AddGenerator("rng", at::detail::getDefaultCPUGenerator());
//   state.AddScheduler("scheduler", scheduler);
//   state.AddValue("epoch", &epoch);
//
// The names of the entries, for a module added as "model" with a parameter encoder.weight, and its Adam:
//
//   model.encoder.weight                  parameters and buffers, qualified as named_parameters() does
//   optimizer.type                        "Adam"; restoring into another type is an error that names both
//   optimizer.param_groups.0.params       the parameters' names, one to a line; a restore must find the same,
//                                         so one that renames parameters has to leave the optimizer out
//   optimizer.param_groups.0.lr           every option; betas.0 and betas.1; an absent optional is -1 or ""
//   optimizer.encoder.weight.exp_avg      what the optimizer keeps for each parameter, under the field's name
//   optimizer.lbfgs.old_dirs.0            LBFGS keeps one state for all parameters
//   scheduler.step_count                  of a learning rate scheduler; the rates are the optimizer's options
//
// Tensors: any strided tensor of any dtype, on any device. A view is stored with the values that it shows, in row-major
// order. Two entries that are the same view of the same storage are stored once. Views that overlap in part are each
// stored in full. An expanded tensor (stride 0) is stored with all of its repetitions. A restore into one needs equal
// repetitions in the checkpoint, else it is kFailedPrecondition; other tensors may have been written by then.
//   kUnimplemented     quantised, sparse, MKL-DNN, meta and nested tensors, and tensors whose own elements overlap in
//                      any other way. The message names the entry.
//   kInvalidArgument   an undefined tensor. The message names the entry.
//
// Overlapped staging: parameters and optimizer states are copied during the next forward and backward pass. They must
// not change before WaitUntilStaged has returned, so call it before optimizer.step(). The buffers of modules
// (BatchNorm's running_mean) change in the forward pass. They are therefore copied before Save returns, like values. If
// a buffer is on a device, Save waits for the work that was enqueued there before it. A tensor of AddTensor counts as a
// parameter: if the forward pass changes it, register it as a buffer, or call WaitUntilStaged before the forward pass.
//
// Devices: a save sees the work that was enqueued on each device's current stream of the thread that calls Save, and
// nothing that is enqueued later. Join work on other streams into the current one first. The copies run on a stream of
// their own from the device's pool. They go into host memory that LibTorch has page-locked, if its accelerator has such
// memory.
//
// Staging on the device: behind the same work, Save enqueues copies from device memory to device memory. It makes the
// current streams wait for them, and returns without waiting itself. So later work on those streams cannot change the
// copies, nor can work on streams that wait for those. Each device has one allocation for the copies, from LibTorch's
// allocator, which keeps the memory for the next save, or frees it when memory becomes scarce. If it has no memory, the
// save is as without staging on the device.
//
// Restoring into an optimizer that has not stepped yet makes its state. That becomes visible only when the restore has
// succeeded. In an optimizer that has stepped, tensors that fit are written in place, like the parameters, so that they
// need no memory twice. A restore that fails midway may therefore leave parts of the checkpoint in them. Options, step
// counts and tensors that do not fit are replaced only when the restore has succeeded.
//
// A generator's state in the checkpoint must be as long as that of the present generator, because different kinds of
// generators have different lengths. Otherwise, or if the generator refuses the bytes, the restore is kInvalidArgument
// and changes nothing.
//
// A TorchState keeps handles of the tensors of the last save or restore until the next one. Memory that the trainer
// releases in between is freed then.
//
// Thread-compatible. CopyToHost may also run on one other thread, while no other function runs.

#ifndef TIDEMARK_TORCH_H_
#define TIDEMARK_TORCH_H_

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tidemark/entry.h"
#include "tidemark/layouts.h"
#include "tidemark/snapshot.h"
#include "tidemark/state.h"
#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"
#include "torch/optim/schedulers/lr_scheduler.h"
#include "torch/serialize/archive.h"

// LibTorch 2 has it, 1.13 has not.
#if __has_include("torch/optim/schedulers/reduce_on_plateau_scheduler.h")
#include "torch/optim/schedulers/reduce_on_plateau_scheduler.h"
#define TIDEMARK_HAS_PLATEAU_SCHEDULER 1
#else
#define TIDEMARK_HAS_PLATEAU_SCHEDULER 0
#endif

namespace tidemark {

class TorchState : public State {
 public:
  TorchState();
  ~TorchState() override;

  // As in State: wrong arguments are remembered and returned by Save and Restore. Modules and optimizers are not owned.
  using State::AddBox;
  using State::AddTensor;
  using State::AddValue;

  // Adds the parameters and buffers of `module` and of all modules in it. They are looked up at every save and restore,
  // so modules may be changed in between. Undefined ones (a Linear without bias) are left out.
  void AddModule(std::string name, torch::nn::Module& module);

  // A module that gives parameters their names, and the prefix of these names; "": no prefix. The module is not owned.
  struct NamedModule {
    std::string name;
    const torch::nn::Module& module;
  };

  // Adds the state and options of `optimizer`: an SGD, Adam, AdamW, RMSprop, Adagrad or LBFGS. Each parameter needs a
  // name, under which its state is saved. Parameters of `module` have their names in it. A parameter outside of it must
  // be a tensor that AddTensor adds to this state, before or after this call. It has the name that AddTensor gives it.
  //
  // Several modules, each with a prefix, and a free tensor:
  //
  //   state.AddOptimizer("optimizer", optimizer, {{"actor", *actor}, {"critic", *critic}});
  //   state.AddTensor("log_alpha", log_alpha);
  //   state.AddOptimizer("alpha_optimizer", alpha_optimizer);
  //
  // Errors of Save and of the restore:
  //   kUnimplemented     The optimizer is of another class. See AddArchive.
  //   kInvalidArgument   A parameter has no name. The message says which one.
  void AddOptimizer(std::string name, torch::optim::Optimizer& optimizer, const torch::nn::Module& module);
  void AddOptimizer(std::string name, torch::optim::Optimizer& optimizer, std::vector<NamedModule> modules = {});

  // Adds the number of steps of a learning rate scheduler, so that StepLR decays at the right steps after a resume. Add
  // its optimizer too, which holds the rates. Fields of a scheduler class of your own need AddValue or AddObject. The
  // scheduler is not owned.
  void AddScheduler(std::string name, torch::optim::LRScheduler& scheduler);
#if TIDEMARK_HAS_PLATEAU_SCHEDULER
  // The same for the counters of a ReduceLROnPlateauScheduler and the best metric that it has seen.
  void AddScheduler(std::string name, torch::optim::ReduceLROnPlateauScheduler& scheduler);
#endif

  // Adds an object that has save(torch::serialize::OutputArchive&) and load(torch::serialize::InputArchive&), as one
  // entry of bytes; see AddObject for the order, the thread and the errors. The archive is made and kept in host
  // memory, so it suits small objects. For modules and LibTorch's optimizers use the functions above. The object is not
  // owned. kInternal: LibTorch threw an exception; kResourceExhausted: it ran out of memory.
  template <typename T>
  requires(!std::derived_from<T, torch::optim::Optimizer>) void AddArchive(std::string name, T& object) {
    AddArchive(
        std::move(name), [&object](torch::serialize::OutputArchive& archive) { object.save(archive); },
        [&object](torch::serialize::InputArchive& archive) { object.load(archive); });
  }
  // For an optimizer of a class of your own that overrides save and load. kFailedPrecondition: it has written nothing,
  // because the class does not override Optimizer::save.
  void AddArchive(std::string name, torch::optim::Optimizer& optimizer);
  // For an object that is saved and loaded by other functions.
  void AddArchive(std::string name, std::function<void(torch::serialize::OutputArchive&)> save,
                  std::function<void(torch::serialize::InputArchive&)> load);

  // Adds the state of a generator of any device.
  //
  // A module that is constructed draws its initial weights from the default generator. If that generator is saved, a
  // module constructed beside the training, for an evaluator, changes the numbers that the training draws next. The run
  // then differs from a resumed one. Construct such modules before the training begins, or put the generator's state
  // back.
  void AddGenerator(std::string name, at::Generator generator);

  // Adds a tensor; a restore writes into it. Shares ownership.
  void AddTensor(std::string name, at::Tensor tensor);

  // Of a job of several ranks (tidemark/ranks.h): says that `tensor` is the box at `offset` of a tensor of `shape`,
  // which the ranks hold together. It is a parameter of a module, or a tensor that AddTensor adds, before or after this
  // call. What an optimizer keeps for it in its shape is the same box. A restore fills the box from whatever boxes the
  // tensor was saved in, by any number of ranks. The last call for a tensor counts. Later it may move to other memory
  // or another device. Of a Linear whose output features are split over ranks, the weight is the box at {first feature,
  // 0} of a tensor of {all output features, input features}, and the bias the one at {first feature} of {all output
  // features}.
  //
  // Waits until an overlapped save has read the tensors. Errors of Save and of the restore, until ClearBoxes:
  //   kInvalidArgument   The tensor is undefined; it is no box of that shape; it has another shape by now; or the state
  //                      does not have it, for example because the module has a new parameter.
  //   kUnimplemented     The state has an LBFGS, which keeps one state for all parameters.
  void SetBox(const at::Tensor& tensor, std::vector<int64_t> shape, std::vector<int64_t> offset);
  // The same of a tensor that is several boxes of a larger tensor, such as a fused QKV. tidemark/layouts.h has the
  // layouts of tensor parallelism and of FSDP. Each box becomes an entry of its own, with the name of the tensor.
  //
  //   const tidemark::ShardRange out = tidemark::SplitEvenly(40, /*rank=*/1, /*world_size=*/3);
  //   torch::nn::Linear linear(10, out.count);
  //   state.SetBoxes(linear->weight, tidemark::ColumnParallel({40, 10}, out));
  //   state.SetBoxes(linear->bias, tidemark::ColumnParallel({40}, out));
  //
  // Errors: those of SetBox, and kInvalidArgument where the layout's boxes do not make up the tensor, or overlap.
  void SetBoxes(const at::Tensor& tensor, TensorLayout layout);
  // The same of a tensor of one dimension that has a range of the elements of several parameters, as under FSDP1. The
  // state then has entries of these parameters, and none of the tensor: in the tensor's name, what is behind the last
  // '.' is replaced by the parameter's. What an optimizer keeps for the tensor likewise becomes that of each parameter.
  // So ranks that shard the parameters, and a process that has them whole, restore from each other.
  //
  // Here rank 1 of 3 has 30 of the 88 elements of a Linear. A process that has it whole adds it as a module "model":
  //
  //   torch::Tensor flat = torch::zeros({30});
  //   state.AddTensor("model.flat", flat);
  //   state.SetFlatShard(flat, {.parameters = {{"weight", {8, 10}}, {"bias", {8}}}, .first = 30});
  //
  // Errors: those of SetBox, and
  //   kInvalidArgument   The tensor has not one dimension. There is no parameter; two have one name; one has no
  //                      dimension, or more than 2^61 elements. The tensor is tied to one that is not the same flat
  //                      shard. Of a restore: the checkpoint has the optimizer's state of some of the parameters only,
  //                      or different numbers of steps for them, and the tensor has one state for all.
  //
  // Two names for one parameter, which a whole model can have, cannot be restored from flat shards, which have one. The
  // optimizer's parameters must come in the same order where a checkpoint of whole parameters is restored, or made.
  void SetFlatShard(const at::Tensor& tensor, const FlatShard& shard);
  // AddTensor and SetBox.
  void AddBox(std::string name, at::Tensor tensor, std::vector<int64_t> shape, std::vector<int64_t> offset);
  // Forgets what SetBox, SetBoxes and SetFlatShard said, of all tensors. Waits as that does.
  void ClearBoxes();

  // Whether restores convert floating-point tensors that the checkpoint holds in another floating-point dtype than the
  // state. By default they do not: such a tensor is kInvalidArgument. Applies to all tensors of this class's functions,
  // the optimizers' too. Numbers are rounded as LibTorch does: to nearest, and to infinity if they are too large.
  void set_converts_dtypes(bool converts);

  // Sets the dtype in which saves store floating-point tensors whose names match one of these patterns ('*' any run of
  // characters, '?' one): kFloat16, kBfloat16, kFloat32 or kFloat64. Save returns kInvalidArgument for another dtype.
  // By default every tensor keeps its own dtype. A run that resumes from converted tensors is not bit for bit the
  // uninterrupted one. The last call counts; without patterns nothing is converted. A pattern may match no tensor yet,
  // because an optimizer makes its tensors in its first step. Tied tensors are stored as the first of them. Numbers are
  // rounded as LibTorch does: to nearest, halves to even, float64 to float32 before 16 bits, and to infinity if they
  // are too large. NaN stays NaN. Waits until an overlapped save has read the tensors.
  //
  // Consumers of the snapshot, such as evaluators, averages and Capture, get the converted numbers too. A restore into
  // the state's own dtypes needs set_converts_dtypes; without it, it is kInvalidArgument. `checkpoint-inspect tensors`
  // shows the stored dtypes. A conversion on a device takes memory there for one tensor at a time.
  void set_saved_dtype(std::vector<std::string> entries, Dtype dtype);

  // The protocol with AsyncCheckpointer; see State. Exceptions of LibTorch become kInternal, naming the entry or what
  // was being done.
  absl::Status Refresh() override;
  absl::Status BeginStaging() override;
  absl::StatusOr<std::unique_ptr<DeviceImage>> CopyOnDevice(std::span<const size_t> entries,
                                                            uint64_t bytes_max) override;
  std::shared_ptr<std::byte> AllocateStaging(uint64_t bytes) override;
  absl::Status CopyToHost(std::span<const CopyRequest> requests) override;
  absl::Status PrepareRestore(std::span<const EntrySpec> saved) override;
  absl::Status Receive(size_t entry, std::span<const std::byte> bytes) override;
  absl::Status FlushReceived() override;
  absl::Status FinishRestore() override;
  void AbandonRestore() override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Fills every parameter and buffer of `module` from the entries of `snapshot` that TorchState::AddModule gives its
// names to when it adds a module as `prefix`; "ema.model" for an average. For evaluators, which keep one module and
// load each snapshot into it.
//
// The module's tensors stay what and where they are: values are converted to their dtypes (between floating-point
// types, and from integers to those) and copied to their devices, with no trace for autograd. Tied tensors are written
// once.
//
// Strict. kInvalidArgument: one message that lists every tensor of the module which the snapshot lacks or has in
// another shape or in a dtype that does not convert (floating point to integer, complex to real), and every tensor of
// the snapshot under the prefix that the module lacks; nothing has been touched. What the module does not have is an
// error because it is most often another model; of a part of the model give the part's prefix. Values under the prefix
// are left out, for no module has any. kInternal, kResourceExhausted: LibTorch failed half-way; the message names the
// entry, and some tensors have been written.
//
// Thread-safe for different modules.
absl::Status LoadModule(const Snapshot& snapshot, std::string_view prefix, torch::nn::Module& module);

}  // namespace tidemark

#endif  // TIDEMARK_TORCH_H_
