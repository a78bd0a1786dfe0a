#include "storage/journal/journal_view.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/io/check.h"

namespace tidemark::storage {
namespace {

// The entries after `first - 1`, put together from the highest number down, so that each entry is there before the
// copies that it carries are believed.
class Assembly {
 public:
  // `known`: what an earlier reading gave for these numbers.
  Assembly(EntryNumber first, std::span<const std::optional<std::string>> files, std::span<const JournalEntry> known)
      : first_(first), files_(files), known_(known) {}

  absl::StatusOr<std::vector<JournalEntry>> Assemble() {
    // Not all at once: of many files the last one may be missing.
    std::vector<JournalEntry> entries;
    for (size_t i = std::max(files_.size(), known_.size()); i-- > 0;) {
      auto entry = Take(i);
      if (!entry.ok()) return entry.status();
      entries.push_back(*std::move(entry));
    }
    std::reverse(entries.begin(), entries.end());
    return entries;
  }

 private:
  absl::StatusOr<JournalEntry> Take(size_t i) {
    const EntryNumber number = first_ + i;
    std::optional<EntryFile> file;
    std::string problem = "there is no such file";
    if (i < files_.size() && files_[i].has_value()) {
      auto decoded = DecodeEntryFile(number, *files_[i]);
      if (absl::IsUnimplemented(decoded.status())) return decoded.status();
      if (decoded.ok()) {
        file = *std::move(decoded);
      } else {
        problem = std::string(decoded.status().message());
      }
    }
    std::optional<JournalEntry> entry;
    if (const auto copy = copies_.find(number); copy != copies_.end()) {
      entry = std::move(copy->second);
      // The file is another entry's, which took the number although it was in use.
      if (file && file->entry != *entry) file.reset();
    } else if (file) {
      entry = file->entry;
    } else if (i < known_.size()) {
      entry = known_[i];
    } else {
      return absl::DataLossError(
          fmt::format("journal entry {} cannot be read, and no later entry has a copy of it: {}", number, problem));
    }
    // A copy that a higher entry carries outranks this one.
    if (file) {
      for (JournalEntry& carried : file->carried) copies_.emplace(carried.number, std::move(carried));
    }
    return *std::move(entry);
  }

  const EntryNumber first_;
  const std::span<const std::optional<std::string>> files_;
  const std::span<const JournalEntry> known_;
  std::map<EntryNumber, JournalEntry> copies_;
};

}  // namespace

const KnownEntry* JournalView::Find(const EntryId& id) const {
  const auto entry =
      std::find_if(known_.begin(), known_.end(), [&](const KnownEntry& known) { return known.entry.id == id; });
  return entry == known_.end() ? nullptr : &*entry;
}

const JournalPlace& JournalView::PlaceBefore(EntryNumber number) const {
  const EntryNumber before = number - 1;
  return before == dropped_.number ? dropped_ : known_[before - dropped_.number - 1].place;
}

absl::Status JournalView::Learn(std::span<const std::optional<std::string>> files) {
  const EntryNumber first = established_ + 1;
  const size_t final_entries = established_ - dropped_.number;
  std::vector<JournalEntry> before;
  for (size_t i = final_entries; i < known_.size(); ++i) before.push_back(known_[i].entry);
  auto entries = Assembly(first, files, before).Assemble();
  if (!entries.ok()) return entries.status();

  std::vector<DigestedEntry> digested;
  digested.reserve(entries->size());
  for (JournalEntry& entry : *entries) {
    const Digest128 digest = DigestOfEntry(entry);
    digested.push_back({.entry = std::move(entry), .digest = digest});
  }
  return Follow(std::move(digested), files.size());
}

absl::Status JournalView::LearnPacked(std::vector<DigestedEntry> entries) {
  const EntryNumber last = entries.back().entry.number;
  if (absl::Status status = Follow(std::move(entries), ~size_t{0}); !status.ok()) return status;
  established_ = last;
  return absl::OkStatus();
}

// `in_files`: the first so many are in files or carried by them; those after them were known before.
absl::Status JournalView::Follow(std::vector<DigestedEntry> entries, size_t in_files) {
  const size_t final_entries = established_ - dropped_.number;
  std::vector<KnownEntry> learned;
  learned.reserve(entries.size());
  JournalPlace place = PlaceBefore(established_ + 1);
  EntryNumber established = established_;
  std::set<std::array<uint8_t, 16>> ids;  // Abseil's hash tables do not survive an allocation that fails
  for (size_t i = 0; i < final_entries; ++i) ids.insert(known_[i].entry.id.bytes);
  for (size_t i = 0; i < entries.size(); ++i) {
    JournalEntry& entry = entries[i].entry;
    if (entry.previous != place.digest) {
      // A file server has lost it with the entry that it followed, and another entry has taken that number.
      if (i >= in_files) break;
      return absl::DataLossError(
          fmt::format("journal entry {} was written after another entry {} than the one that is read: "
                      "the journal is damaged, or holds files of two stores",
                      entry.number, place.number));
    }
    const bool in_force = entry.begins_epoch ? entry.epoch > place.epoch : entry.epoch == place.epoch;
    const bool is_first = ids.insert(entry.id.bytes).second;
    const bool counts = is_first && (entry.epoch == 0 || in_force);
    place.number = entry.number;
    place.digest = entries[i].digest;
    if (counts && entry.begins_epoch) place.epoch = entry.epoch;
    established = std::max(established, entry.durable);
    learned.push_back(KnownEntry{.entry = std::move(entry), .place = place, .counts = counts});
  }
  known_.resize(final_entries);
  std::move(learned.begin(), learned.end(), std::back_inserter(known_));
  established_ = established;
  return absl::OkStatus();
}

void JournalView::LearnDurable(const JournalPlace& place) {
  if (place.number <= established_ || place.number > last().number) return;
  if (PlaceBefore(place.number + 1) == place) established_ = place.number;
}

void JournalView::Drop(EntryNumber number) {
  Check(number <= established_, "journal entries are dropped that may not be durable");
  while (!known_.empty() && known_.front().place.number <= number) {
    dropped_ = known_.front().place;
    known_.pop_front();
  }
}

}  // namespace tidemark::storage
