#include "tools/checkpoint_inspect/commands/export.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "snapshot/exchange/value_text.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/cli/output_path.h"
#include "tools/checkpoint_inspect/cli/progress_line.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/exchange/export_sinks.h"
#include "tools/checkpoint_inspect/output/byte_count.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/text.h"
#include "tools/checkpoint_inspect/tensors/entry_selection.h"
#include "tools/checkpoint_inspect/tensors/step_source.h"
#include "tools/checkpoint_inspect/tensors/tensor_stream.h"

namespace tidemark::inspect {
namespace {

// Each read costs as much as a few thousand values: many at once, though not so many that they are felt in memory.
constexpr size_t kValuesAtOnce = 8192;
constexpr uint64_t kValueBytesAtOnce = 4 << 20;

absl::StatusOr<ExportMetadata> ReadValues(const TensorSource& source, const std::vector<ExportItem>& items) {
  ExportMetadata values;
  for (size_t begin = 0, end = 0; begin < items.size(); begin = end) {
    if (IsInterrupted()) return absl::CancelledError("interrupted");
    std::vector<std::vector<std::byte>> bytes;
    for (uint64_t sum = 0; end < items.size() && end - begin < kValuesAtOnce && sum < kValueBytesAtOnce; ++end) {
      sum += items[end].bytes;
      bytes.emplace_back(items[end].bytes);
    }
    std::vector<StepReader::Window> windows;
    for (size_t i = begin; i < end; ++i) {
      if (!bytes[i - begin].empty()) windows.push_back({.entry = items[i].entry, .destination = bytes[i - begin]});
    }
    if (!windows.empty()) {
      if (absl::Status status = source.Read(windows); !status.ok()) return status;
    }
    for (size_t i = begin; i < end; ++i) values[items[i].spec.name] = ValueText(items[i].spec, bytes[i - begin]);
  }
  return values;
}

absl::StatusOr<std::unique_ptr<ExportSink>> MakeSink(const TensorSource& source, const ExportPlan& plan,
                                                     ExportFormat format, const std::string& out, bool replace,
                                                     const ExportMetadata& provenance) {
  switch (format) {
    case ExportFormat::kNpz:
      return MakeNpzSink(plan, out, replace);
    case ExportFormat::kRaw:
      return MakeRawSink(plan, out, provenance);
    case ExportFormat::kSafetensors:
      break;
  }
  absl::StatusOr<ExportMetadata> values = ReadValues(source, plan.values);
  if (!values.ok()) return values.status();
  ExportMetadata metadata = provenance;
  metadata[std::string(kFormatKey)] = "pt";  // without which other libraries refuse a file as that of no framework
  return MakeSafetensorsSink(plan, out, replace, metadata, *std::move(values));
}

// The command line's part.
struct ExportArguments {
  StepSelector selector = StepSelector::Latest();
  ExportPlanOptions options;
  std::optional<ExportFormat> format;
  std::string out;
  bool force = false;
};

ExportFormat FormatOf(const ExportArguments& arguments) {
  if (arguments.format) return *arguments.format;
  return arguments.out.ends_with(".npz") ? ExportFormat::kNpz : ExportFormat::kSafetensors;
}

// Whether the file's name ends like a file of another format, and --format is not given.
bool IsMisnamed(const ExportArguments& arguments) {
  if (arguments.format) return false;
  const std::string extension = std::filesystem::path(arguments.out).extension();
  static constexpr std::string_view kOthers[] = {".bin", ".ckpt", ".gguf", ".h5", ".hdf5", ".msgpack",
                                                 ".npy", ".onnx", ".pkl",  ".pt", ".pth"};
  return std::find(std::begin(kOthers), std::end(kOthers), extension) != std::end(kOthers);
}

// What is too large to be read back as a whole, or is not what it should be, is left out, and that is said.
ExportMetadata ProvenanceOf(const Invocation& invocation, const StepInfo& info) {
  ExportMetadata provenance = {{std::string(kStepKey), fmt::format("{}", info.step)},
                               {std::string(kStoreKey), invocation.reader.store_id()}};
  Console& console = invocation.console;
  const auto fits = [&](std::string_view what, const std::string& text) {
    if (text.size() <= kStepTextBytesMax) return true;
    console.Note(
        fmt::format("the step's {} left out: {} bytes, where {} are exported", what, text.size(), kStepTextBytesMax));
    return false;
  };
  if (std::string metrics = MetricsJson(info.metrics); fits("metrics are", metrics)) {
    provenance[std::string(kMetricsKey)] = std::move(metrics);
  }
  if (!fits("user metadata is", info.user_metadata)) return provenance;
  if (MetadataToJson(info.user_metadata).is_object()) {
    provenance[std::string(kUserMetadataKey)] = info.user_metadata;
  } else {
    console.Note("the step's user metadata is left out: it is not a JSON object of at most " + MetadataLimits());
  }
  return provenance;
}

std::string FormatExported(const StepInfo& info, const Exported& exported) {
  std::string text;
  for (const ExportedFile& file : exported.files) {
    text += fmt::format("{}: step {}, {}", Escape(file.path), info.step, HumanBytes(file.bytes));
    if (file.tensors > 0) text += fmt::format(", {} tensor{}", file.tensors, file.tensors == 1 ? "" : "s");
    text += "\n";
  }
  return text;
}

std::string ExportedAsJson(const Invocation& invocation, const StepInfo& info, ExportFormat format,
                           const Exported& exported) {
  Json document = NewDocument(invocation.reader, invocation.directory);
  document["step"] = info.step;
  document["format"] = ExportFormatName(format);
  Json& files = document["files"] = Json::array();
  for (const ExportedFile& file : exported.files) {
    files.push_back({{"path", file.path}, {"bytes", file.bytes}, {"tensors", file.tensors}});
  }
  std::map<std::string, std::string> tied;  // Json would look for each name among all that it has
  for (const ExportItem& item : exported.plan.tensors) {
    if (!item.tied_to.empty()) tied[item.spec.name] = item.tied_to;
  }
  document["tied"] = tied;
  Json& values = document["values"] = Json::array();
  for (const ExportItem& item : exported.plan.values) values.push_back(item.spec.name);
  return Dump(document);
}

// Only for safetensors: the others have all of it as entries.
void NoteWhatIsLeftOut(Console& console, ExportFormat format, const ExportPlan& plan) {
  if (format != ExportFormat::kSafetensors) return;
  const auto tied = static_cast<size_t>(
      std::count_if(plan.tensors.begin(), plan.tensors.end(), [](const ExportItem& i) { return !i.tied_to.empty(); }));
  if (tied > 0) {
    console.Note(fmt::format("{} tied tensor{} written once; the metadata names what each is tied to", tied,
                             tied == 1 ? " is" : "s are"));
  }
  if (!plan.values.empty()) {
    console.Note(fmt::format("{} non-tensor value{} written to the metadata as text", plan.values.size(),
                             plan.values.size() == 1 ? " was" : "s were"));
  }
}

ExitCode ExportExitCode(const absl::Status& status) {
  if (absl::IsCancelled(status)) return ExitCode::kInterrupted;
  return absl::IsDataLoss(status) ? ExitCode::kIntegrity : ExitCode::kFailure;
}

ExitCode RunExport(const Invocation& invocation, const ExportArguments& arguments) {
  Console& console = invocation.console;
  if (IsMisnamed(arguments)) {
    console.Fail(
        fmt::format("{}: export writes safetensors, npz or raw, none of which has this name; name it "
                    "*.safetensors or *.npz, or give --format",
                    arguments.out));
    return ExitCode::kUsage;
  }
  StepSource opened;
  const ExitCode code = OpenStepSource(invocation, arguments.selector, &opened,
                                       {.way_out = ", and --exclude leaves it out"}, StepView::kWholes);
  if (code != ExitCode::kOk) return code;

  CatchInterrupts();
  ExportPlanOptions options = arguments.options;
  options.format = FormatOf(arguments);
  std::optional<ProgressLine> line;
  const auto progress = [&](uint64_t bytes_read, uint64_t bytes_total) {
    if (!line) line.emplace(console, bytes_total);
    line->Update(fmt::format("step {}", opened.info.step), bytes_read);
  };
  const absl::StatusOr<Exported> exported = ExportTensors(*opened.tensors, options, arguments.out, arguments.force,
                                                          ProvenanceOf(invocation, opened.info), progress);
  line.reset();
  if (!exported.ok()) {
    console.Fail(absl::IsCancelled(exported.status()) ? absl::CancelledError("interrupted; nothing was written")
                                                      : exported.status());
    return ExportExitCode(exported.status());
  }
  NoteWhatIsLeftOut(console, options.format, exported->plan);
  console.PrintData(invocation.json ? ExportedAsJson(invocation, opened.info, options.format, *exported)
                                    : FormatExported(opened.info, *exported));
  return StoreExitCode(invocation.reader);
}

void AddRename(const std::string& text, ExportPlanOptions* options) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) throw CLI::ValidationError("--rename: expected FROM=TO");
  options->renames.emplace_back(text.substr(0, equals), text.substr(equals + 1));
}

}  // namespace

