#include "storage/store/repair/repair.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/io/file_system.h"
#include "storage/io/link_free_path.h"
#include "tools/checkpoint_inspect/checks/store_owner.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/cli/progress_line.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

using storage::LostStep;
using storage::RepairReport;
using storage::StoreChange;

struct Wording {
  std::string_view name;  // in JSON
  std::string_view verb;  // after "would", with {} for the path
  std::string_view past;
};

Wording WordingOf(StoreChange::Kind kind) {
  switch (kind) {
    case StoreChange::Kind::kIdentityWritten:
      return {"write_identity", "write {} again", "wrote {} again"};
    case StoreChange::Kind::kConverted:
      return {"convert", "convert {} to the format of this version", "converted {} to the format of this version"};
    case StoreChange::Kind::kJournalRebuilt:
      return {"rebuild_journal", "make {} anew", "made {} anew"};
    case StoreChange::Kind::kIndexMade:
      return {"make_index", "make {} anew from the journal", "made {} anew from the journal"};
    case StoreChange::Kind::kCommittedAgain:
      return {"commit_again", "commit {} again", "committed {} again"};
    case StoreChange::Kind::kAdopted:
      return {"adopt", "copy {} and commit the copy", "copied {} and committed the copy"};
    case StoreChange::Kind::kMarkedLost:
      return {"mark_lost", "record that {} is lost", "recorded that {} is lost"};
    case StoreChange::Kind::kMarkedDamaged:
      return {"mark_damaged", "mark {} as damaged, and keep its files in place",
              "marked {} as damaged, and kept its files in place"};
    case StoreChange::Kind::kQuarantined:
      return {"quarantine", "move {} to quarantine", "moved {} to quarantine"};
    case StoreChange::Kind::kRemoved:
      return {"remove", "remove {}", "removed {}"};
    case StoreChange::Kind::kLeftAlone:
      return {"leave_alone", "leave {} alone", "left {} alone"};
  }
  return {};
}

std::string ChangeText(const Console& console, const StoreChange& change, bool apply) {
  const Wording wording = WordingOf(change.kind);
  const bool bad = change.kind == StoreChange::Kind::kQuarantined || change.kind == StoreChange::Kind::kMarkedLost ||
                   change.kind == StoreChange::Kind::kMarkedDamaged;
  const std::string what = fmt::format(fmt::runtime(apply ? wording.past : wording.verb), Escape(change.path));
  return fmt::format("{}{}: {}\n", apply ? "" : "would ", console.Paint(what, bad ? Colour::kBad : Colour::kNone),
                     Escape(change.why)) +
         AffectedEntriesLine(change.entries);
}

// Whether one of these changes puts the step out of service, and no earlier one for a reason of its own.
bool LosesByChange(const RepairReport& report, const LostStep& step) {
  return std::any_of(report.changes.begin(), report.changes.end(), [&step](const StoreChange& change) {
    return change.step == step.step && step.why.ends_with(change.why) &&
           (change.kind == StoreChange::Kind::kQuarantined || change.kind == StoreChange::Kind::kMarkedLost ||
            change.kind == StoreChange::Kind::kMarkedDamaged);
  });
}

std::string LostText(const Console& console, const RepairReport& report, const LostStep& step, bool apply) {
  const std::string pin =
      step.pinned ? fmt::format(" ({})", Escape(PinText({.pin_note = step.pin_note, .tags = step.tags}))) : "";
  // The change has said why already, and of which entries.
  if (LosesByChange(report, step)) {
    const std::string_view what = apply ? "lost" : "would be lost";
    return fmt::format("step {}: {}{}\n", step.step, console.Paint(what, Colour::kBad), pin);
  }
  return fmt::format("step {}: {}{}: {}\n", step.step, console.Paint("lost", Colour::kBad), pin, Escape(step.why)) +
         AffectedEntriesLine(step.entries);
}

