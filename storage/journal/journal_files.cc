#include "storage/journal/journal_files.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <memory>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/bytes/ids.h"
#include "storage/io/fresh_look.h"
#include "storage/journal/segment.h"

namespace tidemark::storage {
namespace {

// Folders that are remembered: the next append's, and those that are made ahead.
constexpr size_t kMadeMax = 8;

// Two of these take more than the 512 bytes that an inode has for names.
constexpr size_t kRoomNameBytes = 240;

std::string RoomName(int n) { return fmt::format("room-{}-{}", n, std::string(kRoomNameBytes, 'x')); }

std::string NumberName(EntryNumber number) { return fmt::format("{:010}", number); }
std::string UpperName(EntryNumber number) { return fmt::format("{:04}", (number - 1) / kSegmentEntries); }

// The number that `name` stands for, if the journal would name it like that.
std::optional<uint64_t> ParseName(std::string_view name, size_t digits) {
  if (name.size() < digits || (name.size() > digits && name.front() == '0')) return std::nullopt;
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size()) return std::nullopt;
  return number;
}

absl::Status OkIfThere(absl::Status status) { return absl::IsAlreadyExists(status) ? absl::OkStatus() : status; }
absl::Status OkIfGone(absl::Status status) { return absl::IsNotFound(status) ? absl::OkStatus() : status; }

// The numbers that the folder's subfolders are named by, the highest first. Also those of links and the like, which
// cannot be listed: what they hide must not be taken for missing.
absl::StatusOr<std::vector<uint64_t>> Subfolders(FileSystem& files, const std::string& folder, size_t digits) {
  auto entries = files.ListDirectory(folder);
  if (!entries.ok()) return entries.status();
  std::vector<uint64_t> numbers;
  for (const DirectoryEntry& entry : *entries) {
    const auto number = ParseName(entry.name, digits);
    if (number && entry.type != FileType::kRegular) numbers.push_back(*number);
  }
  std::sort(numbers.rbegin(), numbers.rend());
  return numbers;
}

}  // namespace

std::string JournalFiles::UpperFolderOf(EntryNumber number) const {
  return fmt::format("{}/{}", directory_, UpperName(number));
}

std::string JournalFiles::FolderOf(EntryNumber number) const {
  return fmt::format("{}/{:02}", UpperFolderOf(number), (number - 1) / kFolderEntries % 64);
}

std::string JournalFiles::PathOf(EntryNumber number) const {
  return fmt::format("{}/{}", FolderOf(number), NumberName(number));
}

absl::StatusOr<std::optional<std::string>> JournalFiles::Read(EntryNumber number) const {
  auto file = files_.OpenForRead(PathOf(number), /*direct=*/false);
  if (absl::IsNotFound(file.status())) return std::nullopt;
  if (!file.ok()) return file.status();
  const auto size = (*file)->Size();
  if (!size.ok()) return size.status();
  if (*size > kEntryFileBytesMax) {
    return absl::DataLossError(fmt::format("journal entry {}: {} has {} bytes, more than {}", number, (*file)->path(),
                                           *size, kEntryFileBytesMax));
  }
  std::string bytes(*size, '\0');
  absl::Status status = (*file)->ReadAt(0, std::as_writable_bytes(std::span(bytes)));
  if (!status.ok()) return status;
  return bytes;
}

absl::StatusOr<std::optional<std::string>> JournalFiles::ReadListed(EntryNumber number) const {
  absl::StatusOr<std::optional<std::string>> file = Read(number);
  if (!looks_past_caches_ || !file.ok() || file->has_value()) return file;
  LookAfresh(number);
  return Read(number);
}

absl::Status JournalFiles::CheckIsMissing(EntryNumber number) const {
  for (const std::string& path : {PathOf(number), FolderOf(number), UpperFolderOf(number), directory_}) {
    const size_t slash = path.rfind('/');
    const auto entries = files_.ListDirectory(path.substr(0, slash));
    if (absl::IsNotFound(entries.status())) continue;
    if (!entries.ok()) return entries.status();
    const std::string_view name = std::string_view(path).substr(slash + 1);
    if (std::ranges::none_of(*entries, [&](const DirectoryEntry& entry) { return entry.name == name; })) break;
    return absl::AbortedError(
        fmt::format("journal entry {} cannot be read now: {} is listed, and cannot be opened. The client of a file "
                    "server may remember for a while that it was missing: try again. If that does not help, the folder "
                    "is damaged, and 'checkpoint-inspect repair' makes the journal anew",
                    number, path));
  }
  return absl::OkStatus();
}

void JournalFiles::LookAfresh(EntryNumber number) const {
  const std::string name = fmt::format("/{}{}", kNewPrefix, ToHex(RandomBytes16()));
  for (const std::string& folder : {directory_, UpperFolderOf(number), FolderOf(number)}) {
    storage::LookAfresh(files_, folder + name);
  }
}

absl::StatusOr<EntryNumber> JournalFiles::HighestInFolderOf(EntryNumber number) const {
  auto entries = files_.ListDirectory(FolderOf(number));
  if (!entries.ok()) return entries.status();
  EntryNumber highest = 0;
  for (const DirectoryEntry& entry : *entries) {
    const auto named = ParseName(entry.name, 10);
    if (named && *named > highest && LastOfFolder(*named) == LastOfFolder(number)) highest = *named;
  }
  return highest;
}

