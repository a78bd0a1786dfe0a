#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "fmt/format.h"
#include "storage/io/file_system.h"
#include "storage/io/link_free_path.h"
#include "storage/shard/write/shard_writer.h"
#include "storage/store/store.h"
#include "tools/checkpoint_inspect/checks/store_owner.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/cli/progress_line.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/exchange/file_metadata.h"
#include "tools/checkpoint_inspect/exchange/safetensors.h"
#include "tools/checkpoint_inspect/exchange/torch_save.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/text.h"
#include "tools/checkpoint_inspect/tensors/tensor_feed.h"

namespace tidemark::inspect {
namespace {

struct ImportArguments {
  std::vector<std::string> files;
  int64_t step = 0;
  Metrics metrics;
  std::string user_metadata;  // empty: what the files say
  bool create = false;
};

// An error that is to be told, and its exit code.
struct Failure {
  absl::Status status;
  ExitCode code = ExitCode::kFailure;
};

// What the files hold, and what the step gets of it.
struct Opened {
  std::vector<std::unique_ptr<TensorSource>> files;
  FileMetadata metadata;
  Metrics metrics;
  std::string user_metadata;
  std::vector<std::string> notes;  // for people

  std::vector<const TensorSource*> sources() const {
    std::vector<const TensorSource*> all;
    for (const auto& file : files) all.push_back(file.get());
    for (const auto& values : metadata.values()) all.push_back(values.get());
    return all;
  }
};

absl::Status CheckEntry(const EntrySpec& spec, const std::string& file) {
  uint64_t bytes = 0;
  const absl::Status status = ValidateEntry(spec, &bytes);
  return status.ok() ? status : absl::Status(status.code(), fmt::format("{}: {}", file, std::string(status.message())));
}

// Every name once, and every tie to a tensor.
absl::Status CheckEntries(const Opened& opened) {
  struct Holder {
    std::string_view file;
    const EntrySpec* tensor = nullptr;  // null: it is none
  };
  absl::flat_hash_map<std::string_view, Holder> held_by;
  const auto hold = [&](std::string_view name, const Holder& holder) {
    const auto [other, is_new] = held_by.try_emplace(name, holder);
    if (is_new) return absl::OkStatus();
    return absl::InvalidArgumentError(
        fmt::format("'{}' is in {} and in {}", Escape(name), other->second.file, holder.file));
  };
  for (const TensorSource* source : opened.sources()) {
    for (const StoredEntry& entry : source->entries()) {
      absl::Status status = CheckEntry(entry.spec, source->name());
      const bool is_tensor = entry.spec.kind == EntryKind::kTensor;
      status.Update(hold(entry.spec.name, {.file = source->name(), .tensor = is_tensor ? &entry.spec : nullptr}));
      if (!status.ok()) return status;
    }
  }
  for (const FileMetadata::Tie& tie : opened.metadata.ties()) {
    const auto target = held_by.find(tie.tied_to);
    if (target == held_by.end() || target->second.tensor == nullptr) {
      return absl::DataLossError(fmt::format("{}: '{}' is tied to '{}', which is not a tensor in the files", tie.file,
                                             Shorten(Escape(tie.name), 200), Shorten(Escape(tie.tied_to), 200)));
    }
    EntrySpec spec = *target->second.tensor;
    spec.name = tie.name;
    absl::Status status = CheckEntry(spec, tie.file);
    status.Update(hold(tie.name, {.file = tie.file}));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<Opened> OpenFiles(const ImportArguments& arguments) {
  Opened opened{.metadata = FileMetadata(/*with_step=*/arguments.user_metadata.empty()),
                .user_metadata = arguments.user_metadata};
  std::vector<std::string> names;
  for (const std::string& file : arguments.files) {
    const absl::StatusOr<bool> is_torch = IsTorchSave(file);
    if (!is_torch.ok()) return is_torch.status();
    std::string left_out;
    absl::StatusOr<std::unique_ptr<TensorSource>> source =
        *is_torch ? OpenTorchSave(file, &opened.metadata, &left_out) : OpenSafetensors(file, &opened.metadata);
    if (!source.ok()) return source.status();
    if (!left_out.empty()) opened.notes.push_back(std::move(left_out));
    opened.files.push_back(*std::move(source));
    names.push_back(std::filesystem::path(file).filename().string());
  }
  if (absl::Status status = CheckEntries(opened); !status.ok()) return status;
  if (opened.user_metadata.empty()) {
    absl::StatusOr<std::string> said = opened.metadata.UserMetadata(names);
    if (!said.ok()) return said.status();
    opened.user_metadata = *std::move(said);
  }
  opened.metrics = arguments.metrics;
  opened.metrics.insert(opened.metadata.metrics().begin(), opened.metadata.metrics().end());
  return opened;
}

// Whether there is a store, and the step in it is free. A reader takes no lock, so it can say so beside a trainer.
Failure CheckStore(const std::string& directory, const ImportArguments& arguments) {
  const absl::StatusOr<std::unique_ptr<StoreReader>> reader = OpenStore(directory, /*untrusted=*/false);
  if (absl::IsNotFound(reader.status()) && arguments.create) return {};
  if (!reader.ok()) {
    const bool lacks = absl::IsNotFound(reader.status());
    return {lacks ? absl::NotFoundError(fmt::format("{}; --create creates one", std::string(reader.status().message())))
                  : reader.status(),
            OpenExitCode(reader.status())};
  }
  if (const absl::Status owner = CheckOwner(directory); !owner.ok()) return {owner, ExitCode::kFailure};
  const absl::StatusOr<StepInfo> info = (*reader)->FindStep(arguments.step);
  if (!info.ok() || !HasFiles(*info)) return {};
  return {absl::AlreadyExistsError(fmt::format("{} already has a step {}, which is {}", directory, arguments.step,
                                               StepStateName(info->state))),
          ExitCode::kFailure};
}

// Larger for more bytes, so that what is kept of each chunk stays small beside the chunks in work.
uint32_t ChunkBytesFor(uint64_t bytes) {
  constexpr uint64_t kChunksMax = uint64_t{1} << 18;
  uint32_t chunk_bytes = 1 << 20;
  while (bytes / chunk_bytes > kChunksMax && chunk_bytes < storage::kChunkBytesMax) chunk_bytes *= 2;
  return chunk_bytes;
}

// All but what the written shard says.
storage::StepRecord MakeRecord(const storage::ShardIdentity& identity, const storage::ShardContents& contents) {
  storage::StepRecord record;
  StepInfo& info = record.info;
  info.step = identity.step;
  info.attempt = storage::ToHex(identity.attempt.bytes);
  info.sequence = identity.sequence;
  info.created = absl::FromUnixNanos(contents.created_unix_ns);
  info.world_size = identity.world_size;
  info.metrics = contents.metrics;
  info.user_metadata = contents.user_metadata;
  return record;
}

// Adds what is tied to tensors that are there. Precondition: CheckEntries.
void AddTies(const std::vector<FileMetadata::Tie>& ties, storage::ShardContents* contents) {
  std::map<std::string, int64_t> numbers;
  for (size_t i = 0; i < contents->entries.size() && !ties.empty(); ++i) {
    numbers.emplace(contents->entries[i].spec.name, static_cast<int64_t>(i));
  }
  for (const FileMetadata::Tie& tie : ties) {
    const int64_t number = numbers.at(tie.tied_to);
    EntrySpec spec = contents->entries[static_cast<size_t>(number)].spec;
    spec.name = tie.name;
    contents->entries.push_back({.spec = std::move(spec), .alias_of = number});
  }
}

// `written` is asked between chunks, on this thread.
absl::StatusOr<StepInfo> WriteStep(storage::Store& store, int64_t step, const Opened& opened, TensorFeed& feed,
                                   absl::Time now, const std::function<void()>& written) {
  constexpr int kCodecThreadsMax = 4;  // of which each has chunks in work
  storage::FileSystem& files = storage::PosixFileSystem();
  auto writer = storage::ShardWriter::Create(
      files, {.policy = storage::CodecPolicy::kSpace,
              .chunk_bytes = ChunkBytesFor(feed.bytes_total()),
              .codec_threads = std::clamp(static_cast<int>(std::thread::hardware_concurrency()), 1, kCodecThreadsMax)});
  if (!writer.ok()) return writer.status();
  storage::ShardContents contents;
  feed.Attach(&contents);
  AddTies(opened.metadata.ties(), &contents);
  contents.created_unix_ns = absl::ToUnixNanos(now);
  contents.metrics = opened.metrics;
  contents.user_metadata = opened.user_metadata;
  contents.properties = {{"staging", "imported"}, {"staging_memory", "not locked: imported"}};

  const absl::StatusOr<storage::ShardIdentity> identity = store.BeginAttempt(step);
  if (!identity.ok()) return identity.status();
  contents.recycle = store.Recycle(*identity);
  storage::StepRecord record = MakeRecord(*identity, contents);
  const absl::StatusOr<storage::WrittenShard> shard =
      (*writer)->Write(store.layout().shard(identity->step, identity->attempt, identity->rank, identity->world_size),
                       *identity, std::move(contents), [&] {
                         written();
                         return IsInterrupted();
                       });
  if (!shard.ok()) {
    store.AbandonAttempt(*identity, now, shard.status()).IgnoreError();
    return shard.status();
  }
  record.info.entry_count = shard->entry_count;
  record.info.logical_bytes = shard->logical_bytes;
  record.info.stored_bytes = shard->footer.file_bytes;
  record.shards.Add(identity->rank, shard->footer.file_bytes, shard->footer.index_digest);
  if (absl::Status status = store.CommitAttempt(record); !status.ok()) return status;
  return record.info;
}

absl::StatusOr<StepInfo> ImportInto(const Session& session, storage::Store& store, const ImportArguments& arguments,
                                    const Opened& opened) {
  // A trainer may have saved it before the lock was ours.
  const auto found = store.catalog().Find(arguments.step);
  if (!found.ok()) return found.status();
  if (*found && HasFiles((*found)->info)) {
    return absl::AlreadyExistsError(fmt::format("step {} was saved in the meantime", arguments.step));
  }
  absl::StatusOr<std::unique_ptr<TensorFeed>> feed = TensorFeed::Create(opened.sources());
  if (!feed.ok()) return feed.status();
  ProgressLine line(session.console, (*feed)->bytes_total());
  const std::string what = fmt::format("step {}", arguments.step);
  return WriteStep(store, arguments.step, opened, **feed, session.now,
                   [&] { line.Update(what, (*feed)->bytes_read()); });
}

ExitCode RunImport(const Session& session, const ImportArguments& arguments) {
  Console& console = session.console;
  const absl::StatusOr<Opened> opened = OpenFiles(arguments);
  if (!opened.ok()) {
    console.Fail(opened.status());
    return ExitCode::kFailure;
  }
  for (const std::string& note : opened->notes) console.Warn(note);
  const std::string directory = storage::FollowLinks(session.directory);
  if (const Failure failure = CheckStore(directory, arguments); !failure.status.ok()) {
    console.Fail(failure.status);
    return failure.code;
  }
  CatchInterrupts();
  absl::StatusOr<std::unique_ptr<storage::Store>> store = storage::Store::Open(
      storage::PosixFileSystem(), {.directory = directory, .warn = [&](std::string_view text) { console.Warn(text); }});
  if (!store.ok()) {
    console.Fail(store.status());
    // A folder of something else's, in which no store is made.
    if (absl::IsFailedPrecondition(store.status()) && arguments.create) return ExitCode::kNoStore;
    return WriteExitCode(store.status());
  }
  const absl::StatusOr<StepInfo> info = ImportInto(session, **store, arguments, *opened);
  if (!info.ok()) {
    if (absl::IsCancelled(info.status())) {
      console.Fail("interrupted; no step was imported");
      return ExitCode::kInterrupted;
    }
    console.Fail(info.status());
    return ExitCode::kFailure;
  }
  if (session.json) {
    Json document;
    document["schema_version"] = kSchemaVersion;
    document["store"] = {{"directory", session.directory}, {"id", storage::ToHex((*store)->id().bytes)}};
    document["step"] = ToJson(*info);
    console.PrintData(Dump(document));
  } else {
    console.PrintData(fmt::format("step {}: {} entr{}, {}, stored in {}\n", info->step, info->entry_count,
                                  info->entry_count == 1 ? "y" : "ies", HumanBytes(info->logical_bytes),
                                  HumanBytes(info->stored_bytes)));
  }
  return ExitCode::kOk;
}

void AddMetric(const std::string& text, Metrics* metrics) {
  const size_t equals = text.rfind('=');
  double value = 0;
  if (equals == std::string::npos || equals == 0 || !absl::SimpleAtod(text.substr(equals + 1), &value)) {
    throw CLI::ValidationError(fmt::format("--metric: expected NAME=VALUE, found '{}'", Escape(text)));
  }
  (*metrics)[text.substr(0, equals)] = value;
}

}  // namespace

void AddImport(CommandLine& line) {
  const auto arguments = std::make_shared<ImportArguments>();
  CLI::App* command =
      line.Add({.group = CommandGroup::kExchange,
                .name = "import",
                .description = "Commit the tensors of safetensors or PyTorch files as a step of the store",
                .writes = true},
               [arguments](const Session& session) { return RunImport(session, *arguments); });
  AddTexts(command, "FILE", arguments->files,
           "Safetensors files, the .index.json that names several, or files of torch.save")
      ->required();
  command
      ->add_option_function<std::string>(
          "--step",
          [arguments](const std::string& text) {
            const std::optional<int64_t> step = ParseStep(text);
            if (!step)
              throw CLI::ValidationError(
                  fmt::format("--step must be a whole number of at least 0, not '{}'", Escape(text)));
            arguments->step = *step;
          },
          "The number of the new step; the store must not have it yet")
      ->type_name("N")
      ->required();
  AddTexts(
      command, "--metric",
      [arguments](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) AddMetric(text, &arguments->metrics);
      },
      "A metric of the new step; it replaces a metric of that name in the files")
      ->type_name("NAME=VALUE");
  command
      ->add_option_function<std::string>(
          "--metadata",
          [arguments](const std::string& text) {
            if (!MetadataToJson(text).is_object()) {
              throw CLI::ValidationError("--metadata must be a JSON object of at most " + MetadataLimits());
            }
            arguments->user_metadata = text;
          },
          "The user metadata of the new step, a JSON object; it replaces that of the files")
      ->type_name("JSON");
  command->add_flag("--create", arguments->create, "Create the store if it does not exist");
  command->footer(R"(
From files that 'export' wrote, the step gets back its values, tied tensors, metrics and user metadata. From other files
it gets the strings of their metadata as user metadata.

Of a file of torch.save (.pt, .pth, pytorch_model.bin), nothing is run. Tensors are named by the path to them, with dots:
model.layer.weight. Numbers, True, False, None, strings and lists of these become user metadata. Objects of other Python
classes are left out, with a note.

'import' needs the store's lock, so it fails while a trainer holds the store. A trainer's retention treats the new step
like every other step: pin it to keep it.

Example:
  checkpoint-inspect --store run/ckpt import model.safetensors --step 0 --create
  checkpoint-inspect --store run/ckpt import model.safetensors.index.json --step 1000 --metric loss=2.31
  checkpoint-inspect --store run/ckpt import pretrained.pt --step 0 --create)");
}

}  // namespace tidemark::inspect
