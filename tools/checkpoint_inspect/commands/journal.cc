#include "storage/journal/journal.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "fmt/format.h"
#include "storage/io/file_system.h"
#include "storage/records/fact.h"
#include "storage/store/store_layout.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// A fact's fields behind its name, its step and its attempt.
struct FactFields {
  Json operator()(const storage::StepFact& fact) const {
    Json references = Json::array();
    for (const storage::FileReference& file : fact.record.references) {
      references.push_back({{"step", file.step},
                            {"attempt", storage::ToHex(file.attempt.bytes)},
                            {"rank", file.rank},
                            {"world_size", file.world_size}});
    }
    return {{"fact", "step"},
            {"step", fact.record.info.step},
            {"attempt", fact.record.info.attempt},
            {"record", ToJson(fact.record.info)},
            {"shards_digest", storage::ToHex(fact.record.shards.digest().bytes)},
            {"references", std::move(references)}};
  }
  Json operator()(const storage::StateFact& fact) const {
    return {{"fact", "state"},
            {"step", fact.step},
            {"attempt", fact.attempt},
            {"state", StepStateName(fact.state)},
            {"reason", fact.reason}};
  }
  Json operator()(const storage::EvaluationFact& fact) const {
    return {{"fact", "evaluation"},
            {"step", fact.step},
            {"attempt", fact.attempt},
            {"evaluation", ToJson(fact.evaluation)}};
  }
  Json operator()(const storage::PinFact& fact) const {
    return {{"fact", "pin"},         {"step", fact.step}, {"attempt", fact.attempt},
            {"pinned", fact.pinned}, {"note", fact.note}, {"tags", fact.tags}};
  }
  Json operator()(const storage::KeptFact& fact) const {
    return {{"fact", "kept"}, {"step", fact.step}, {"attempt", fact.attempt}, {"reason", fact.reason}};
  }
  Json operator()(const storage::PhasesFact& fact) const {
    Json phases = Json::array();
    for (const SavePhase& phase : fact.record.phases) phases.push_back(ToJson(phase));
    return {{"fact", "phases"},
            {"step", fact.record.step},
            {"attempt", fact.record.attempt},
            {"phases", std::move(phases)}};
  }
  Json operator()(const storage::BestModesFact& fact) const {
    Json modes = Json::object();
    for (const auto& [metric, mode] : fact.modes) modes[metric] = BestModeName(mode);
    return {{"fact", "best_modes"}, {"modes", std::move(modes)}};
  }
  Json operator()(const storage::DeletionRequestFact& fact) const {
    return {{"fact", "deletion_request"},  {"request", fact.id},    {"step", fact.step},
            {"attempt", fact.attempt},     {"reason", fact.reason}, {"asker", fact.asker},
            {"asked", Rfc3339(fact.asked)}};
  }
  Json operator()(const storage::AnswerFact& fact) const {
    return {{"fact", "answer"}, {"request", fact.id}, {"refused", fact.refused}};
  }
  Json operator()(const storage::StoreFact& fact) const {
    return {{"fact", "store"}, {"store", storage::ToHex(fact.store.bytes)}};
  }
};

