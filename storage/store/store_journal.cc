#include "storage/store/store_journal.h"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "fmt/format.h"
#include "storage/io/exception_status.h"
#include "storage/journal/journal_files.h"
#include "storage/records/fact.h"
#include "storage/store/entry_facts.h"
#include "storage/store/index_state.h"

namespace tidemark::storage {
namespace {

// An index is brought up to date in batches of about this many facts.
constexpr size_t kBatchFacts = 1024;

// How often a change is tried whose facts another process overtakes. Each try of ours that fails is an append of theirs
// that worked.
constexpr int kTriesMax = 1000;

bool TellsOfDamage(const Fact& fact) {
  const auto* const state = std::get_if<StateFact>(&fact);
  return state != nullptr && (state->state == StepState::kDamaged || state->state == StepState::kLost);
}

}  // namespace

StoreJournal::StoreJournal(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                           StoreJournalOptions options)
    : files_(files), layout_(layout), store_(store), options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<StoreJournal>> StoreJournal::Open(FileSystem& files, const StoreLayout& layout,
                                                                 const StoreId& store, StoreJournalOptions options) {
  std::unique_ptr<StoreJournal> opened(new StoreJournal(files, layout, store, std::move(options)));
  if (absl::Status status = opened->OpenHeld(); !status.ok()) return status;
  return opened;
}

StoreJournal::~StoreJournal() {
  absl::MutexLock lock(&mutex_);
  const bool in_good_order = now_.index != nullptr && !now_.lags && now_.index->failure().ok();
  indexes_.clear();
  const FileId folder = index_folder_;
  if (in_good_order) BestEffort([&] { MarkIndexClosed(files_, layout_.index(), folder).IgnoreError(); });
}

absl::Status StoreJournal::OpenHeld() {
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&mutex_);
  warnings_ = &later;
  bool has_visible = false;
  absl::Status status = options_.holder ? OpenIndex() : ReadIntoMemory(&has_visible);
  if (options_.holder && status.ok()) status = TakeIn();
  if (options_.holder && status.ok()) status = BeginEpoch();
  // Facts of others are news from here on.
  collects_news_ = options_.holder || options_.collects_news;
  return status;
}

void StoreJournal::Warn(std::string_view what, const absl::Status& why) {
  warnings_->warn(fmt::format("{}: {}", what, std::string(why.message())));
}

absl::StatusOr<StoreJournal::Following> StoreJournal::Follow(const JournalPlace& from) const {
  // One that was there must not be made: that needs room, and reading does not.
  const bool create = options_.holder && now_.journal == nullptr;
  absl::StatusOr<std::unique_ptr<Journal>> journal =
      Journal::Open(files_, layout_.journal(), from, {.create = create, .holds = options_.holder});
  if (!journal.ok()) return journal.status();
  if (options_.appends) (*journal)->LookPastCaches();
  return Following{.journal = *std::move(journal), .applied = from};
}

// `index`: that of `following`.
void StoreJournal::Publish(Following following, std::unique_ptr<Manifest> index) {
  const Manifest* const asked = index.get();
  indexes_.push_back(std::make_unique<IndexCatalog>(
      std::move(index), [this, asked](const absl::Status& why) { return InPlaceOf(asked, why); }));
  now_ = std::move(following);
  catalog_ = indexes_.back().get();
}

// The next TakeIn reads the journal into memory.
void StoreJournal::LeaveIndex(const absl::Status& why) {
  now_.lags = true;
  // The next opening makes it anew.
  if (absl::IsDataLoss(why)) MarkIndexDamaged(files_, layout_.index()).IgnoreError();
  Warn("the index cannot be used any more, so the journal is read into memory", why);
}

// For a question that the index has failed at. Null: the journal cannot be read either.
const StepCatalog* StoreJournal::InPlaceOf(const Manifest* index, const absl::Status& why) {
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&mutex_);
  warnings_ = &later;
  if (now_.index == index && !now_.lags) LeaveIndex(why);
  if (absl::Status status = TakeIn(); !status.ok()) Warn("the journal cannot be read just now", status);
  return now_.memory;
}

