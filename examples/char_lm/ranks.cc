// Trains the model of char_lm on several processes at once: each computes the gradient of a part of the batch, and they
// add them up (c10d over Gloo). They save common steps, in which every tensor is written by one of them. Any of them
// can be killed at any moment. Then the others end too, and all are started again, as many as there are by then: they
// go on from the latest committed step.
//
// Train() is the part to copy, and what is above it is how this job divides its work. The places where a job of several
// processes says something to Tidemark are marked.

#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn.h>
#include <torch/optim/adamw.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "examples/char_lm/model.h"
#include "examples/char_lm/schedule.h"
#include "examples/char_lm/text.h"
#include "examples/char_lm/training_flags.h"
#include "examples/char_lm/training_log.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/layouts.h"
#include "tidemark/torch.h"
#include "tidemark/torch_ranks.h"

namespace char_lm {
namespace {

struct Flags : TrainingFlags {
  std::string rendezvous;
  int32_t rank = 0;
  int32_t world = 1;
  bool tensor_parallel = false;
};

// A client of the store in which the processes find each other. With a number of clients, c10d would remove the file
// when so many are gone, while others still read it.
c10::intrusive_ptr<c10d::Store> OpenStore(const Flags& flags) {
  return c10::make_intrusive<c10d::FileStore>(flags.rendezvous, -1);
}

// The processes of the job, which add up tensors.
class Job {
 public:
  explicit Job(const Flags& flags) {
    auto options = c10d::ProcessGroupGloo::Options::create(/*timeout=*/std::chrono::seconds(60));
    options->devices = {c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")};
    const auto store = OpenStore(flags);
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>("gloo", store),
                                                         flags.rank, flags.world, options);
  }

  // Each tensor becomes the sum of those of all ranks. Throws if another one is gone.
  void Add(std::vector<torch::Tensor> tensors) {
    for (torch::Tensor& tensor : tensors) {
      std::vector<torch::Tensor> one = {tensor};
      group_->allreduce(one)->wait();
    }
  }

 private:
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
};

// The same tensor; its gradient becomes the sum of those of all ranks.
struct AddGradients : torch::autograd::Function<AddGradients> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x, Job* job) {
    context->saved_data["job"] = reinterpret_cast<int64_t>(job);
    return x.view_as(x);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    torch::Tensor sum = gradients[0].contiguous().clone();
    reinterpret_cast<Job*>(context->saved_data["job"].toInt())->Add({sum});
    return {sum, torch::Tensor()};
  }
};

// The sum of the tensors of all ranks; each has its gradient.
struct AddTensors : torch::autograd::Function<AddTensors> {
  static torch::Tensor forward(torch::autograd::AutogradContext*, const torch::Tensor& x, Job* job) {
    torch::Tensor sum = x.contiguous().clone();
    job->Add({sum});
    return sum;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list gradients) {
    return {gradients[0], torch::Tensor()};
  }
};

// This rank's part of a larger tensor.
struct PartOfTensor {
  torch::Tensor tensor;
  tidemark::TensorLayout layout;
};

// This rank's part of a Linear, with the weights that the whole one has at its beginning. Split by output features,
// each rank computes some of them; by input features, each computes a summand.
class PartOfLinearImpl : public torch::nn::Module {
 public:
  enum class Split { kOutput, kInput };

  PartOfLinearImpl(int64_t in, int64_t out, Split split, const Flags& flags, Job& job, std::vector<PartOfTensor>& parts)
      : split_(split), job_(job) {
    const torch::nn::Linear whole(in, out);
    const int64_t dimension = split == Split::kOutput ? 0 : 1;
    const int64_t size = split == Split::kOutput ? out : in;
    const tidemark::ShardRange range = tidemark::SplitEvenly(size, flags.rank, flags.world);
    const torch::NoGradGuard no_grad;
    weight_ = register_parameter("weight", whole->weight.narrow(dimension, range.first, range.count).clone());
    if (split == Split::kInput) {
      bias_ = register_parameter("bias", whole->bias.clone());
      parts.push_back({weight_, tidemark::RowParallel({out, in}, range)});
    } else {
      bias_ = register_parameter("bias", whole->bias.narrow(0, range.first, range.count).clone());
      parts.push_back({weight_, tidemark::ColumnParallel({out, in}, range)});
      parts.push_back({bias_, tidemark::ColumnParallel({out}, range)});
    }
  }

  torch::Tensor forward(const torch::Tensor& x) {
    namespace functional = torch::nn::functional;
    if (split_ == Split::kOutput) return functional::linear(AddGradients::apply(x, &job_), weight_, bias_);
    return AddTensors::apply(functional::linear(x, weight_), &job_) + bias_;
  }

