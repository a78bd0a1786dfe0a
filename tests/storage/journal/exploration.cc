#include "tests/storage/journal/exploration.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "storage/bytes/byte_reader.h"
#include "storage/journal/appender.h"
#include "tests/storage/journal/explored_world.h"

namespace tidemark::storage {
namespace {

const std::string kFirstCommit = FactOf(Deed::kCommit, 0, 0);

class Explorer final : public Search<World> {
 public:
  explicit Explorer(const Exploration& exploration)
      : Search(exploration.states_max, exploration.seed), exploration_(exploration) {}

  Explored Explore() {
    World first;
    first.failed_syncs = exploration_.failed_syncs;
    first.power_losses = exploration_.power_losses;
    first.old_listings = exploration_.old_listings;
    first.denials = exploration_.denials;
    Start(first, exploration_.processes);
    return Run(std::move(first));
  }

 private:
  bool IsLeftOut(LeftOut rule) const { return exploration_.left_out == rule; }
  bool is_fenced() const { return !IsLeftOut(LeftOut::kFence); }

  static void Start(World& world, const std::vector<std::vector<Deed>>& processes) {
    world.processes.clear();
    for (const std::vector<Deed>& deeds : processes) {
      Process& process = world.processes.emplace_back();
      process.number = static_cast<int>(world.processes.size()) - 1;
      process.deeds = &deeds;
    }
  }

  void Events(const World& world) override {
    for (size_t p = 0; p < world.processes.size(); ++p) StepsOf(world, p);
    if (world.power_losses > 0) PowerLosses(world);
  }

  // --- What the journal's folder says ---

  int Intern(const std::string& contents) {
    const auto [entry, is_new] = numbers_.emplace(contents, static_cast<int>(table_.size()));
    if (is_new) table_.push_back(contents);
    return entry->second;
  }

  std::vector<std::optional<std::string>> Files(const Folder& folder, EntryNumber first, EntryNumber last) const {
    std::vector<std::optional<std::string>> files;
    for (EntryNumber number = first; number <= last; ++number) {
      const auto name = folder.find(number);
      files.push_back(name == folder.end() ? std::nullopt : std::make_optional(table_[name->second.contents]));
    }
    return files;
  }

  static EntryNumber Highest(const Folder& folder) { return folder.empty() ? 0 : folder.rbegin()->first; }

  // The facts of a whole reading, or no value and why.
  std::optional<std::vector<std::string>> Reading(const Folder& folder, std::string& why) const {
    JournalView view;
    if (absl::Status status = view.Learn(Files(folder, 1, Highest(folder))); !status.ok()) {
      why = std::string(status.message());
      return std::nullopt;
    }
    return FactsOf(view, view.last().number, is_fenced());
  }

  std::string Violation(const World& world) override {
    std::vector<EntryNumber> uncertain;
    for (const auto& [number, name] : world.folder) {
      if (name.state != Name::State::kDurable) uncertain.push_back(number);
    }
    for (size_t lost = 0; lost < (size_t{1} << uncertain.size()); ++lost) {
      Folder folder = world.folder;
      for (size_t i = 0; i < uncertain.size(); ++i) {
        if ((lost >> i & 1) != 0) folder.erase(uncertain[i]);
      }
      if (std::string violation = ViolationIn(world, folder); !violation.empty()) return violation;
    }
    return "";
  }

  std::string ViolationIn(const World& world, const Folder& folder) {
    std::string why;
    const auto facts = Reading(folder, why);
    if (!facts) return fmt::format("a reading is not whole: {}", why);
    const auto stands = [&](const std::string& fact) {
      return std::find(facts->begin(), facts->end(), fact) != facts->end();
    };
    for (const std::string& fact : world.appended) {
      if (!stands(fact)) return fmt::format("told to be there, and can be lost: {}", fact);
    }
    for (const std::string& fact : world.absent) {
      if (stands(fact)) return fmt::format("told not to be there, and is: {}", fact);
    }
    for (size_t i = 0; i < facts->size(); ++i) {
      if (IsReport((*facts)[i]) && !CheckFirstCommit({facts->begin(), facts->begin() + i}).ok()) {
        return fmt::format("on a step that is not there: {}", (*facts)[i]);
      }
    }
    return "";
  }