// The latest healthy step that can be restored; nullopt: there is none.
std::optional<int64_t> LatestHealthy(const StoreReader& reader, const RepairReport& report) {
  const auto is_lost = [&](int64_t step) {
    return std::any_of(report.lost.begin(), report.lost.end(), [&](const LostStep& one) { return one.step == step; });
  };
  std::optional<int64_t> healthy;
  for (const StepInfo& info : reader.Steps()) {
    if (IsCommitted(info) && info.unhealthy().empty() && !is_lost(info.step)) healthy = info.step;
  }
  return healthy;
}

// From the store as it is now: the repair may have changed the step's record.
std::string HealthOf(const std::string& directory, const RepairReport& report) {
  const absl::StatusOr<std::unique_ptr<StoreReader>> reader = OpenStore(directory, /*untrusted=*/false);
  return reader.ok() ? UnhealthyText(**reader, *report.restores, LatestHealthy(**reader, report)) : "";
}

// The steps that --adopt would keep from being removed.
std::string AdoptableText(const RepairReport& report) {
  std::string text;
  for (const StoreChange& change : report.changes) {
    if (!change.adoptable) continue;
    text +=
        fmt::format("step {0}: its save was cut short, but all of its files are there; repair --adopt {0} commits it\n",
                    *change.step);
  }
  return text;
}

std::string ReportText(const Console& console, const std::string& directory, const RepairReport& report, bool apply) {
  std::string text;
  for (const StoreChange& change : report.changes) text += ChangeText(console, change, apply);
  for (const StoreChange& change : report.left_alone) {
    text += fmt::format("left alone: {}: {}\n", Escape(change.path), Escape(change.why));
  }
  for (const LostStep& step : report.unread) {
    text += fmt::format("step {}: {}: {}\n", step.step, console.Paint("unreadable", Colour::kBad), Escape(step.why));
  }
  for (const LostStep& step : report.lost) text += LostText(console, report, step, apply);
  text += AdoptableText(report);
  text += report.restores
              ? fmt::format("{}a restore takes step {}{}\n", apply || report.changes.empty() ? "" : "after that, ",
                            *report.restores, HealthOf(directory, report))
              : fmt::format("no step {}can be restored\n", report.unread.empty() ? "" : "that was read ");
  return text;
}

Json ChangesToJson(const std::vector<StoreChange>& changes) {
  Json list = Json::array();
  for (const StoreChange& change : changes) {
    list.push_back({{"action", WordingOf(change.kind).name},
                    {"step", change.step ? Json(*change.step) : Json(nullptr)},
                    {"path", change.path},
                    {"why", change.why},
                    {"entries", change.entries},
                    {"adoptable", change.adoptable}});
  }
  return list;
}

Json StepsToJson(const std::vector<LostStep>& steps) {
  Json list = Json::array();
  for (const LostStep& step : steps) {
    list.push_back({{"step", step.step}, {"why", step.why}, {"entries", step.entries}});
  }
  return list;
}

std::string ReportJson(const std::string& directory, const RepairReport& report, bool apply) {
  Json document;
  document["schema_version"] = kSchemaVersion;
  document["store"] = {{"directory", directory}, {"id", storage::ToHex(report.store.bytes)}};
  document["applied"] = apply;
  document["changes"] = ChangesToJson(report.changes);
  document["left_alone"] = ChangesToJson(report.left_alone);
  document["unreadable"] = StepsToJson(report.unread);
  document["lost"] = StepsToJson(report.lost);
  document["restore"] = report.restores ? Json(*report.restores) : Json(nullptr);
  document["restore_healthy"] = nullptr;
  const absl::StatusOr<std::unique_ptr<StoreReader>> reader = OpenStore(directory, /*untrusted=*/false);
  if (report.restores && reader.ok()) {
    if (const auto healthy = LatestHealthy(**reader, report)) document["restore_healthy"] = *healthy;
  }
  return Dump(document);
}

