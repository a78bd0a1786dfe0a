#include "storage/store/store_journal.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "fmt/format.h"
#include "storage/records/fact.h"

namespace tidemark::storage {
namespace {

// An index is brought up to date in batches of about so many facts.
constexpr size_t kBatchFacts = 1024;

// How often a change is tried whose facts another process overtakes. Each try of ours that fails is an append of theirs
// that worked.
constexpr int kTriesMax = 1000;

absl::StatusOr<std::vector<Fact>> DecodeFacts(const JournalEntry& entry) {
  std::vector<Fact> facts;
  for (const std::string& bytes : entry.facts) {
    absl::StatusOr<Fact> fact = DecodeFact(bytes);
    if (!fact.ok()) {
      return absl::Status(fact.status().code(),
                          fmt::format("journal entry {}: {}", entry.number, std::string(fact.status().message())));
    }
    facts.push_back(*std::move(fact));
  }
  return facts;
}

}  // namespace

StoreJournal::StoreJournal(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                           StoreJournalOptions options)
    : files_(files), layout_(layout), store_(store), options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<StoreJournal>> StoreJournal::Open(FileSystem& files, const StoreLayout& layout,
                                                                 const StoreId& store, StoreJournalOptions options) {
  std::unique_ptr<StoreJournal> opened(new StoreJournal(files, layout, store, std::move(options)));
  if (opened->options_.holder) {
    if (absl::Status status = opened->OpenHeld(); !status.ok()) return status;
    return opened;
  }
  absl::MutexLock lock(&opened->mutex_);
  absl::Status status = opened->StartInMemory();
  if (status.ok()) status = opened->TakeIn();
  if (!status.ok()) return status;
  return opened;
}

absl::Status StoreJournal::OpenHeld() {
  absl::MutexLock lock(&mutex_);
  absl::Status status = OpenIndex();
  if (status.ok()) status = BeginEpoch();
  // Facts of others are news from here on.
  collects_news_ = true;
  return status;
}

absl::Status StoreJournal::OpenJournal(const JournalPlace& from) {
  absl::StatusOr<std::unique_ptr<Journal>> journal =
      Journal::Open(files_, layout_.journal(), from, {.create = options_.holder, .holds = options_.holder});
  if (!journal.ok()) return journal.status();
  journal_ = *std::move(journal);
  applied_ = from;
  provisional_.clear();
  return absl::OkStatus();
}

absl::Status StoreJournal::OpenIndex() {
  absl::StatusOr<FileType> there = files_.TypeOf(layout_.index());
  if (!there.ok()) return absl::IsNotFound(there.status()) ? StartIndex(absl::OkStatus()) : there.status();
  absl::StatusOr<std::unique_ptr<Manifest>> index = Manifest::Open(files_, layout_.index());
  if (!index.ok()) return StartIndex(index.status());
  const absl::StatusOr<std::optional<JournalPlace>> place = (*index)->Applied();
  const bool is_of_another = (*index)->store_id() != store_;
  if (is_of_another || !place.ok() || !place->has_value()) {
    index->reset();  // closed before it is removed
    if (is_of_another) return StartIndex(absl::DataLossError("it is of another store"));
    return StartIndex(place.status());  // or its making was cut short
  }
  absl::Status status = OpenJournal(**place);
  if (absl::IsOutOfRange(status)) {
    index->reset();
    status = CheckReaches(**place, status);
    return status.ok() ? StartIndex(absl::DataLossError("it is of another journal")) : status;
  }
  if (!status.ok()) return status;
  index_ = *std::move(index);
  catalog_ = index_.get();
  if (status = TakeIn(); !absl::IsDataLoss(status) || !index_->damage_found()) return status;
  catalog_ = nullptr;
  index_.reset();
  return StartIndex(status);
}

// An index has applied only entries that survive power loss. Where the journal ends before, it has lost some.
absl::Status StoreJournal::CheckReaches(const JournalPlace& applied, const absl::Status& why) {
  if (absl::Status status = OpenJournal(JournalPlace()); !status.ok()) return status;
  if (absl::Status status = journal_->Look([](const KnownEntry&, bool) {}); !status.ok()) return status;
  const EntryNumber last = journal_->last().number;
  if (last >= applied.number) return absl::OkStatus();
  return absl::DataLossError(fmt::format("the journal ends with entry {}, and the index has applied entry {}: {}", last,
                                         applied.number, std::string(why.message())));
}

// `why`: what is wrong with the index that is there; ok: nothing that anybody need know.
absl::Status StoreJournal::StartIndex(const absl::Status& why) {
  index_is_new_ = true;
  if (!why.ok()) {
    options_.warn(
        fmt::format("the index cannot be used and is made anew from the journal: {}", std::string(why.message())));
  }
  absl::Status status = RemoveTree(files_, layout_.index());
  if (status.ok()) {
    absl::StatusOr<std::unique_ptr<Manifest>> index = Manifest::Create(files_, layout_.index(), store_);
    status = index.status();
    if (index.ok()) index_ = *std::move(index);
  }
  if (!status.ok()) {
    WarnOfIndex(status);
    status = StartInMemory();
  } else {
    catalog_ = index_.get();
    status = OpenJournal(JournalPlace());
  }
  return status.ok() ? TakeIn() : status;
}

absl::Status StoreJournal::StartInMemory() {
  if (absl::Status status = OpenJournal(JournalPlace()); !status.ok()) return status;
  in_memory_.push_back(std::make_unique<MemoryCatalog>());
  catalog_ = in_memory_.back().get();
  return absl::OkStatus();
}

absl::Status StoreJournal::BeginEpoch() {
  const Appended begun =
      journal_->Append({.kind = AppendDraft::Kind::kBeginsEpoch}, [](const JournalView&) { return absl::OkStatus(); });
  if (!begun.ok()) return begun.status;
  epoch_ = begun.place.epoch;
  return TakeIn();
}

// Reads what is new and applies it. `*has_visible`: there are facts that are only visible, and they were not applied.
absl::Status StoreJournal::Read(bool* has_visible) {
  *has_visible = false;
  Reading reading{.place = applied_};
  const absl::Status looked =
      journal_->Look([&](const KnownEntry& known, bool is_established) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        if (reading.status.ok() && !reading.starts_over) Visit(known, is_established, reading);
      });
  if (reading.status.ok() && !reading.starts_over) Flush(reading);
  if (!looked.ok()) return looked;
  *has_visible = reading.has_visible;
  if (!reading.starts_over) return reading.status;
  if (absl::Status status = StartInMemory(); !status.ok()) return status;
  return Read(has_visible);
}

