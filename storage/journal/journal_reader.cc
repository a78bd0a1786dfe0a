#include "storage/journal/journal_reader.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "storage/journal/segment.h"

namespace tidemark::storage {
namespace {

// No file carries more entries than this. So one that is missing is not in any that comes later.
constexpr EntryNumber kCarriedMax = kEntryFileBytesMax / kJournalEntryBytesMin;

absl::Status InFolder(const JournalFiles& files, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), fmt::format("read {}: {}", files.directory(), std::string(status.message())));
}

// The entries of the segment that the file of `number` is.
absl::StatusOr<std::vector<DigestedEntry>> SegmentOf(const JournalFiles& files, EntryNumber number,
                                                     std::string_view bytes) {
  auto entries =
      DecodeSegment(fmt::format("read {}: the segment of journal entry {}", files.PathOf(number), number), bytes);
  if (!entries.ok()) return entries.status();
  if (entries->front().entry.number > number || entries->back().entry.number < number) {
    return absl::DataLossError(fmt::format("read {}: the segment has the journal entries {} to {}",
                                           files.PathOf(number), entries->front().entry.number,
                                           entries->back().entry.number));
  }
  return entries;
}

// Learns from the segment that the file of `number` is. `before`: the files from established() + 1 to that one.
absl::Status LearnSegment(const JournalFiles& files, EntryNumber number, std::string_view bytes,
                          const std::vector<std::optional<std::string>>& before, JournalView& view) {
  auto entries = SegmentOf(files, number, bytes);
  if (!entries.ok()) return entries.status();
  const EntryNumber first = entries->front().entry.number;
  if (first > view.established() + 1) {
    if (absl::Status status = view.Learn(before); !status.ok()) return InFolder(files, status);
    // What stands before a packed entry is durable as well.
    if (view.last().number + 1 == first) view.LearnDurable(view.last());
  }
  if (first > view.established() + 1) {
    return absl::DataLossError(
        fmt::format("read {}: journal entry {} cannot be read: the segment of entry {} begins "
                    "after it",
                    files.directory(), view.established() + 1, number));
  }
  entries->erase(entries->begin(), entries->begin() + static_cast<ptrdiff_t>(view.established() + 1 - first));
  return InFolder(files, view.LearnPacked(*std::move(entries)));
}

// Learns of `part`, which cannot be learned as a whole, what stands before the entry that cannot be read.
void LearnWhatIsBefore(std::span<const std::optional<std::string>> part, JournalView& view) {
  size_t readable = 0, unreadable = part.size();  // so many files from the first on
  while (unreadable - readable > 1) {
    const size_t middle = (readable + unreadable) / 2;
    JournalView tried = view;
    (tried.Learn(part.first(middle)).ok() ? readable : unreadable) = middle;
  }
  if (readable > 0) view.Learn(part.first(readable)).IgnoreError();  // it worked above
}

// Why the entry of that number, whose file could not be opened, cannot be read.
absl::Status WhyMissing(const JournalFiles& files, EntryNumber number) {
  if (absl::Status missing = files.CheckIsMissing(number); absl::IsAborted(missing)) return missing;
  return absl::DataLossError(
      fmt::format("journal entry {} cannot be read, and no later entry has a copy of it: there is no such file{}",
                  number, files.looks_past_caches() ? "" : ", or a file server does not show it yet"));
}

}  // namespace

absl::StatusOr<std::optional<DigestedEntry>> ReadEntry(const JournalFiles& files, EntryNumber number) {
  const auto bytes = files.ReadListed(number);
  if (!bytes.ok()) return bytes.status();
  if (!bytes->has_value()) return std::nullopt;
  if (IsSegment(**bytes)) {
    auto entries = SegmentOf(files, number, **bytes);
    if (!entries.ok()) return entries.status();
    return std::move((*entries)[number - entries->front().entry.number]);
  }
  auto file = DecodeEntryFile(number, **bytes);
  if (!file.ok()) {
    return absl::Status(file.status().code(),
                        fmt::format("read {}: {}", files.PathOf(number), std::string(file.status().message())));
  }
  const Digest128 digest = DigestOfEntry(file->entry);
  return DigestedEntry{.entry = std::move(file->entry), .digest = digest};
}

