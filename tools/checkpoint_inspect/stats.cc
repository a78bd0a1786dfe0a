#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_split.h"
#include "fmt/format.h"
#include "storage/shard/ids.h"
#include "tools/checkpoint_inspect/commands.h"
#include "tools/checkpoint_inspect/disk_usage.h"
#include "tools/checkpoint_inspect/growth.h"
#include "tools/checkpoint_inspect/json.h"
#include "tools/checkpoint_inspect/steps.h"
#include "tools/checkpoint_inspect/table.h"
#include "tools/checkpoint_inspect/text.h"

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
  for (const StepInfo& info : reader.steps()) {
    statistics.by_state[info.state].Add(info);
    if (info.state == StepState::kCommitted) kept[KeptBecause(info)].Add(info);
    const auto attempt = storage::FromHex(info.attempt);
    if (attempt && IsOnDisk(info)) folders.insert(storage::StepFolderName(info.step, storage::AttemptId{*attempt}));
  }
  for (const auto& [reason, sum] : kept) statistics.kept.push_back({reason, sum});
  std::stable_sort(statistics.kept.begin(), statistics.kept.end(),
                   [](const KeptSteps& a, const KeptSteps& b) { return a.sum.stored_bytes > b.sum.stored_bytes; });
  statistics.growth = EstimateGrowth(reader.steps());
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
  return text +
         fmt::format(
             "compression: the committed steps are stored in {} of their logical bytes; less what they share "
             "with other steps, in {}\n",
             ShareText(static_cast<double>(committed.stored_bytes + committed.reused_bytes),
                       static_cast<double>(committed.logical_bytes)),
             ShareText(static_cast<double>(committed.stored_bytes), static_cast<double>(committed.logical_bytes)));
}

struct Place {
  const char* name;
  const char* note;  // what to do about it; may be empty
  uint64_t bytes;
};

std::vector<Place> Places(const DiskUsage& disk) {
  return {{"steps", "", disk.steps},
          {"other attempts",
           "of deleted or replaced steps that others refer to or somebody reads, or of a save that "
           "goes on; a trainer removes them",
           disk.other_attempts},
          {"quarantine", "damaged; to be looked at, and removed by hand", disk.quarantine},
          {"manifest", "", disk.manifest},
          {"manifest.broken-*", "replaced by a rebuild; may be removed by hand", disk.broken_manifests},
          {"disk-reserve", "", disk.reserve},
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
  Table table({{"KEPT BECAUSE"}, {"STEPS", kRight}, {"STORED", kRight}});
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
  if (!growth.between_saves) return "growth: not known, for that takes two saves at different times\n";
  const std::string each = fmt::format("{} in each of the last {} saves",
                                       HumanBytes(static_cast<uint64_t>(growth.bytes_per_save)), growth.saves);
  const std::optional<double> written = growth.written_per_day();
  if (!written) {
    return fmt::format("growth: not forecast, for the saves looked at came within {}, too short a time ({})\n",
                       Age(growth.span), each);
  }
  if (statistics.idle) {
    return fmt::format(
        "growth: nothing is being saved, for the last save was {} ago, and they were {} apart. While the run "
        "went on, {} were written ({})\n",
        Age(now - *growth.last_save), Age(*growth.between_saves), BytesPerDay(*written), each);
  }
  std::string text =
      fmt::format("growth: {} written ({}, {} apart)\n", BytesPerDay(*written), each, Age(*growth.between_saves));
  if (const std::optional<double> stays = growth.kept_per_day()) {
    text += fmt::format(
        "  {} of that stays, if as large a share is kept as so far: {} of what the older half of all "
        "saves wrote is still there\n",
        BytesPerDay(*stays), ShareText(*growth.kept_share, 1));
  }
  return text;
}

std::string DiskText(const Statistics& statistics) {
  if (!statistics.room) return "disk: how much is free is not known\n";
  const FileSystemRoom& room = *statistics.room;
  const uint64_t used = room.total_bytes - std::min(room.free_bytes, room.total_bytes);
  std::string text = fmt::format("disk: {} of {} free; of the {} that are not, this store has {}",
                                 HumanBytes(room.free_bytes), HumanBytes(room.total_bytes), HumanBytes(used),
                                 ShareText(static_cast<double>(statistics.disk.total()), static_cast<double>(used)));
  if (statistics.idle) return text + "\n";
  const std::optional<double> written = statistics.growth.written_per_day();
  const auto stays = statistics.until_full(statistics.growth.kept_per_day());
  const auto all = statistics.until_full(written);
  if (stays) {
    text += fmt::format("; full in {} if saves and retention go on like this", Age(*stays));
  } else if (written && statistics.growth.kept_share) {
    text += "; it does not fill up if saves and retention go on like this";
  }
  if (all && (!stays || *all < *stays)) text += fmt::format("; in {} if nothing were let go", Age(*all));
  return text + "\n";
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
  document["disk"] = {{"steps", disk.steps},
                      {"other_attempts", disk.other_attempts},
                      {"quarantine", disk.quarantine},
                      {"manifest", disk.manifest},
                      {"broken_manifests", disk.broken_manifests},
                      {"reserve", disk.reserve},
                      {"other", disk.other},
                      {"total", disk.total()},
                      {"unread_directories", disk.unread}};
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
                      FormatKept(console, statistics->kept) + "\n" + GrowthText(*statistics, invocation.now) +
                      DiskText(*statistics));
  }
  if (statistics->disk.unread > 0) {
    console.Warn(fmt::format("{} directories could not be looked into, and are not among the bytes on disk",
                             statistics->disk.unread));
  }
  return StoreExitCode(invocation.reader);
}

void AddStats(CommandLine& line) {
  CLI::App* stats =
      line.Add({.group = CommandGroup::kLook,
                .name = "stats",
                .description = "Say what takes the room, how fast it grows, and when the disk will be full"},
               ShowStatistics);
  stats->footer(R"(
Counts the bytes of every file in the store, and reads none of them. Growth is told from the last 100 saves and from what
retention has left of the older half of all; quotas are not known. Nothing is forecast where these saves came within less
than a minute, or where the last one is more than ten times as long ago as saves were apart: nothing is being saved then.

KEPT BECAUSE: why the trainer's rules of retention keep a step, as recorded when they were last applied. What 'prune'
keeps gets no reason by that, and a rebuilt manifest has none. disk-reserve is a megabyte that the store has set aside,
so that steps can be deleted on a full disk: do not delete it.

Example:
  checkpoint-inspect --store run/ckpt stats)");
}

}  // namespace tidemark::inspect