std::string Hexadecimal(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

struct ShownFact {
  Json fields;
  absl::Status status;  // why it cannot be decoded; then `fields` has its bytes
};

ShownFact Decode(const std::string& bytes) {
  const absl::StatusOr<storage::Fact> fact = storage::DecodeFact(bytes);
  if (fact.ok()) return {.fields = std::visit(FactFields(), *fact), .status = absl::OkStatus()};
  return {
      .fields = {{"fact", nullptr}, {"problem", std::string(fact.status().message())}, {"bytes", Hexadecimal(bytes)}},
      .status = fact.status()};
}

// Who has written the entry. A worker or a command has no epoch.
std::string WriterText(const storage::JournalEntry& entry) {
  if (entry.epoch == 0) return "a worker or a command";
  return fmt::format("epoch {}{}", entry.epoch, entry.begins_epoch ? ", which begins here" : "");
}

// The fact's name and step on a line, and below it a line for each other field.
std::string FactText(const Console& console, const ShownFact& shown) {
  if (!shown.status.ok()) {
    return fmt::format("  {} {}\n    bytes: {}\n", console.Paint("cannot be decoded:", Colour::kBad),
                       Escape(std::string(shown.status.message())), shown.fields["bytes"].get<std::string>());
  }
  std::string text = "  " + shown.fields["fact"].get<std::string>();
  if (shown.fields.contains("step")) text += fmt::format(" of step {}", shown.fields["step"].get<int64_t>());
  text += "\n";
  const auto add = [&text](const std::string& name, const Json& value) {
    text += fmt::format("    {}: {}", Escape(name), DumpLine(value));
  };
  for (const auto& [name, value] : shown.fields.items()) {
    if (name == "fact" || name == "step") continue;
    if (name != "record") {
      add(name, value);
      continue;
    }
    // The fields of a record stand as the others do.
    for (const auto& [field, content] : value.items()) {
      if (field != "step" && field != "attempt") add(field, content);
    }
  }
  return text;
}

std::string EntryText(const Console& console, const storage::KnownEntry& known, const std::vector<ShownFact>& facts) {
  std::string text = console.Paint(fmt::format("entry {}", known.place.number), Colour::kHeading) +
                     fmt::format(", {}\n", WriterText(known.entry));
  if (!known.counts)
    text += "  does not count: its writer did not hold the store any more, or an earlier entry is it\n";
  for (const ShownFact& fact : facts) text += FactText(console, fact);
  return text;
}

Json EntryToJson(const storage::KnownEntry& known, std::vector<ShownFact> facts) {
  Json list = Json::array();
  for (ShownFact& fact : facts) list.push_back(std::move(fact.fields));
  return {{"entry", known.place.number},
          {"id", storage::ToHex(known.entry.id.bytes)},
          {"epoch", known.entry.epoch == 0 ? Json(nullptr) : Json(known.entry.epoch)},
          {"begins_epoch", known.entry.begins_epoch},
          {"durable", known.entry.durable},
          {"counts", known.counts},
          {"facts", std::move(list)}};
}

// Prints what is asked for of the entries that it gets.
class EntryPrinter {
 public:
  EntryPrinter(const Invocation& invocation, const JournalOptions& options)
      : invocation_(invocation), options_(options) {}

  void Show(const storage::KnownEntry& known) {
    if (known.place.number < options_.from || IsInterrupted()) return;
    std::vector<ShownFact> facts;
    for (const std::string& bytes : known.entry.facts) {
      ShownFact fact = Decode(bytes);
      const bool is_asked = !options_.step || !fact.status.ok() ||
                            (fact.fields.contains("step") && fact.fields["step"].get<int64_t>() == *options_.step);
      undecoded_ += fact.status.ok() ? 0 : 1;
      is_newer_ = is_newer_ || absl::IsUnimplemented(fact.status);
      if (is_asked) facts.push_back(std::move(fact));
    }
    if (options_.step && facts.empty()) return;
    Console& console = invocation_.console;
    if (invocation_.json && shown_ == 0) {
      console.PrintData(DumpLine(NewDocument(invocation_.reader, invocation_.directory)));
    }
    ++shown_;
    console.PrintData(invocation_.json ? DumpLine(EntryToJson(known, std::move(facts)))
                                       : EntryText(console, known, facts));
  }

  size_t shown() const { return shown_; }
  size_t undecoded() const { return undecoded_; }
  bool is_newer() const { return is_newer_; }

 private:
  const Invocation& invocation_;
  const JournalOptions& options_;
  size_t shown_ = 0;
  size_t undecoded_ = 0;
  bool is_newer_ = false;
};

}  // namespace

ExitCode DumpJournal(const Invocation& invocation, const JournalOptions& options) {
  Console& console = invocation.console;
  const storage::StoreLayout layout(invocation.link_free);
  CatchInterrupts();
  EntryPrinter printer(invocation, options);
  const absl::StatusOr<std::unique_ptr<storage::Journal>> journal =
      storage::Journal::Open(storage::PosixFileSystem(), layout.journal(), storage::JournalPlace());
  absl::Status status = journal.status();
  if (journal.ok()) {
    status = (*journal)->Look([&](const storage::KnownEntry& known, bool) { printer.Show(known); });
  }
  if (IsInterrupted()) {
    console.Fail("interrupted; the rest of the journal was not printed");
    return ExitCode::kInterrupted;
  }
  if (!status.ok()) {
    console.Fail(status);
    return StepExitCode(status);
  }
  if (printer.undecoded() > 0) {
    console.Fail(fmt::format("{} fact{} cannot be decoded", printer.undecoded(), printer.undecoded() == 1 ? "" : "s"));
    return printer.is_newer() ? ExitCode::kNewerFormat : ExitCode::kDamagedButUsable;
  }
  if (printer.shown() == 0) {
    console.Fail(options.step ? fmt::format("no entry has a fact of step {}", *options.step)
                              : fmt::format("there is no entry from {} on", options.from));
    return ExitCode::kFailure;
  }
  return ExitCode::kOk;
}

void AddJournal(CommandLine& line) {
  const auto options = std::make_shared<JournalOptions>();
  CLI::App* journal = line.Add({.group = CommandGroup::kPlace,
                                .name = "journal",
                                .description = "Print the entries of the journal, in which all facts of the store are"},
                               [options](const Invocation& invocation) { return DumpJournal(invocation, *options); });
  journal
      ->add_option_function<std::string>(
          "--step",
          [options](const std::string& text) {
            options->step = ParseStep(text);
            if (!options->step) {
              throw CLI::ValidationError(
                  fmt::format("--step must be a whole number of at least 0, not '{}'", Escape(text)));
            }
          },
          "Only entries with facts of step N, and of these the facts of that step")
      ->type_name("N");
  journal->add_option("--from", options->from, "Only entry N and those after it")->type_name("N")->check(CheckPositive);
  journal->footer(R"(
An entry is appended by the trainer, a worker or a command, and never changes. Its facts say what was true from then on:
'step' that a step was committed or failed, 'state' that it was deleted or found damaged, and so on. The last fact about
a thing counts. docs/format.md describes them all. A fact that cannot be decoded is shown as its bytes, also with
--step, since its step is not known.

Examples:
  checkpoint-inspect --store run/ckpt journal
  checkpoint-inspect --store run/ckpt journal --step 1000
  checkpoint-inspect --store run/ckpt --json journal --from 4000)");
}

}  // namespace tidemark::inspect