absl::Status ReadEntries(const JournalFiles& files, EntryNumber highest, JournalView& view,
                         absl::FunctionRef<void()> learned) {
  EntryNumber first = view.established() + 1;
  EntryNumber end = first - 1;  // `part` has the files from `first` to it
  std::vector<std::optional<std::string>> part;
  while (end < highest) {
    bool is_packed = false;
    // A number may be far behind those that are missing.
    const bool follows_gap = !part.empty() && !part.back();
    const absl::StatusOr<EntryNumber> missing = follows_gap ? files.LastWithoutFolder(end + 1) : end;
    if (!missing.ok()) return missing.status();
    const bool is_there = *missing == end;
    const EntryNumber part_end = std::min(highest, is_there ? LastOfFolder(end + 1) : *missing);
    if (!is_there) {
      part.resize(part_end - first + 1);
      end = part_end;
    }
    for (; end < part_end && !is_packed; ++end) {
      auto file = files.ReadListed(end + 1);
      if (!file.ok()) return file.status();
      is_packed = file->has_value() && IsSegment(**file);
      if (is_packed) {
        if (absl::Status status = LearnSegment(files, end + 1, **file, part, view); !status.ok()) return status;
      } else {
        part.push_back(*std::move(file));
      }
    }
    if (is_packed) {
      part.clear();
      end = view.established();
      first = end + 1;
      learned();
      continue;
    }
    if (!is_there && end < highest && part.size() <= kCarriedMax) continue;
    absl::Status status = view.Learn(part);
    // A later entry may have a copy of what is missing.
    if (absl::IsDataLoss(status) && end < highest && part.size() <= kCarriedMax) continue;
    if (!status.ok()) {
      LearnWhatIsBefore(part, view);
      learned();
      // Of several entries that are missing the first is named.
      const EntryNumber next = view.last().number + 1;
      if (absl::IsDataLoss(status) && next >= first && next - first < part.size() && !part[next - first]) {
        status = WhyMissing(files, next);
      }
      return InFolder(files, status);
    }
    part.erase(part.begin(), part.begin() + static_cast<ptrdiff_t>(view.established() + 1 - first));
    first = view.established() + 1;
    learned();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::optional<std::string>>> ReadFiles(const JournalFiles& files, EntryNumber highest,
                                                                  JournalView& view) {
  std::vector<std::optional<std::string>> all;
  for (EntryNumber number = view.established() + 1; number <= highest; ++number) {
    auto file = number < highest ? files.ReadListed(number) : files.Read(number);
    if (!file.ok()) return file.status();
    if (file->has_value() && IsSegment(**file)) {
      if (absl::Status status = LearnSegment(files, number, **file, all, view); !status.ok()) return status;
      all.clear();
      number = view.established();
    } else {
      all.push_back(*std::move(file));
    }
  }
  return all;
}

absl::Status FindPlace(const JournalFiles& files, const JournalPlace& place) {
  if (place == JournalPlace()) return absl::OkStatus();
  const auto entry = ReadEntry(files, place.number);
  if (entry.ok() && *entry && (*entry)->digest == place.digest) return absl::OkStatus();
  // The file may be missing, or another entry's, after a power loss.
  const auto next = ReadEntry(files, place.number + 1);
  if (next.ok() && *next && (*next)->entry.previous == place.digest) return absl::OkStatus();
  if (!entry.ok()) return entry.status();
  if (!next.ok()) return next.status();
  if (!*entry) {
    if (absl::Status missing = files.CheckIsMissing(place.number); !missing.ok()) return missing;
  }
  return absl::OutOfRangeError(fmt::format("read {}: entry {} with the digest {} is not there", files.directory(),
                                           place.number, ToHex(place.digest.bytes)));
}

}  // namespace tidemark::storage
