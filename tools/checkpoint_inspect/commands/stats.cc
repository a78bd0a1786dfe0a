#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_split.h"
#include "fmt/format.h"
#include "storage/bytes/ids.h"
#include "tools/checkpoint_inspect/checks/disk_usage.h"
#include "tools/checkpoint_inspect/checks/growth.h"
#include "tools/checkpoint_inspect/commands/commands.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/table.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

constexpr std::array kStates = {StepState::kCommitted, StepState::kDamaged, StepState::kLost,
                                StepState::kFailed,    StepState::kDeleted, StepState::kUnsaved};

// Rows of the table of reasons; JSON has all.
constexpr size_t kReasonsMax = 8;

struct Sum {
  size_t steps = 0;
  uint64_t logical_bytes = 0;
  uint64_t stored_bytes = 0;
  uint64_t reused_bytes = 0;

  void Add(const StepInfo& info) {
    ++steps;
    logical_bytes += info.logical_bytes;
    stored_bytes += info.stored_bytes;
    reused_bytes += info.reused_bytes;
  }
};

struct KeptSteps {
  std::string reason;
  Sum sum;
};

// The reasons, each without what stands in parentheses at its end: a step's own figures.
std::string WithoutFigures(std::string_view reasons) {
  std::vector<std::string_view> kept;
  for (const absl::string_view part : absl::StrSplit(absl::string_view(reasons.data(), reasons.size()), "; ")) {
    std::string_view reason(part.data(), part.size());
    const size_t figures = reason.rfind(" (");
    if (reason.ends_with(')') && figures != std::string_view::npos) reason = reason.substr(0, figures);
    kept.push_back(reason);
  }
  return fmt::format("{}", fmt::join(kept, "; "));
}

struct Statistics {
  std::map<StepState, Sum> by_state;
  std::vector<KeptSteps> kept;  // of the committed steps, why they stay; the most bytes first
  bool idle = false;            // nothing is being saved, so nothing is forecast
  DiskUsage disk;
  std::optional<FileSystemRoom> room;
  Growth growth;

  Sum committed() const {
    const auto found = by_state.find(StepState::kCommitted);
    return found == by_state.end() ? Sum() : found->second;
  }
  std::optional<absl::Duration> until_full(std::optional<double> bytes_per_day) const {
    return room && !idle ? TimeUntilFull(room->free_bytes, bytes_per_day) : std::nullopt;
  }
};

// Retention keeps a pinned step whatever else it would say of it.
std::string KeptBecause(const StepInfo& info) { return info.pinned ? "pinned" : WithoutFigures(info.kept); }

absl::StatusOr<Statistics> Gather(const StoreReader& reader, const std::string& directory, absl::Time now) {
  Statistics statistics;
  std::map<std::string, Sum> kept;
  std::set<std::string> folders;
  for (const StepInfo& info : reader.Steps()) {
    statistics.by_state[info.state].Add(info);
    if (info.state == StepState::kCommitted) kept[KeptBecause(info)].Add(info);
    const auto attempt = storage::FromHex(info.attempt);
    if (attempt && IsOnDisk(info)) folders.insert(storage::StepFolderName(info.step, storage::AttemptId{*attempt}));
  }
  for (const auto& [reason, sum] : kept) statistics.kept.push_back({reason, sum});
  std::stable_sort(statistics.kept.begin(), statistics.kept.end(),
                   [](const KeptSteps& a, const KeptSteps& b) { return a.sum.stored_bytes > b.sum.stored_bytes; });
  statistics.growth = EstimateGrowth(reader.Steps());
  statistics.idle = statistics.growth.IsIdle(now);
  absl::StatusOr<DiskUsage> disk = MeasureDisk(directory, folders);
  if (!disk.ok()) return disk.status();
  statistics.disk = *disk;
  statistics.room = MeasureRoom(directory);
  return statistics;
}

std::string FormatStates(const Console& console, const Statistics& statistics) {
  using enum Table::Align;
  Table table(
      {{"STATE"}, {"STEPS", kRight}, {"LOGICAL", kRight}, {"STORED", kRight}, {"RATIO", kRight}, {"REUSED", kRight}});
  for (const auto& [state, sum] : statistics.by_state) {
    table.AddRow({{std::string(StepStateName(state)), StateColour(state)},
                  {fmt::format("{}", sum.steps)},
                  {HumanBytes(sum.logical_bytes)},
                  {HumanBytes(sum.stored_bytes)},
                  {Ratio(sum.logical_bytes, sum.stored_bytes)},
                  {ReusedShare(sum.reused_bytes, sum.stored_bytes)}});
  }
  const Sum committed = statistics.committed();
  std::string text = table.Format(console);
  if (committed.logical_bytes == 0) return text;
  return text + console.Fold(fmt::format("compression: {} of logical size ({} counting shared chunks in every step)",
                                         ShareText(static_cast<double>(committed.stored_bytes),
                                                   static_cast<double>(committed.logical_bytes)),
                                         ShareText(static_cast<double>(committed.stored_bytes + committed.reused_bytes),
                                                   static_cast<double>(committed.logical_bytes))),
                             2);
}