// Of the store as it is now: in order, to be repaired, or beyond that.
ExitCode Judge(const RepairReport& report, bool apply) {
  if (!report.unread.empty()) return ExitCode::kFailure;
  if (!report.restores && !report.lost.empty()) return ExitCode::kIntegrity;
  const bool found = !report.lost.empty() || (!apply && !report.changes.empty());
  return found ? ExitCode::kDamagedButUsable : ExitCode::kOk;
}

// `directory`: as the user named it. Without `apply` nothing is changed.
ExitCode RepairDirectory(Console& console, const std::string& directory, const std::set<int64_t>& adopt, bool apply,
                         bool json) {
  std::optional<ProgressLine> line;
  storage::RepairOptions options{.directory = storage::FollowLinks(directory), .adopt = adopt};
  if (absl::Status ours = apply ? CheckOwner(options.directory) : absl::OkStatus(); !ours.ok()) {
    console.Fail(ours);
    return ExitCode::kFailure;
  }
  options.read = {.codec_threads = 2, .io = storage::IoQueueKind::kAuto, .io_depth = 8};
  CatchInterrupts();
  options.cancelled = IsInterrupted;
  if (console.progress()) {
    options.progress = [&](const storage::RepairProgress& progress) {
      if (!line) line.emplace(console, progress.bytes_total);
      line->Update(fmt::format("step {}", progress.step), progress.bytes_done);
    };
  }
  const absl::StatusOr<RepairReport> report = apply ? storage::RepairStore(storage::PosixFileSystem(), options)
                                                    : storage::PlanRepair(storage::PosixFileSystem(), options);
  line.reset();
  if (!report.ok()) {
    if (!absl::IsCancelled(report.status())) {
      console.Fail(report.status());
    } else {
      console.Fail(apply ? "interrupted; each change so far is complete; the next repair does the rest"
                         : "interrupted; nothing was changed");
    }
    return WriteExitCode(report.status());
  }
  console.PrintData(json ? ReportJson(directory, *report, apply) : ReportText(console, directory, *report, apply));
  if (report->changes.empty()) {
    console.Note("there is nothing to repair");
  } else if (!apply) {
    const bool removes = std::any_of(report->changes.begin(), report->changes.end(),
                                     [](const StoreChange& change) { return change.adoptable; });
    console.Note(removes ? "nothing was changed; --apply does it, and removes what --adopt would commit"
                         : "nothing was changed; --apply does it");
  }
  return Judge(*report, apply);
}

}  // namespace

void AddRepair(CommandLine& line) {
  const auto apply = std::make_shared<bool>(false);
  const auto adopt = std::make_shared<std::vector<int64_t>>();
  CLI::App* repair =
      line.Add({.group = CommandGroup::kPlace,
                .name = "repair",
                .description = "List what is wrong with the store, and how to repair it; with --apply repair it",
                .writes = true},
               [apply, adopt](const Session& session) {
                 return RepairDirectory(session.console, session.directory, {adopt->begin(), adopt->end()}, *apply,
                                        session.json);
               });
  repair->add_flag("--apply", *apply, "Do the repair; takes the store's lock meanwhile");
  repair
      ->add_option("--adopt", *adopt,
                   "Commit this step too: its save was cut short, but all of its files are there; may be repeated")
      ->type_name("STEP")
      ->check(CLI::NonNegativeNumber)
      ->allow_extra_args(false);
  repair->footer(R"(
Reads every entry of the journal and every byte of every committed step. Makes a journal or an index anew that is missing
or damaged, moves damaged steps to quarantine/, and removes what dead processes have left, such as the files of saves that
were cut short. If all files of such a save are there, the plan says so: --adopt commits a copy of them. Converts a store
of the first format.

Example:
  checkpoint-inspect --store run/ckpt repair
  checkpoint-inspect --store run/ckpt repair --apply
  checkpoint-inspect --store run/ckpt repair --adopt 500 --apply)");
}

}  // namespace tidemark::inspect
