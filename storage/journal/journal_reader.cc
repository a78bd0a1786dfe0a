#include "storage/journal/journal_reader.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace tidemark::storage {
namespace {

// The entry of that number as its own file has it; no value if there is none.
absl::StatusOr<std::optional<JournalEntry>> ReadEntry(const JournalFiles& files, EntryNumber number) {
  const auto bytes = files.Read(number);
  if (!bytes.ok()) return bytes.status();
  if (!bytes->has_value()) return std::nullopt;
  auto file = DecodeEntryFile(number, **bytes);
  if (!file.ok())
    return absl::Status(file.status().code(),
                        fmt::format("read {}: {}", files.PathOf(number), std::string(file.status().message())));
  return std::move(file->entry);
}

absl::Status InFolder(const JournalFiles& files, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), fmt::format("read {}: {}", files.directory(), std::string(status.message())));
}

}  // namespace

absl::Status ReadEntries(const JournalFiles& files, EntryNumber highest, JournalView& view,
                         absl::FunctionRef<void()> learned) {
  EntryNumber first = view.established() + 1;
  EntryNumber end = first - 1;  // `part` has the files from `first` to it
  std::vector<std::optional<std::string>> part;
  while (end < highest) {
    const EntryNumber part_end = std::min(highest, LastOfFolder(end + 1));
    for (; end < part_end; ++end) {
      auto file = files.Read(end + 1);
      if (!file.ok()) return file.status();
      part.push_back(*std::move(file));
    }
    absl::Status status = view.Learn(part);
    // A later entry may have a copy of what is missing.
    if (absl::IsDataLoss(status) && end < highest) continue;
    if (!status.ok()) return InFolder(files, status);
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
    auto file = files.Read(number);
    if (!file.ok()) return file.status();
    all.push_back(*std::move(file));
  }
  return all;
}

absl::Status FindPlace(const JournalFiles& files, const JournalPlace& place) {
  if (place == JournalPlace()) return absl::OkStatus();
  const auto entry = ReadEntry(files, place.number);
  if (entry.ok() && *entry && DigestOfEntry(**entry) == place.digest) return absl::OkStatus();
  // The file may be missing, or another entry's, after a power loss.
  const auto next = ReadEntry(files, place.number + 1);
  if (next.ok() && *next && (*next)->previous == place.digest) return absl::OkStatus();
  if (!entry.ok()) return entry.status();
  if (!next.ok()) return next.status();
  return absl::OutOfRangeError(fmt::format("read {}: entry {} with the digest {} is not there", files.directory(),
                                           place.number, ToHex(place.digest.bytes)));
}

}  // namespace tidemark::storage