struct Place {
  const char* name;
  const char* note;  // what to do about it; may be empty
  uint64_t bytes;
};

std::vector<Place> Places(const DiskUsage& disk) {
  return {
      {"steps", "", disk.steps},
      {"other attempts", "deleted steps still referenced or being read, and unfinished saves; the trainer removes them",
       disk.other_attempts},
      {"quarantine", "damaged files that a repair or a trainer set aside; remove them by hand", disk.quarantine},
      {"journal", "", disk.journal},
      {"index", "", disk.index},
      {"journal.broken-*", "a damaged journal that was made anew; can be removed by hand", disk.broken_journals},
      {"retired.tmk", "a removed file that the next save overwrites", disk.retired},
      {"other", "", disk.other}};
}

std::string FormatPlaces(const Console& console, const DiskUsage& disk) {
  using enum Table::Align;
  std::vector<Place> places = Places(disk);
  std::stable_sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.bytes > b.bytes; });
  Table table({{"ON DISK"}, {"BYTES", kRight}, {"SHARE", kRight}});
  for (const Place& place : places) {
    if (place.bytes == 0) continue;
    table.AddRow({{place.name},
                  {HumanBytes(place.bytes)},
                  {ShareText(static_cast<double>(place.bytes), static_cast<double>(disk.total()))}});
    if (*place.note != '\0') table.AddNote(place.note);
  }
  table.AddRow({{"total"}, {HumanBytes(disk.total())}, {}});
  return table.Format(console);
}

std::string FormatKept(const Console& console, const std::vector<KeptSteps>& kept) {
  using enum Table::Align;
  if (kept.empty()) return "";
  Table table({{"KEPT BECAUSE", kLeft, Table::Narrow::kWrap}, {"STEPS", kRight}, {"STORED", kRight}});
  const auto add = [&](const std::string& reason, const Sum& sum) {
    table.AddRow({{reason}, {fmt::format("{}", sum.steps)}, {HumanBytes(sum.stored_bytes)}});
  };
  Sum others;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (i < kReasonsMax) {
      add(kept[i].reason.empty() ? "no reason is on record" : Escape(kept[i].reason), kept[i].sum);
    } else {
      others.steps += kept[i].sum.steps;
      others.stored_bytes += kept[i].sum.stored_bytes;
    }
  }
  if (others.steps > 0) add("for other reasons", others);
  return "\n" + table.Format(console);
}

std::string BytesPerDay(double bytes) { return HumanBytes(static_cast<uint64_t>(std::min(bytes, 1e18))) + " a day"; }

std::string GrowthText(const Statistics& statistics, absl::Time now) {
  const Growth& growth = statistics.growth;
  if (!growth.between_saves) return "growth: no forecast yet: it takes two saves at different times\n";
  const std::string each = fmt::format("{} in each of the last {} saves",
                                       HumanBytes(static_cast<uint64_t>(growth.bytes_per_save)), growth.saves);
  const std::optional<double> written = growth.written_per_day();
  if (!written) {
    return fmt::format("growth: no forecast yet: the last {} saves span only {} ({} each)\n", growth.saves,
                       Age(growth.span), HumanBytes(static_cast<uint64_t>(growth.bytes_per_save)));
  }
  if (statistics.idle) {
    return fmt::format(
        "growth: nothing is being saved: the last save was {} ago, and saves were {} apart. During the run {} were "
        "written ({})\n",
        Age(now - *growth.last_save), Age(*growth.between_saves), BytesPerDay(*written), each);
  }
  std::string text =
      fmt::format("growth: {} written ({}, {} apart)\n", BytesPerDay(*written), each, Age(*growth.between_saves));
  if (const std::optional<double> stays = growth.kept_per_day()) {
    text += fmt::format(
        "  {} of that stays if retention keeps as much as before: {} of the bytes of the older half of all saves still "
        "exist\n",
        BytesPerDay(*stays), ShareText(*growth.kept_share, 1));
  }
  return text;
}

std::string DiskText(const Statistics& statistics) {
  if (!statistics.room) return "disk: the free space is not known\n";
  const FileSystemRoom& room = *statistics.room;
  const uint64_t used = room.total_bytes - std::min(room.free_bytes, room.total_bytes);
  std::string text =
      fmt::format("disk: {} of {} free; this store is {} of the {} in use", HumanBytes(room.free_bytes),
                  HumanBytes(room.total_bytes),
                  ShareText(static_cast<double>(statistics.disk.total()), static_cast<double>(used)), HumanBytes(used));
  if (statistics.idle) return text + "\n";
  const std::optional<double> written = statistics.growth.written_per_day();
  const auto stays = statistics.until_full(statistics.growth.kept_per_day());
  const auto all = statistics.until_full(written);
  if (stays) {
    text += fmt::format("; full in {} at this rate of saves and retention", Age(*stays));
  } else if (written && statistics.growth.kept_share) {
    text += "; it does not fill up at this rate of saves and retention";
  }
  if (all && (!stays || *all < *stays)) text += fmt::format("; in {} if retention deleted nothing", Age(*all));
  return text + "\n";
}