 private:
  const Split split_;
  Job& job_;
  torch::Tensor weight_;
  torch::Tensor bias_;
};
TORCH_MODULE(PartOfLinear);

// Computes the gradient of a batch, or of this rank's part of it if the job is data-parallel, and takes one step of the
// optimizer. Returns the loss of the whole batch. The batch is drawn from the step, and the dropout from the step and,
// where ranks have other parts of the batch, the rank. So no state of a generator has to be saved.
double TrainStep(const Text& text, const Flags& flags, int64_t step, double learning_rate, Job& job,
                 CharTransformer& model, torch::optim::AdamW& optimizer) {
  for (auto& group : optimizer.param_groups()) group.options().set_lr(learning_rate);
  const uint64_t seed = flags.seed + static_cast<uint64_t>(step);
  torch::manual_seed(seed);
  const Batch batch = text.Draw(flags.batch, flags.model.context);
  const int64_t first = flags.tensor_parallel ? 0 : flags.batch * flags.rank / flags.world;
  const int64_t end = flags.tensor_parallel ? flags.batch : flags.batch * (flags.rank + 1) / flags.world;
  const auto world = static_cast<uint64_t>(flags.world);
  torch::manual_seed(flags.tensor_parallel ? seed : seed * world + static_cast<uint64_t>(flags.rank));
  const torch::Tensor logits = model->forward(batch.input.slice(0, first, end));
  const torch::Tensor target = batch.target.slice(0, first, end);
  const torch::Tensor sum = torch::nn::functional::cross_entropy(
      logits.flatten(0, 1), target.flatten(), torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum));
  torch::Tensor loss = sum / static_cast<double>(batch.target.numel());
  optimizer.zero_grad();
  loss.backward();
  torch::Tensor loss_of_all = loss.detach();
  if (!flags.tensor_parallel) {
    std::vector<torch::Tensor> parts = {loss_of_all};
    for (const torch::Tensor& parameter : model->parameters()) parts.push_back(parameter.grad());
    job.Add(parts);
  }
  optimizer.step();
  return loss_of_all.item<double>();
}

// What a rank has been told is committed must be there after any crash.
class SayCommitted final : public tidemark::CheckpointObserver {
 public:
  explicit SayCommitted(int32_t rank) : rank_(rank) {}
  void Committed(const tidemark::StepInfo& info) override {
    fmt::print("rank {}: step {} is committed\n", rank_, info.step);
    std::fflush(stdout);
  }

 private:
  const int32_t rank_;
};

