#include "tests/crash/enumeration.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <unordered_set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "storage/io/check.h"
#include "tests/crash/crash_names.h"
#include "tests/crash/index_fates.h"
#include "tests/crash/reopening.h"

namespace tidemark::crash {
namespace {

using storage::Crash;
using storage::DiskImage;
using storage::DiskLog;
using storage::DiskOperation;
using storage::LostOperation;
using storage::SimulatedDisk;

// What was promised before a crash, and what of it somebody may ask for.
Oracle OracleAt(Oracle oracle, const DiskLog& log, size_t prefix) {
  for (size_t i = 0; i < prefix; ++i) {
    if (log.operations[i].kind == DiskOperation::Kind::kMark) oracle.Hear(log.operations[i].name);
  }
  return oracle;
}

uint64_t MarksHash(const DiskLog& log, size_t prefix) {
  uint64_t hash = 0;
  for (size_t i = 0; i < prefix; ++i) {
    if (log.operations[i].kind != DiskOperation::Kind::kMark) continue;
    hash = (hash ^ std::hash<std::string>()(log.operations[i].name)) * 0x9E3779B97F4A7C15u;
  }
  return hash;
}

// Any crash of the log.
Crash RandomCrash(const DiskLog& log, std::mt19937_64& random) {
  Crash crash;
  crash.prefix = random() % (log.operations.size() + 1);
  const uint64_t how = random() % 4;  // all is kept, all is lost, or any part
  for (const size_t index : log.Unsynced(crash.prefix)) {
    if (how == 0 || (how > 1 && random() % 2 == 0)) continue;
    LostOperation lost{.index = index};
    const bool write = log.operations[index].kind == DiskOperation::Kind::kWrite;
    if (how > 1 && write && random() % 2 == 0) lost.sector_mask = random();
    crash.lost.push_back(lost);
  }
  return crash;
}

// Numbers that depend on the seed and on what has befallen the store alone: what is drawn for one state does not depend
// on how many others there are.
std::mt19937_64 RandomFor(uint64_t seed, const Disaster& disaster) {
  return std::mt19937_64(seed * 0x9E3779B97F4A7C15u ^ std::hash<std::string>()(NameOf(disaster)));
}

// Of more crashes than may be looked at, the same number at every prefix. The first of each prefix are those without
// loss and with the most. Where there are fewer than prefixes, at prefixes the same way apart, of each kind in turn.
std::vector<Crash> Choose(std::vector<Crash> crashes, size_t count, uint64_t seed) {
  if (crashes.size() <= count) return crashes;
  std::map<size_t, std::vector<std::pair<uint64_t, Crash>>> at;
  for (Crash& crash : crashes) {
    const uint64_t place = RandomFor(seed, {.crash = crash})();
    at[crash.prefix].emplace_back(place, std::move(crash));
  }
  for (auto& [prefix, some] : at) {
    std::sort(some.begin(), some.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    const auto fewer = [](const auto& a, const auto& b) { return a.second.lost.size() < b.second.lost.size(); };
    std::iter_swap(some.begin(), std::min_element(some.begin(), some.end(), fewer));
    if (some.size() > 1) std::iter_swap(some.begin() + 1, std::max_element(some.begin() + 1, some.end(), fewer));
  }
  std::vector<Crash> chosen;
  if (count < at.size()) {
    for (size_t i = 0; i < count; ++i) {
      const auto& some = std::next(at.begin(), static_cast<ptrdiff_t>(i * at.size() / count))->second;
      chosen.push_back(some[i % std::min<size_t>(3, some.size())].second);
    }
    return chosen;
  }
  for (size_t i = 0; chosen.size() < count; ++i) {
    for (auto& [prefix, some] : at) {
      if (i < some.size() && chosen.size() < count) chosen.push_back(some[i].second);
    }
  }
  return chosen;
}

// Whether the journal was sound before operation `prefix`.
bool IsSoundAt(bool at_begin, const DiskLog& log, size_t prefix) {
  const auto begin = log.operations.begin();
  return at_begin || std::any_of(begin, begin + static_cast<ptrdiff_t>(prefix), [](const DiskOperation& operation) {
           return operation.kind == DiskOperation::Kind::kMark && operation.name == kJournalIsSound;
         });
}

class Enumerator {
 public:
  Enumerator(const Recording& recording, const EnumerationOptions& options)
      : recording_(recording), options_(options) {}

  Enumeration Run();
  // The state that `disasters` leave, one after the other.
  Enumeration Visit(const std::vector<Disaster>& disasters);

 private:
  // What has befallen a store, with the logs of what was going on then.
  using History = std::vector<std::pair<const DiskLog*, Disaster>>;
  struct Visited {
    bool sound = false;
    Oracle oracle;
    DiskLog log;
  };

  Visited Look(const DiskImage& image, Oracle oracle, const History& history, bool again);
  // Nothing where that state was seen before.
  std::optional<Visited> VisitCrash(const Disaster& disaster, bool again);
  void VisitSeconds(const Visited& first, const Disaster& disaster, size_t count, std::mt19937_64& random);
  void VisitFurther(const Visited& first, const Crash& crash, size_t count, std::mt19937_64& random);
  bool enough() const { return result_.findings.size() >= options_.findings; }
  // To open a store that was closed in good order is another path, but costs as much again as everything else.
  static bool Again(std::mt19937_64& random) { return random() % 4 == 0; }

  const Recording& recording_;
  const EnumerationOptions options_;
  // Images, with what was promised by then. Whatever befell a store, the same state is looked at once.
  std::unordered_set<uint64_t> seen_;
  Enumeration result_;
};

Enumerator::Visited Enumerator::Look(const DiskImage& image, Oracle oracle, const History& history, bool again) {
  bool is_sound = recording_.journal_is_sound;
  for (const auto& [log, disaster] : history) is_sound = IsSoundAt(is_sound, *log, disaster.crash.prefix);
  if (!is_sound && recording_.facts_are_lost) oracle.LoseJournal();
  const auto& [last_log, last] = history.back();
  SimulatedDisk disk(image, last.index == IndexFate::kOpen ? last_log->boot : image);
  const std::unique_ptr<storage::FileSystem> front = options_.disorder ? options_.disorder(disk) : nullptr;
  Reopening reopening = Reopen(disk, front ? *front : disk, oracle, {.journal_is_sound = is_sound, .again = again});
  Visited visited{.sound = reopening.violations.empty(), .oracle = std::move(oracle), .log = disk.log()};
  if (visited.sound) return visited;
  Finding finding{
      .violations = std::move(reopening.violations), .warnings = std::move(reopening.warnings), .image = image};
  std::vector<std::string> names;
  for (const auto& [log, disaster] : history) {
    names.push_back(NameOf(disaster));
    absl::StrAppend(&finding.description, "crash ", names.back(), ": ", disaster.crash.ToString(*log), "\n");
    for (size_t i = 0; i < disaster.crash.prefix; ++i) {
      if (log->operations[i].kind != DiskOperation::Kind::kMark) continue;
      absl::StrAppend(&finding.description, "  ", i, ": ", log->operations[i].name, "\n");
    }
  }
  finding.crash = absl::StrJoin(names, "/");
  if (!options_.counts || options_.counts(finding)) result_.findings.push_back(std::move(finding));
  return visited;
}

std::optional<Enumerator::Visited> Enumerator::VisitCrash(const Disaster& disaster, bool again) {
  const Crash& crash = disaster.crash;
  DiskImage image = recording_.log.StateAfter(crash.prefix, crash.lost);
  image = WithIndexOf(disaster, image, recording_.log);
  const uint64_t is_open = disaster.index == IndexFate::kOpen ? 1 : 0;
  if (!seen_.insert(image.Fingerprint() ^ (MarksHash(recording_.log, crash.prefix) * 31 + is_open)).second) {
    return std::nullopt;
  }
  ++(disaster.index != IndexFate::kKept ? result_.indexed : result_.crashed);
  return Look(image, OracleAt(recording_.before, recording_.log, crash.prefix), {{&recording_.log, disaster}}, again);
}

// `count` of them, or all that can be found.
void Enumerator::VisitSeconds(const Visited& first, const Disaster& disaster, size_t count, std::mt19937_64& random) {
  size_t tries = 64 + 4 * count;
  while (count > 0 && tries-- > 0 && !enough()) {
    const Crash second = RandomCrash(first.log, random);
    const DiskImage image = first.log.StateAfter(second.prefix, second.lost);
    const uint64_t marks = MarksHash(recording_.log, disaster.crash.prefix) * 31 + MarksHash(first.log, second.prefix);
    if (!seen_.insert(image.Fingerprint() ^ marks).second) continue;
    ++result_.recovered;
    --count;
    Look(image, OracleAt(first.oracle, first.log, second.prefix),
         {{&recording_.log, disaster}, {&first.log, {.crash = second}}}, Again(random));
  }
  result_.exhausted = count > 0 && !enough();
}

void Enumerator::VisitFurther(const Visited& first, const Crash& crash, size_t count, std::mt19937_64& random) {
  // A kill loses nothing.
  const auto fate = crash.lost.empty() && random() % 2 == 0 ? IndexFate::kOpen : static_cast<IndexFate>(random() % 12);
  // Where the journal cannot be read, the index may have what it had.
  const bool may_change =
      fate == IndexFate::kOpen || IsSoundAt(recording_.journal_is_sound, recording_.log, crash.prefix);
  if (fate == IndexFate::kKept || fate > IndexFate::kOpen || !may_change ||
      (fate == IndexFate::kOpen && !crash.lost.empty())) {
    return VisitSeconds(first, {.crash = crash}, count, random);
  }
  Disaster disaster{.crash = crash, .index = fate};
  if (fate == IndexFate::kOld) disaster.draw = random() % (crash.prefix + 1);
  if (fate == IndexFate::kFlipped) disaster.draw = random();
  const std::optional<Visited> other = VisitCrash(disaster, Again(random));
  if (!other) return VisitSeconds(first, {.crash = crash}, count, random);
  if (other->sound) VisitSeconds(*other, disaster, count - 1, random);
}

Enumeration Enumerator::Run() {
  std::vector<Crash> crashes;
  std::unordered_set<uint64_t> seen;
  storage::CrashOptions of_log{.all_pairs_up_to = 40, .samples = 32, .torn = 16, .seed = options_.seed};
  // Under a sanitizer fewer states are wanted than there are prefixes. Then Choose takes no more than one of each, and
  // to make tens of thousands of images for that would take most of the time.
  if (options_.states <= recording_.log.operations.size()) {
    of_log = {.all_subsets_up_to = 2, .all_pairs_up_to = 0, .samples = 4, .torn = 2, .seed = options_.seed};
  }
  result_.possible = storage::ForEachCrash(recording_.log, of_log, seen, [&](const Crash& crash, const DiskImage&) {
    crashes.push_back(crash);
    return true;
  });
  // However many there are after one crash, half of the states are of what comes then.
  const size_t reserved = options_.further ? options_.states / 2 : 0;
  crashes = Choose(std::move(crashes), options_.states - reserved, options_.seed);
  size_t further = 0;  // so many were looked at
  std::optional<Visited> last;
  Crash last_crash;
  for (size_t i = 0; i < crashes.size() && !enough(); ++i) {
    std::mt19937_64 random = RandomFor(options_.seed, {.crash = crashes[i]});
    std::optional<Visited> visited = VisitCrash({.crash = crashes[i]}, Again(random));
    // The states that are left are spread over all crashes. What one of them cannot take goes to the next.
    const size_t left =
        options_.states - std::min(options_.states, result_.states() - further + crashes.size() - i - 1);
    const size_t due = left * (i + 1) / crashes.size();
    if (options_.further && visited && visited->sound && due > further) {
      const size_t before = result_.states();
      VisitFurther(*visited, crashes[i], due - further, random);
      further += result_.states() - before;
    }
    if (options_.progress) options_.progress(result_.states());
    if (!visited || !visited->sound) continue;
    last = std::move(visited);
    last_crash = crashes[i];
  }
  // What the last crash could not take, most often because its state was seen before.
  if (options_.further && last && !enough() && result_.states() < options_.states) {
    std::mt19937_64 random = RandomFor(options_.seed, {.crash = last_crash});
    VisitSeconds(*last, {.crash = last_crash}, options_.states - result_.states(), random);
  }
  return std::move(result_);
}

Enumeration Enumerator::Visit(const std::vector<Disaster>& disasters) {
  const Visited first = *VisitCrash(disasters.front(), /*again=*/true);
  if (disasters.size() > 1) {
    const Crash& second = disasters[1].crash;
    ++result_.recovered;
    Look(first.log.StateAfter(second.prefix, second.lost), OracleAt(first.oracle, first.log, second.prefix),
         {{&recording_.log, disasters.front()}, {&first.log, disasters[1]}}, /*again=*/true);
  }
  return std::move(result_);
}

}  // namespace

Recording Play(const Scenario& scenario, const Disorder& disorder) {
  Recording recording{.journal_is_sound = scenario.journal_is_sound, .facts_are_lost = scenario.facts_are_lost};
  SimulatedDisk before;
  DiskImage image;
  if (scenario.prepare) {
    // What it leaves open is as after a kill.
    Stage stage(before, before);
    scenario.prepare(stage);
    image = before.image();
    const DiskLog log = before.log();
    recording.before = OracleAt(Oracle(), log, log.operations.size());
  }
  if (scenario.damage) {
    SimulatedDisk damaged(image);
    scenario.damage(damaged);
    image = damaged.image();
  }
  if (scenario.facts_are_lost) recording.before.LoseJournal();
  SimulatedDisk disk(image);
  const std::unique_ptr<storage::FileSystem> front = disorder ? disorder(disk) : nullptr;
  {
    Stage stage(disk, front ? *front : disk);
    scenario.drive(stage);
    recording.log = disk.log();
  }
  return recording;
}

Enumeration Enumerate(const Recording& recording, const EnumerationOptions& options) {
  return Enumerator(recording, options).Run();
}

Enumeration Reenact(const Recording& recording, std::string_view crash, const Disorder& disorder) {
  const auto disasters = ParseDisasters(crash);
  storage::Check(disasters && disasters->size() <= 2, "TIDEMARK_CRASH is no name of a crash");
  return Enumerator(recording, {.disorder = disorder}).Visit(*disasters);
}

void Report(const Finding& finding, std::string_view scenario, uint64_t seed) {
  std::string directory = testing::TempDir() + "tidemark-crash-XXXXXX";
  storage::Check(mkdtemp(directory.data()) != nullptr, "no directory for a crashed disk");
  const absl::Status exported = finding.image.ExportTo(directory);
  ADD_FAILURE() << "scenario " << scenario << ", TIDEMARK_CRASH_SEED=" << seed << " TIDEMARK_CRASH=" << finding.crash
                << "\n"
                << absl::StrJoin(finding.violations, "\n") << "\n"
                << finding.description << "warnings:\n"
                << absl::StrJoin(finding.warnings, "\n") << "\nthe disk is in " << directory << ": " << exported;
}

uint64_t CrashSeed() {
  const char* given = std::getenv("TIDEMARK_CRASH_SEED");
  return given != nullptr ? std::strtoull(given, nullptr, 10) : 1;
}

}  // namespace tidemark::crash