absl::StatusOr<EntryNumber> JournalFiles::LastWithoutFolder(EntryNumber number) const {
  const auto last = [&](EntryNumber in_folder) { return number + (in_folder - 1 - (number - 1) % in_folder); };
  absl::Status there = files_.TypeOf(UpperFolderOf(number)).status();
  if (absl::IsNotFound(there)) return last(kSegmentEntries);
  if (!there.ok()) return there;
  there = files_.TypeOf(FolderOf(number)).status();
  if (absl::IsNotFound(there)) return last(kFolderEntries);
  if (!there.ok()) return there;
  return number - 1;
}

absl::StatusOr<EntryNumber> JournalFiles::Highest() const {
  const auto upper = Subfolders(files_, directory_, 4);
  if (!upper.ok()) return upper.status();
  for (const uint64_t segment : *upper) {
    if (segment > std::numeric_limits<EntryNumber>::max() / kSegmentEntries) continue;
    const EntryNumber first = segment * kSegmentEntries + 1;
    const auto lower = Subfolders(files_, UpperFolderOf(first), 2);
    if (!lower.ok()) return lower.status();
    for (const uint64_t folder : *lower) {
      if (folder >= kSegmentEntries / kFolderEntries) continue;
      const auto highest = HighestInFolderOf(first + folder * kFolderEntries);
      if (!highest.ok() || *highest > 0) return highest;
    }
  }
  return 0;
}

absl::StatusOr<EntryNumber> JournalFiles::HighestAfter(EntryNumber number) const {
  const EntryNumber first = number + 1;
  for (EntryNumber next = first;; next = LastOfFolder(next) + 1) {
    const auto highest = HighestInFolderOf(next);
    if (absl::IsNotFound(highest.status())) return number;
    if (!highest.ok()) return highest.status();
    // A folder is made ahead, so an empty one is the end. A power loss may have taken the names before it.
    if (*highest == 0 && next != first) return number;
    number = std::max(number, *highest);
  }
}

absl::Status JournalFiles::MakeNames(EntryNumber number) {
  const std::string upper = UpperFolderOf(number);
  const std::string folder = FolderOf(number);
  // Another process may have made any of them and not synced it. Opened first: file_system.h says why.
  const auto above_upper = files_.OpenDirectory(directory_);
  if (!above_upper.ok()) return above_upper.status();
  if (absl::Status status = OkIfThere(files_.CreateDirectory(upper)); !status.ok()) return status;
  const auto above_folder = files_.OpenDirectory(upper);
  if (!above_folder.ok()) return above_folder.status();
  if (absl::Status status = OkIfThere(files_.CreateDirectory(folder)); !status.ok()) return status;
  for (const int n : {1, 2}) {
    absl::Status status = files_.Create(folder + "/" + RoomName(n), /*direct=*/false).status();
    status = OkIfThere(std::move(status));
    // Without them the folder serves until the disk is full.
    if (!status.ok() && !absl::IsResourceExhausted(status)) return status;
  }
  absl::Status status = (*above_upper)->Sync();
  status.Update((*above_folder)->Sync());
  if (!status.ok()) doubtful_.insert(LastOfFolder(number));
  return status;
}

absl::Status JournalFiles::RemoveNames(EntryNumber number) {
  const std::string folder = FolderOf(number);
  for (const int n : {1, 2}) {
    absl::Status status = OkIfGone(files_.RemoveFile(folder + "/" + RoomName(n)));
    if (!status.ok()) return status;
  }
  for (const std::string& name : {folder, UpperFolderOf(number)}) {
    // What has an entry stays.
    absl::Status status = OkIfThere(OkIfGone(files_.RemoveDirectory(name)));
    if (!status.ok()) return status;
  }
  doubtful_.erase(LastOfFolder(number));
  return absl::OkStatus();
}

absl::Status JournalFiles::MakeFolder(EntryNumber number) {
  const EntryNumber last = LastOfFolder(number);
  if (made_.contains(last)) return absl::OkStatus();
  if (doubtful_.contains(last)) {
    if (absl::Status status = RemoveNames(number); !status.ok()) return status;
  }
  if (absl::Status status = MakeNames(number); !status.ok()) return status;
  made_.insert(last);
  // Appends go up.
  if (made_.size() > kMadeMax) made_.erase(made_.begin());
  return absl::OkStatus();
}

std::string JournalFiles::NewPath(EntryNumber number, std::string_view prefix) const {
  return fmt::format("{}/{}{}", FolderOf(number), prefix, ToHex(RandomBytes16()));
}

absl::StatusOr<bool> JournalFiles::IsPacked(EntryNumber number) const {
  const auto file = files_.OpenForRead(PathOf(number), /*direct=*/false);
  if (absl::IsNotFound(file.status())) return false;
  if (!file.ok()) return file.status();
  std::string begin(kSegmentMagic.size(), '\0');
  absl::Status status = (*file)->ReadAt(0, std::as_writable_bytes(std::span(begin)));
  if (absl::IsDataLoss(status)) return false;
  if (!status.ok()) return status;
  return begin == kSegmentMagic;
}

absl::StatusOr<std::string> JournalFiles::WriteNew(EntryNumber number, std::string_view prefix,
                                                   std::string_view bytes) const {
  const std::string path = NewPath(number, prefix);
  auto file = files_.Create(path, /*direct=*/false);
  if (!file.ok()) return file.status();
  absl::Status status = (*file)->WriteAt(0, std::as_bytes(std::span(bytes)));
  if (status.ok()) status = (*file)->SyncData();
  status.Update((*file)->Close());
  if (!status.ok()) {
    files_.RemoveFile(path).IgnoreError();
    return status;
  }
  return path;
}

}  // namespace tidemark::storage