absl::Status Train(const Flags& flags) {
  // Rank 0 tells what all have computed.
  TrainingLog log(flags.quiet || flags.rank != 0);
  if (!flags.loss_log.empty() && flags.rank == 0) {
    if (absl::Status opened = log.OpenLossFile(flags.loss_log); !opened.ok()) return opened;
  }
  absl::StatusOr<Text> text = Text::Read(flags.text, TextPart::kTraining, /*length_min=*/flags.model.context + 1);
  if (!text.ok()) return text.status();
  at::set_num_threads(1);
  torch::manual_seed(flags.seed);  // the same model on all ranks
  Job job(flags);
  std::vector<PartOfTensor> parts;
  ModelConfig config = flags.model;
  if (flags.tensor_parallel) {
    config.make_mlp = [&](const ModelConfig& of) {
      using Split = PartOfLinearImpl::Split;
      return torch::nn::Sequential(
          PartOfLinear(of.width, 4 * of.width, Split::kOutput, flags, job, parts), torch::nn::GELU(),
          PartOfLinear(4 * of.width, of.width, Split::kInput, flags, job, parts), torch::nn::Dropout(of.dropout));
    };
  }
  config.vocabulary = static_cast<int64_t>(text->vocabulary().size());
  CharTransformer model(config);
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions().weight_decay(0.1));
  const Schedule schedule{.steps = flags.steps};
  std::string vocabulary = text->vocabulary();
  int64_t characters_seen = 0;

  // 1. Every rank opens the store, and says which one it is, how the ranks tell each other something, and what they
  // have alike, which is everything here but parts of tensors. The all-gather has a client of the c10d::Store of its
  // own.
  auto checkpointer = tidemark::AsyncCheckpointer::Open({
      .directory = flags.store,
      .ranks =
          {.rank = flags.rank,
           .world_size = flags.world,
           .all_gather = tidemark::GatherOverStore(OpenStore(flags), "tidemark", flags.rank, flags.world,
                                                   /*timeout=*/absl::Minutes(1)),
           .replicated = {"*"},
           // Short, since all ranks are on one machine here. For this time the others wait for one that was killed.
           .vote_timeout = absl::Seconds(3),
           .outcome_margin = absl::Seconds(3)},
      .save_interval_steps = flags.save_every,
      .save_on_steps = {flags.steps - 1},
      .observer = flags.quiet ? nullptr : std::make_shared<SayCommitted>(flags.rank),
  });
  if (!checkpointer.ok()) return checkpointer.status();

  tidemark::TorchState state;
  state.AddModule("model", *model);
  state.AddOptimizer("optimizer", optimizer, *model);
  state.AddValue("vocabulary", &vocabulary);
  state.AddValue("characters_seen", &characters_seen);

  // 2. Where a tensor is a part of a larger one, it says which part. The optimizer's tensors for it follow.
  for (PartOfTensor& part : parts) state.SetBoxes(part.tensor, std::move(part.layout));

  // They go on where the last run was stopped, all from the same step, or none with an error.
  const absl::StatusOr<int64_t> first_step = (*checkpointer)->Resume(state);
  if (!first_step.ok()) return first_step.status();
  if (vocabulary != text->vocabulary()) {
    return absl::FailedPreconditionError(
        fmt::format("{} was trained on a text of other characters than {}", flags.store, flags.text));
  }
  log.Say(fmt::format("{} ranks, {} parameters; {}", flags.world, model->ParameterCount(),
                      *first_step > 0 ? fmt::format("resuming after step {}", *first_step - 1) : "starting afresh"));

  for (int64_t step = *first_step; step < flags.steps; ++step) {
    const double learning_rate = schedule.LearningRate(step);
    const double loss = TrainStep(*text, flags, step, learning_rate, job, model, optimizer);
    characters_seen += flags.batch * flags.model.context;
    if (absl::Status logged = log.Step(step, loss, learning_rate, flags.batch * flags.model.context); !logged.ok()) {
      return logged;
    }

    // 3. All ranks save. Each copies and writes a part, and tells the others nothing here: what becomes of the step is
    // decided behind the next ones.
    if ((*checkpointer)->ShouldSave(step)) {
      const absl::Time before = absl::Now();
      auto save = (*checkpointer)->Save(step, state, {.metrics = {{"loss", loss}, {"learning_rate", learning_rate}}});
      if (!save.ok()) return save.status();
      log.Saved(step, absl::Now() - before);
    }
  }
  log.SayPace();

  // Close waits until the last save is committed by all ranks, or says why it is not.
  absl::Status closed = (*checkpointer)->Close();
  if (closed.ok()) log.Say("done; every save is committed");
  return closed;
}

void AddFlags(CLI::App& app, Flags& flags) {
  AddTrainingFlags(app, flags);
  app.add_option("--rank", flags.rank, "Of this process, from 0; rank 0 writes the --loss-log")
      ->check(CLI::NonNegativeNumber)
      ->required();
  app.add_option("--world", flags.world, "How many processes there are; without --tensor-parallel at most --batch")
      ->check(CLI::PositiveNumber)
      ->required();
  app.add_option("--rendezvous", flags.rendezvous,
                 "A file by which the processes find each other; another name at each start of the job")
      ->required();
  app.add_flag("--tensor-parallel", flags.tensor_parallel, "Split the MLPs over the processes, and not the batch");
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Trains the model of char_lm on several processes, checkpointed by Tidemark. Start all ranks together.");
  AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  std::string problem = ProblemOf(flags);
  if (flags.rank >= flags.world) {
    problem = fmt::format("--rank {} is none of {} ranks", flags.rank, flags.world);
  } else if (flags.batch < flags.world && !flags.tensor_parallel) {
    problem = fmt::format("--batch {} is less than --world {}", flags.batch, flags.world);
  }
  if (!problem.empty()) {
    fmt::print(stderr, "char_lm_ranks: {}\n", problem);
    return 2;
  }
  try {
    const absl::Status trained = Train(flags);
    if (trained.ok()) return 0;
    fmt::print(stderr, "char_lm_ranks: rank {}: {}\n", flags.rank, trained.ToString());
  } catch (const std::exception& error) {  // LibTorch's and Gloo's: another rank is gone
    fmt::print(stderr, "char_lm_ranks: rank {}: {}\n", flags.rank, error.what());
  }
  return 1;
}

}  // namespace
}  // namespace char_lm

int main(int argc, char** argv) { return char_lm::Main(argc, argv); }