  // --- What processes do ---

  absl::Status CheckFact(const Process& process, const JournalView& view) const {
    if (process.next >= process.deeds->size()) return absl::OkStatus();
    const Deed deed = (*process.deeds)[process.next];
    if (deed != Deed::kReport && deed != Deed::kDelete) return absl::OkStatus();
    if (IsLeftOut(LeftOut::kCheckAgain) && !process.is_first_try) return absl::OkStatus();
    return CheckFirstCommit(FactsOf(view, view.last().number, is_fenced()));
  }

  void StepsOf(const World& world, size_t p) {
    const Process& process = world.processes[p];
    if (process.next >= process.deeds->size()) return;
    switch (process.appender.step()) {
      case Appender::Step::kNone:
        return BeginSteps(world, p);
      case Appender::Step::kWrite:
        return;  // Continue does it at once, because no other process sees the file
      case Appender::Step::kName:
        return NameSteps(world, p);
      case Appender::Step::kRead:
        return ReadSteps(world, p);
      case Appender::Step::kSync:
        return SyncSteps(world, p);
    }
  }

  void BeginSteps(const World& world, size_t p) {
    const Process& process = world.processes[p];
    const Deed deed = (*process.deeds)[process.next];
    const EntryNumber highest = Highest(world.folder);
    // A process reads before its first deed, and before each telling.
    if (!process.has_read) {
      const EntryNumber first = process.appender.view().established() + 1;
      for (EntryNumber last = world.old_listings > 0 ? first - 1 : highest; last <= highest; ++last) {
        World next = world;
        if (last < highest) --next.old_listings;
        Process& reader = next.processes[p];
        reader.has_read = true;
        if (!reader.appender.view().Learn(Files(world.folder, first, last)).ok()) continue;  // it reads again
        if (deed == Deed::kTell) Tell(next, p);
        Add(fmt::format("{} reads up to {}", p, last), std::move(next));
      }
      return;
    }
    World next = world;
    Process& writer = next.processes[p];
    const std::string fact = FactOf(deed, world.generation, writer.number);
    AppendDraft draft{.id = IdOf(fmt::format("{}.{}.{}", world.generation, writer.number, ++writer.appends)),
                      .epoch = writer.epoch};
    switch (deed) {
      case Deed::kBeginEpoch:
        draft.kind = AppendDraft::Kind::kBeginsEpoch;
        break;
      case Deed::kCommit:
      case Deed::kDelete:
        draft.kind = is_fenced() ? AppendDraft::Kind::kHolder : AppendDraft::Kind::kAnybody;
        break;
      case Deed::kReport:
        draft.kind = AppendDraft::Kind::kAnybody;
        break;
      case Deed::kTell:
        draft.kind = AppendDraft::Kind::kSettles;
        break;
    }
    if (deed != Deed::kTell) draft.facts = {fact};
    writer.is_first_try = true;
    writer.appender.Begin(std::move(draft), [&](const JournalView& view) { return CheckFact(writer, view); });
    writer.is_first_try = false;
    Continue(next, p);
    Add(fmt::format("{} begins: {}", p, deed == Deed::kTell ? "settling" : fact), std::move(next));
  }

  static EntryId IdOf(const std::string& text) { return EntryId{DigestOf(AsBytes(text)).bytes}; }