// After an error the catalog is what it was. A catalog that says less than the one before is not published.
absl::Status StoreJournal::ReadIntoMemory(bool* has_visible) {
  if (options_.holder && now_.applied.number > 0) {
    JournalFiles(files_, layout_.journal()).LookAfresh(now_.applied.number);
  }
  absl::StatusOr<Following> following = Follow(JournalPlace());
  if (!following.ok()) return following.status();
  auto memory = std::make_unique<MemoryCatalog>();
  following->memory = memory.get();
  if (absl::Status status = Read(*following, has_visible); !status.ok()) return status;
  if (options_.holder && following->applied.number < now_.applied.number) {
    // The new handle does not know what this process has found established.
    following->journal->LearnEstablished(now_.applied);
    if (absl::Status status = Read(*following, has_visible); !status.ok()) return status;
  }
  if (options_.holder && following->applied.epoch <= now_.applied.epoch &&
      following->applied.number < now_.applied.number) {
    return absl::DataLossError(fmt::format("journal {} ends with entry {}, and entry {} was established",
                                           layout_.journal(), following->journal->last().number, now_.applied.number));
  }
  in_memory_.push_back(std::move(memory));
  now_ = *std::move(following);
  catalog_ = in_memory_.back().get();
  return absl::OkStatus();
}

absl::Status StoreJournal::BeginEpoch() {
  absl::StatusOr<std::string> of_store = EncodeFact(StoreFact{.store = store_});
  if (!of_store.ok()) return of_store.status();
  const Appended begun = now_.journal->Append(
      {.kind = AppendDraft::Kind::kBeginsEpoch, .facts = {*std::move(of_store)}},
      [](const JournalView&) { return absl::OkStatus(); }, Journal::Room::kReserve);
  if (!begun.ok()) return begun.status;
  epoch_ = begun.place.epoch;
  return TakeIn();
}

// Reads what is new into the catalog of `following`. `*has_visible`: there are facts that are only visible, and they
// were not applied. After an error `following.lags` says whether the catalog lacks some of what the journal has visited
// and will not visit again.
absl::Status StoreJournal::Read(Following& following, bool* has_visible) {
  *has_visible = false;
  Reading reading{.place = following.applied};
  absl::Status looked;
  try {
    looked = following.journal->Look([&](const KnownEntry& known, bool is_established)
                                         ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                                           if (reading.status.ok() && !reading.is_replaced)
                                             Visit(known, is_established, following, reading);
                                         });
  } catch (...) {
    // The next look visits what has not been visited, and nothing else.
    const bool is_sound = reading.status.ok() && !reading.is_replaced;
    following.lags = !is_sound;
    if (is_sound) Flush(following, reading);
    throw;
  }
  if (reading.status.ok() && !reading.is_replaced) Flush(following, reading);
  following.lags = (!reading.status.ok() && following.refused.ok()) || reading.is_replaced;
  if (!reading.status.ok()) return reading.status;
  if (reading.is_replaced) return absl::DataLossError("journal entries that were only visible are gone");
  *has_visible = reading.has_visible;
  return looked;
}

void StoreJournal::Visit(const KnownEntry& known, bool is_established, Following& following, Reading& reading) {
  const EntryNumber number = known.place.number;
  if (number <= reading.place.number) {
    const auto applied = following.provisional.find(number);
    if (applied == following.provisional.end()) return;
    // It takes a power loss, or a failed sync, for another entry to have its number.
    reading.is_replaced = applied->second != known.place.digest;
    if (is_established) following.provisional.erase(applied);
    return;
  }
  const bool has_facts = known.counts && !known.entry.facts.empty();
  if (!is_established && options_.holder) {
    reading.has_visible = reading.has_visible || has_facts;
    return;
  }
  if (number != reading.place.number + 1) {
    reading.status = absl::InternalError(
        fmt::format("journal {}: entry {} was read after entry {}", layout_.journal(), number, reading.place.number));
    return;
  }
  if (has_facts) {
    absl::StatusOr<std::vector<Fact>> facts = DecodeFacts(known.entry, store_);
    reading.status = following.refused = facts.status();
    if (!facts.ok()) return;
    std::erase_if(*facts, [](const Fact& fact) { return std::holds_alternative<StoreFact>(fact); });
    const bool is_own = unknown_ && known.entry.id == *unknown_;
    if (collects_news_ && number > heard_ && !is_own) news_.insert(news_.end(), facts->begin(), facts->end());
    reading.facts.insert(reading.facts.end(), std::move_iterator(facts->begin()), std::move_iterator(facts->end()));
  }
  heard_ = std::max(heard_, number);
  if (!is_established) following.provisional[number] = known.place.digest;
  reading.place = known.place;
  if (reading.facts.size() >= kBatchFacts) Flush(following, reading);
}