void StoreJournal::Visit(const KnownEntry& known, bool is_established, Reading& reading) {
  const EntryNumber number = known.place.number;
  if (number <= reading.place.number) {
    const auto applied = provisional_.find(number);
    if (applied == provisional_.end()) return;
    // What was only visible is gone, and another entry has its number. It takes a power loss, or a failed sync.
    reading.starts_over = applied->second != known.place.digest;
    if (is_established) provisional_.erase(applied);
    return;
  }
  const bool has_facts = known.counts && !known.entry.facts.empty();
  if (!is_established && options_.holder) {
    reading.has_visible = reading.has_visible || has_facts;
    return;
  }
  if (has_facts) {
    absl::StatusOr<std::vector<Fact>> facts = DecodeFacts(known.entry);
    reading.status = facts.status();
    if (!facts.ok()) return;
    if (collects_news_ && number > heard_) news_.insert(news_.end(), facts->begin(), facts->end());
    reading.facts.insert(reading.facts.end(), std::move_iterator(facts->begin()), std::move_iterator(facts->end()));
  }
  heard_ = std::max(heard_, number);
  reading.place = known.place;
  if (!is_established) provisional_[number] = known.place.digest;
  if (reading.facts.size() >= kBatchFacts) Flush(reading);
}

void StoreJournal::Flush(Reading& reading) {
  if (reading.place == applied_) return;
  // The journal may be reading just now, so it is opened anew later.
  reading.starts_over = !ApplyToCatalog(reading.place, reading.facts);
  reading.facts.clear();
}