  // Carries out what needs no other process, and ends the deed when its append has ended.
  void Continue(World& world, size_t p) {
    Process& process = world.processes[p];
    Appender& appender = process.appender;
    if (appender.step() == Appender::Step::kWrite) appender.Written(absl::OkStatus());
    if (appender.step() == Appender::Step::kSync && IsLeftOut(LeftOut::kAcknowledgeSynced)) {
      appender.Synced(absl::OkStatus(), [](const JournalView&) { return absl::OkStatus(); });
    }
    if (appender.step() != Appender::Step::kNone) return;
    const Deed deed = (*process.deeds)[process.next];
    const bool is_there = appender.result() == Appender::Result::kEstablished;
    if (deed == Deed::kTell) {
      if (is_there) Tell(world, p);
      return;
    }
    const std::string fact = FactOf(deed, world.generation, process.number);
    if (is_there) {
      world.appended.insert(fact);
      if (deed == Deed::kBeginEpoch) process.epoch = appender.place().epoch;
      ++process.next;
    } else {
      if (appender.result() != Appender::Result::kUnknown) world.absent.insert(fact);
      process.next = process.deeds->size();  // it gives up
    }
  }

  // Tells what the process's view is sure of. The deed ends if that is everything.
  void Tell(World& world, size_t p) {
    Process& process = world.processes[p];
    const JournalView& view = process.appender.view();
    const bool at_sight = IsLeftOut(LeftOut::kTellEstablished);
    const EntryNumber sure = at_sight ? view.last().number : view.established();
    std::vector<std::string> facts = FactsOf(view, sure, is_fenced());
    for (const std::string& fact : facts) {
      if (IsCommit(fact)) world.appended.insert(fact);
    }
    // A commit is not there for good if a newer epoch is sure to stand without it.
    uint64_t epoch = 0;
    for (const KnownEntry& known : view.entries()) {
      if (known.place.number <= sure) epoch = known.place.epoch;
    }
    const bool has_first = std::find(facts.begin(), facts.end(), kFirstCommit) != facts.end();
    if (epoch > EpochOfFirst(view) && EpochOfFirst(view) > 0 && !has_first) {
      world.absent.insert(kFirstCommit);
    }
    if (sure == view.last().number) {
      ++process.next;
      process.has_read = false;
    }
  }

  // The epoch that the first process began, as far as the view knows; 0: none.
  static uint64_t EpochOfFirst(const JournalView& view) {
    const std::string begun = FactOf(Deed::kBeginEpoch, 0, 0);
    for (const KnownEntry& known : view.entries()) {
      if (known.counts &&
          std::find(known.entry.facts.begin(), known.entry.facts.end(), begun) != known.entry.facts.end()) {
        return known.entry.epoch;
      }
    }
    return 0;
  }

  // The same file as if another process had written it.
  static std::string Estranged(const std::string& bytes, EntryNumber number) {
    EntryFile file = *DecodeEntryFile(number, bytes);
    file.entry.id = IdOf(fmt::format("not {}", ToHex(file.entry.id.bytes)));
    return *EncodeEntryFile(file);
  }

  // The file that the process writes, with a rule broken.
  std::string Broken(const std::string& bytes, EntryNumber number) const {
    EntryFile file = *DecodeEntryFile(number, bytes);
    if (IsLeftOut(LeftOut::kCarry) || (IsLeftOut(LeftOut::kEpochCarries) && file.entry.begins_epoch)) {
      // Without what it carries it must state that all is durable, else it is no file of an entry.
      file.entry.durable = number - 1;
      file.carried.clear();
    }
    return *EncodeEntryFile(file);
  }

  void NameSteps(const World& world, size_t p) {
    const Appender& appender = world.processes[p].appender;
    const EntryNumber number = appender.number();
    const bool exists = world.folder.contains(number) && !IsLeftOut(LeftOut::kExclusiveName);
    World next = world;
    Process& process = next.processes[p];
    process.heard = false;  // of the descriptor that it opens now
    if (exists) {
      process.appender.Named(absl::AlreadyExistsError("the name exists"));
      Add(fmt::format("{} finds that {} exists", p, number), std::move(next));
      return;
    }
    next.folder[number] = Name{.contents = Intern(Broken(appender.file(), number))};
    if (world.denials > 0) {
      World denied = next;
      --denied.denials;
      if (IsLeftOut(LeftOut::kOwnId)) {
        Name& name = denied.folder[number];
        name.contents = Intern(Estranged(table_[name.contents], number));
      }
      denied.processes[p].appender.Named(absl::AlreadyExistsError("the name exists"));
      Add(fmt::format("{} names {} and is told that it exists", p, number), std::move(denied));
    }
    process.appender.Named(absl::OkStatus());
    Add(fmt::format("{} names {}", p, number), std::move(next));
  }