void StoreJournal::Flush(Following& following, Reading& reading) {
  if (reading.place == following.applied) return;
  reading.status = Apply(following, reading.place, reading.facts);
  reading.facts.clear();
}

// After an error or an exception the catalog may have a part of the facts, so they must not be applied again.
absl::Status StoreJournal::Apply(Following& following, const JournalPlace& place, std::span<const Fact> facts) {
  following.lags = true;
  if (following.memory != nullptr) {
    following.memory->Apply(facts);
  } else if (absl::Status status = following.index->Apply(place, facts); !status.ok()) {
    return status;
  }
  following.applied = place;
  following.lags = false;
  times_damaged_ += static_cast<uint64_t>(std::ranges::count_if(facts, TellsOfDamage));
  return absl::OkStatus();
}

absl::Status StoreJournal::TakeIn() {
  bool was_read_anew = false;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    if (!now_.refused.ok()) return now_.refused;
    bool has_visible = false;
    absl::Status status = now_.lags ? absl::OkStatus() : Read(now_, &has_visible);
    if (now_.lags) {
      if (was_read_anew) return status;
      was_read_anew = true;
      if (!status.ok() && now_.index != nullptr) LeaveIndex(status);
      status = ReadIntoMemory(&has_visible);
    }
    if (!status.ok()) return status;
    // In the place of this index there may be that of the newer holder, with files of the same names.
    if (now_.index != nullptr && epoch_ > 0 && now_.journal->last().epoch != epoch_) {
      LeaveIndex(absl::AbortedError("another process has opened the store for writing"));
      continue;
    }
    if (!options_.holder || !has_visible) return absl::OkStatus();
    if (const Appended settled = now_.journal->Settle(); !settled.ok()) return settled.status;
  }
  return absl::UnavailableError(
      fmt::format("journal {}: other processes append faster than this one can read", layout_.journal()));
}

// Another process may have put a new journal in the place of the one that is followed. Then this reads the new one from
// its beginning. A holder reads no other journal than its own: where that was replaced, its changes fail.
absl::Status StoreJournal::FollowReplaced() {
  if (options_.holder) return absl::OkStatus();
  const absl::StatusOr<bool> replaced = now_.journal->IsReplaced();
  if (!replaced.ok() || !*replaced) return replaced.status();
  heard_ = 0;
  bool has_visible = false;
  return ReadIntoMemory(&has_visible);
}

// What a change has established and could not be applied must be found by the next question.
const StepCatalog& StoreJournal::catalog() {
  if (is_behind_) {
    const WarnLater later(options_.warn);
    absl::MutexLock lock(&mutex_);
    warnings_ = &later;
    if (TakeIn().ok()) is_behind_ = false;
  }
  return *catalog_;
}

absl::StatusOr<bool> StoreJournal::Look() { return Look(/*afresh=*/false); }

absl::StatusOr<bool> StoreJournal::LookAfresh() { return Look(/*afresh=*/true); }

absl::StatusOr<bool> StoreJournal::Look(bool afresh) {
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&mutex_);
  warnings_ = &later;
  const JournalPlace before = now_.applied;
  const std::shared_ptr<Journal> followed = now_.journal;
  absl::Status status = FollowReplaced();
  if (status.ok() && afresh) now_.journal->LookAfresh();
  if (status.ok()) status = TakeIn();
  if (!status.ok()) return status;
  return now_.journal != followed || now_.applied != before;
}

absl::Status StoreJournal::CheckHolds() {
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&mutex_);
  warnings_ = &later;
  if (absl::Status status = TakeIn(); !status.ok()) return status;
  return CheckEpoch();
}

// Of a holder: whether its epoch is the newest one that is known.
absl::Status StoreJournal::CheckEpoch() {
  const uint64_t newest = now_.journal->last().epoch;
  if (!options_.holder || newest == epoch_) return absl::OkStatus();
  return absl::AbortedError(fmt::format("the newest epoch is {}, this process's is {}", newest, epoch_));
}

std::vector<Fact> StoreJournal::TakeNews() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(news_, {});
}