absl::StatusOr<Exported> ExportTensors(const TensorSource& source, const ExportPlanOptions& options,
                                       const std::string& out, bool replace, const ExportMetadata& provenance,
                                       const std::function<void(uint64_t bytes_read, uint64_t bytes_total)>& progress) {
  for (const std::vector<std::string>* patterns : {&options.include, &options.exclude}) {
    for (const std::string& pattern : *patterns) {
      const absl::Status matching = SelectEntries(source.entries(), pattern, "the step").status();
      if (!matching.ok()) return absl::InvalidArgumentError(matching.message());
    }
  }
  absl::StatusOr<ExportPlan> plan = PlanExport(source.entries(), options);
  if (!plan.ok()) return plan.status();
  auto sink = MakeSink(source, *plan, options.format, out, replace, provenance);
  if (!sink.ok()) return sink.status();

  Lane lane{.source = &source};
  std::vector<const ExportItem*> items;
  uint64_t bytes_total = 0;
  for (const ExportItem& item : plan->tensors) {
    if (!item.tied_to.empty()) continue;
    lane.entries.push_back(item.entry);
    items.push_back(&item);
    bytes_total += source.entries()[item.entry].bytes;
  }
  uint64_t bytes_read = 0;
  absl::Status status = StreamTensors({&lane, 1}, [&](const TensorBlock& block) {
    const ExportItem& item = *items[block.item];
    if (block.first_element == 0) {
      if (absl::Status begun = (*sink)->Begin(item); !begun.ok()) return begun;
    }
    bytes_read += block.bytes[0].size();
    progress(bytes_read, bytes_total);
    return WriteElements(**sink, source.entries()[item.entry].spec.dtype, item.spec.dtype, block.bytes[0]);
  });
  // Reading may have ended before a signal that came with its last bytes was looked at.
  if (status.ok() && IsInterrupted()) status = absl::CancelledError("interrupted");
  if (!status.ok()) return status;
  absl::StatusOr<std::vector<ExportedFile>> files = (*sink)->Commit();
  if (!files.ok()) return files.status();
  sink->reset();
  return Exported{.files = *std::move(files), .plan = *std::move(plan)};
}