absl::Status StoreJournal::TakeIn() {
  for (int tries = 0; tries < kTriesMax; ++tries) {
    bool has_visible = false;
    if (absl::Status status = Read(&has_visible); !status.ok() || !has_visible) return status;
    if (const Appended settled = journal_->Settle(); !settled.ok()) return settled.status;
  }
  return absl::UnavailableError(fmt::format("journal {}: other processes append faster than this one can read",
                                            layout_.journal()));
}

// False, with a warning: the index cannot be written.
bool StoreJournal::ApplyToCatalog(const JournalPlace& place, std::span<const Fact> facts) {
  if (in_memory_.empty()) {
    if (absl::Status status = index_->Apply(place, facts); !status.ok()) {
      WarnOfIndex(status);
      return false;
    }
  } else {
    in_memory_.back()->Apply(facts);
  }
  applied_ = place;
  return true;
}

void StoreJournal::WarnOfIndex(const absl::Status& why) const {
  options_.warn(
      fmt::format("the index cannot be written, so the journal is read into memory: {}", std::string(why.message())));
}

absl::StatusOr<bool> StoreJournal::Look() {
  absl::MutexLock lock(&mutex_);
  const JournalPlace before = applied_;
  if (absl::Status status = TakeIn(); !status.ok()) return status;
  return applied_ != before;
}

std::vector<Fact> StoreJournal::TakeNews() {
  absl::MutexLock lock(&mutex_);
  return std::exchange(news_, {});
}

absl::Status StoreJournal::Change(Compose compose, Journal::Room room) {
  absl::MutexLock lock(&mutex_);
  for (int tries = 0; tries < kTriesMax; ++tries) {
    if (absl::Status status = TakeIn(); !status.ok()) return status;
    absl::StatusOr<std::vector<Fact>> facts = compose(*catalog_);
    if (!facts.ok()) return facts.status();
    if (facts->empty()) return absl::OkStatus();
    AppendDraft draft{.kind = options_.holder ? AppendDraft::Kind::kHolder : AppendDraft::Kind::kAnybody,
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
    const Appended appended = journal_->Append(std::move(draft), check, room);
    if (appended.result == Appender::Result::kRefused && overtaken) continue;
    if (appended.result == Appender::Result::kUnknown) return absl::UnknownError(appended.status.message());
    if (!appended.ok()) return appended.status;
    heard_ = appended.place.number;
    if (ApplyToCatalog(appended.place, as_read)) return absl::OkStatus();
    // The facts are established, whatever becomes of the catalog.
    if (absl::Status status = StartInMemory(); !status.ok()) return status;
    return TakeIn();
  }
  return absl::UnavailableError(
      fmt::format("journal {}: {} appends of other processes came first", layout_.journal(), kTriesMax));
}

absl::Status StoreJournal::Maintain() {
  std::shared_ptr<Journal> journal;
  {
    absl::MutexLock lock(&mutex_);
    journal = journal_;
  }
  return journal->Maintain();
}

// Whether the view has facts that the catalog has not.
bool StoreJournal::HasNews(const JournalView& view) const {
  for (const KnownEntry& known : view.entries()) {
    if (known.place.number > applied_.number) {
      if (known.counts && !known.entry.facts.empty()) return true;
    } else if (const auto applied = provisional_.find(known.place.number);
               applied != provisional_.end() && applied->second != known.place.digest) {
      return true;
    }
  }
  return false;
}

void StoreJournal::ForgetGarbage(std::span<const AttemptId> attempts) {
  absl::MutexLock lock(&mutex_);
  if (attempts.empty()) return;
  if (!in_memory_.empty()) {
    in_memory_.back()->ForgetGarbage(attempts);
  } else if (absl::Status status = index_->ForgetDeletions(attempts); !status.ok()) {
    options_.warn(fmt::format("the index could not be written: {}", std::string(status.message())));
  }
}

}  // namespace tidemark::storage