absl::Status StoreJournal::Change(Compose compose, Journal::Room room) {
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&mutex_);
  warnings_ = &later;
  bool is_fresh = false;
  for (int tries = 0; tries < kTriesMax; ++tries) {
    absl::Status status = FollowReplaced();
    now_.journal->LookPastCaches();
    if (status.ok()) status = TakeIn();
    if (!status.ok()) return status;
    absl::StatusOr<std::vector<Fact>> facts = compose(now_.catalog());
    if (now_.index != nullptr && !now_.index->failure().ok()) {
      LeaveIndex(now_.index->failure());
      continue;
    }
    if (!facts.ok() || facts->empty()) {
      // No entry tells whether the catalog has all that others have appended.
      if (!std::exchange(is_fresh, true)) {
        now_.journal->LookAfresh();
        continue;
      }
      return facts.ok() ? CheckEpoch() : facts.status();
    }
    AppendDraft draft{.kind = options_.holder ? AppendDraft::Kind::kHolder : AppendDraft::Kind::kAnybody,
                      .id = EntryId{RandomBytes16()},
                      .epoch = epoch_};
    std::vector<Fact> as_read;
    for (const Fact& fact : *facts) {
      absl::StatusOr<std::string> bytes = EncodeFact(fact);
      if (!bytes.ok()) return bytes.status();
      absl::StatusOr<Fact> decoded = DecodeFact(*bytes);
      if (!decoded.ok()) return decoded.status();
      as_read.push_back(*std::move(decoded));
      draft.facts.push_back(*std::move(bytes));
    }
    bool overtaken = false;
    const auto check = [&](const JournalView& view) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      overtaken = HasNews(view);
      return overtaken ? absl::CancelledError("another process has appended an entry") : absl::OkStatus();
    };
    const EntryId id = draft.id;
    const Appended appended = now_.journal->Append(std::move(draft), check, room);
    if (appended.result == Appender::Result::kRefused && overtaken) continue;
    if (appended.result == Appender::Result::kUnknown) {
      unknown_ = id;
      absl::Status unknown(absl::StatusCode::kUnknown, "");  // where there is no memory for the message
      BestEffort([&] { unknown = absl::UnknownError(appended.status.message()); });
      return unknown;
    }
    if (!appended.ok()) return appended.status;
    heard_ = appended.place.number;
    // The facts are established, whatever becomes of the catalog. Entries without facts may stand before them.
    absl::Status applied;
    try {
      applied = Apply(now_, appended.place, as_read);
    } catch (...) {
      applied = ExceptionStatus("the catalog of the journal");
    }
    if (!applied.ok()) {
      now_.applied = appended.place;  // what the next catalog must have
      is_behind_ = true;
      BestEffort([&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        if (now_.index != nullptr) LeaveIndex(applied);
        absl::Status read = TakeIn();
        is_behind_ = !read.ok();
        if (!read.ok()) Warn("the journal cannot be read just now", read);
      });
    }
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      fmt::format("journal {}: {} appends of other processes came first", layout_.journal(), kTriesMax));
}

absl::Status StoreJournal::Maintain() {
  std::shared_ptr<Journal> journal;
  {
    absl::MutexLock lock(&mutex_);
    journal = now_.journal;
  }
  return journal->Maintain();
}

// Whether the view has facts that the catalog has not.
bool StoreJournal::HasNews(const JournalView& view) const {
  for (const KnownEntry& known : view.entries()) {
    if (known.place.number > now_.applied.number) {
      if (known.counts && !known.entry.facts.empty()) return true;
    } else if (const auto applied = now_.provisional.find(known.place.number);
               applied != now_.provisional.end() && applied->second != known.place.digest) {
      return true;
    }
  }
  return false;
}

void StoreJournal::ForgetGarbage(std::span<const AttemptId> attempts) {
  const WarnLater later(options_.warn);
  absl::MutexLock lock(&mutex_);
  warnings_ = &later;
  if (attempts.empty()) return;
  if (now_.memory == nullptr) {
    const absl::Status forgotten = now_.index->ForgetDeletions(attempts);
    if (forgotten.ok()) return;
    // Who removes garbage until there is none would never end.
    if (!now_.lags) LeaveIndex(forgotten);
    if (absl::Status read = TakeIn(); !read.ok()) Warn("the journal cannot be read just now", read);
  }
  if (now_.memory != nullptr) now_.memory->ForgetGarbage(attempts);
}

}  // namespace tidemark::storage