void AddExport(CommandLine& line) {
  const auto arguments = std::make_shared<ExportArguments>();
  CLI::App* command = line.Add({.group = CommandGroup::kExchange,
                                .name = "export",
                                .description = "Write the tensors of a step as safetensors, npz or plain files",
                                .writes = true},
                               [arguments](const Invocation& invocation) { return RunExport(invocation, *arguments); });
  AddSelector(command, "STEP", arguments->selector, fmt::format("{}", kSelectorHelp))->required();
  const auto include = [arguments](const std::vector<std::string>& patterns) {
    std::vector<std::string>& all = arguments->options.include;
    all.insert(all.end(), patterns.begin(), patterns.end());
  };
  AddTexts(command, "GLOB", include, fmt::format("Only entries that match one of these, {}", kGlobHelp))
      ->check(CheckGlob);
  command->add_option("-o,--output", arguments->out, "The file to write; for raw, a new folder")
      ->type_name("OUT")
      ->required()
      ->check(CheckOutputPath);
  command
      ->add_option_function<std::string>(
          "--format", [arguments](const std::string& name) { arguments->format = ParseExportFormat(name); },
          "The format; by default npz if OUT ends in .npz, else safetensors")
      ->check(CLI::IsMember({"safetensors", "npz", "raw"}))
      ->type_name("FORMAT");
  command
      ->add_option_function<std::string>(
          "--dtype", [arguments](const std::string& name) { arguments->options.dtype = FindDtype(name)->dtype; },
          "Convert floating-point tensors, rounding to nearest even; complex tensors stay")
      ->check(CLI::IsMember({"float16", "bfloat16", "float32", "float64"}))
      ->type_name("DTYPE");
  AddTexts(
      command, "--rename",
      [arguments](const std::vector<std::string>& texts) {
        for (const std::string& text : texts) AddRename(text, &arguments->options);
      },
      "Rename FROM and FROM.*; an empty TO removes the prefix. The first rule that fits counts")
      ->type_name("FROM=TO");
  AddTexts(command, "--include", include,
           fmt::format("The same as GLOB: only entries that match one of these, {}", kGlobHelp))
      ->type_name("GLOB")
      ->check(CheckGlob);
  AddTexts(command, "--exclude", arguments->options.exclude,
           fmt::format("Leave out entries that match one of these, {}", kGlobHelp))
      ->type_name("GLOB")
      ->check(CheckGlob);
  // Options are looked at in the order in which they are added, so these two know OUT and --format.
  AddByteCount(command, "--shard-size", arguments->options.shard_bytes,
               "For safetensors: write several files of at most this size, and an index; by default 5GB")
      ->check([arguments](const std::string&) {
        const ExportFormat format = FormatOf(*arguments);
        return format == ExportFormat::kSafetensors ? "" : fmt::format("{} is never split", ExportFormatName(format));
      });
  command->add_flag("--force", arguments->force, "Replace existing files; not with raw")
      ->check([arguments](const std::string&) {
        const bool is_folder = FormatOf(*arguments) == ExportFormat::kRaw;
        return std::string(is_folder ? "raw creates a folder and never replaces one" : "");
      });
  command->footer(R"(
Non-tensor values become text in the metadata of safetensors, arrays in npz, and files in raw. A file name of another
format, such as *.pt, is refused unless --format is given.

Example:
  checkpoint-inspect --store run/ckpt export best:validation/loss 'model.*' --rename model= -o model.safetensors
  checkpoint-inspect --store run/ckpt export latest --dtype bfloat16 --shard-size 2GB -o model.safetensors
  checkpoint-inspect --store run/ckpt export latest --format raw -o tensors)");
}

}  // namespace tidemark::inspect