std::string FoldLines(const Console& console, std::string_view lines) {
  std::string folded;
  while (!lines.empty()) {
    const size_t end = lines.find('\n');
    folded += console.Fold(lines.substr(0, end), 2);
    lines.remove_prefix(end + 1);
  }
  return folded;
}

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json DaysOrNull(const std::optional<absl::Duration>& time) {
  return time ? Json(absl::FDivDuration(*time, absl::Hours(24))) : Json(nullptr);
}

Json SumToJson(const Sum& sum) {
  return {{"steps", sum.steps},
          {"logical_bytes", sum.logical_bytes},
          {"stored_bytes", sum.stored_bytes},
          {"reused_bytes", sum.reused_bytes}};
}

void AddGrowth(const Statistics& statistics, Json& document) {
  const Growth& growth = statistics.growth;
  Json seconds = nullptr;
  if (growth.between_saves) seconds = absl::ToDoubleSeconds(*growth.between_saves);
  document["growth"] = {{"saves", growth.saves},
                        {"bytes_per_save", growth.bytes_per_save},
                        {"seconds_between_saves", std::move(seconds)},
                        {"kept_share", OrNull(growth.kept_share)},
                        {"written_bytes_per_day", OrNull(growth.written_per_day())},
                        {"kept_bytes_per_day", OrNull(growth.kept_per_day())}};
  Json& room = document["file_system"] = nullptr;
  if (!statistics.room) return;
  room = {{"free_bytes", statistics.room->free_bytes},
          {"total_bytes", statistics.room->total_bytes},
          {"days_until_full", DaysOrNull(statistics.until_full(growth.kept_per_day()))},
          {"days_until_full_without_retention", DaysOrNull(statistics.until_full(growth.written_per_day()))}};
}

std::string FormatAsJson(const Invocation& invocation, const Statistics& statistics) {
  Json document = NewDocument(invocation.reader, invocation.directory);
  Json& states = document["states"] = Json::object();
  for (const StepState state : kStates) {
    const auto found = statistics.by_state.find(state);
    states[std::string(StepStateName(state))] = SumToJson(found == statistics.by_state.end() ? Sum() : found->second);
  }
  Json& kept = document["kept"] = Json::array();
  for (const KeptSteps& group : statistics.kept) {
    kept.push_back({{"reason", group.reason}, {"steps", group.sum.steps}, {"stored_bytes", group.sum.stored_bytes}});
  }
  const DiskUsage& disk = statistics.disk;
  document["disk"] = {{"steps", disk.steps},           {"other_attempts", disk.other_attempts},
                      {"quarantine", disk.quarantine}, {"journal", disk.journal},
                      {"index", disk.index},           {"broken_journals", disk.broken_journals},
                      {"retired", disk.retired},       {"other", disk.other},
                      {"total", disk.total()},         {"unread_directories", disk.unread}};
  AddGrowth(statistics, document);
  return Dump(document);
}

}  // namespace

ExitCode ShowStatistics(const Invocation& invocation) {
  Console& console = invocation.console;
  const absl::StatusOr<Statistics> statistics = Gather(invocation.reader, invocation.directory, invocation.now);
  if (!statistics.ok()) {
    console.Fail(statistics.status());
    return ExitCode::kFailure;
  }
  if (invocation.json) {
    console.PrintData(FormatAsJson(invocation, *statistics));
  } else {
    console.PrintData(FormatStates(console, *statistics) + "\n" + FormatPlaces(console, statistics->disk) +
                      FormatKept(console, statistics->kept) + "\n" +
                      FoldLines(console, GrowthText(*statistics, invocation.now)) +
                      FoldLines(console, DiskText(*statistics)));
  }
  if (statistics->disk.unread > 0) {
    console.Warn(
        fmt::format("{} directories could not be read, so the bytes on disk leave them out", statistics->disk.unread));
  }
  return StoreExitCode(invocation.reader);
}

void AddStats(CommandLine& line) {
  CLI::App* stats =
      line.Add({.group = CommandGroup::kLook,
                .name = "stats",
                .description = "Show what uses the disk, how fast it grows, and when the disk will be full"},
               ShowStatistics);
  stats->footer(R"(
Adds up the sizes of all files in the store, and reads none of them. Growth is measured over the last 100 saves, and over
the older half of all saves as far as retention has kept them. Quotas are not considered. There is no forecast if these
saves span less than a minute, or if no save has come for ten times their usual distance.

KEPT BECAUSE is the reason that the trainer recorded when it last applied its retention rules. 'prune' records no reason.

Example:
  checkpoint-inspect --store run/ckpt stats)");
}

}  // namespace tidemark::inspect