  void ReadSteps(const World& world, size_t p) {
    World next = world;
    Process& process = next.processes[p];
    const EntryNumber number = process.appender.number();
    const EntryNumber first = process.appender.view().established() + 1;
    EntryNumber last = Highest(world.folder);
    if (IsLeftOut(LeftOut::kReadAgain)) last = number;
    const auto check = [&](const JournalView& view) { return CheckFact(process, view); };
    process.appender.Read(Files(world.folder, first, last), check);
    Continue(next, p);
    Add(fmt::format("{} reads up to {}", p, last), std::move(next));
  }

  void SyncSteps(const World& world, size_t p) {
    // Opened only now, the descriptor has nothing to report of syncs that failed before.
    const bool heard = world.processes[p].heard && !IsLeftOut(LeftOut::kDescriptorFirst);
    const auto end = [&](World next, const absl::Status& status, const char* what) {
      Process& process = next.processes[p];
      process.heard = false;
      process.appender.Synced(status, [&](const JournalView& view) { return CheckFact(process, view); });
      Continue(next, p);
      Add(fmt::format("{} {}", p, what), std::move(next));
    };
    const absl::Status failure = absl::InternalError("the sync failed");
    if (heard) return end(world, failure, "hears of a sync that failed");
    if (world.failed_syncs > 0) {
      World next = world;
      --next.failed_syncs;
      for (auto& [number, name] : next.folder) {
        if (name.state != Name::State::kDurable) name.state = Name::State::kUncertain;
      }
      for (Process& process : next.processes) process.heard = true;
      end(std::move(next), failure, "syncs, which fails");
    }
    World next = world;
    for (auto& [number, name] : next.folder) {
      if (name.state == Name::State::kVisible) name.state = Name::State::kDurable;
    }
    end(std::move(next), absl::OkStatus(), "syncs");
  }

  void PowerLosses(const World& world) {
    std::vector<EntryNumber> uncertain;
    for (const auto& [number, name] : world.folder) {
      if (name.state != Name::State::kDurable) uncertain.push_back(number);
    }
    for (size_t lost = 0; lost < (size_t{1} << uncertain.size()); ++lost) {
      World next = world;
      --next.power_losses;
      ++next.generation;
      std::string event = "the power goes";
      for (size_t i = 0; i < uncertain.size(); ++i) {
        if ((lost >> i & 1) == 0) continue;
        next.folder.erase(uncertain[i]);
        event += fmt::format(", and takes {}", uncertain[i]);
      }
      for (auto& [number, name] : next.folder) name.state = Name::State::kDurable;
      Start(next, exploration_.after_power_loss);
      Add(std::move(event), std::move(next));
    }
  }

  const Exploration& exploration_;
  std::unordered_map<std::string, int> numbers_;
  std::vector<std::string> table_;
};

}  // namespace

std::ostream& operator<<(std::ostream& out, LeftOut rule) {
  switch (rule) {
    case LeftOut::kNothing:
      return out << "Nothing";
    case LeftOut::kCarry:
      return out << "Carry";
    case LeftOut::kEpochCarries:
      return out << "EpochCarries";
    case LeftOut::kDescriptorFirst:
      return out << "DescriptorFirst";
    case LeftOut::kExclusiveName:
      return out << "ExclusiveName";
    case LeftOut::kOwnId:
      return out << "OwnId";
    case LeftOut::kCheckAgain:
      return out << "CheckAgain";
    case LeftOut::kReadAgain:
      return out << "ReadAgain";
    case LeftOut::kFence:
      return out << "Fence";
    case LeftOut::kAcknowledgeSynced:
      return out << "AcknowledgeSynced";
    case LeftOut::kTellEstablished:
      return out << "TellEstablished";
  }
  return out;
}

Explored Explore(const Exploration& exploration) { return Explorer(exploration).Explore(); }

}  // namespace tidemark::storage
