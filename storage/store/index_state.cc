#include "storage/store/index_state.h"

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/bytes/ids.h"

namespace tidemark::storage {
namespace {

constexpr size_t kStateBytesMax = 4096;
constexpr std::string_view kStateName = "state";
constexpr std::string_view kTemporaryName = "state.tmp";

std::string PathOf(const std::string& folder, std::string_view name) { return fmt::format("{}/{}", folder, name); }

// What the state is when the index is closed as it is now.
absl::StatusOr<std::string> ClosedState(FileSystem& files, const std::string& folder) {
  const absl::StatusOr<std::vector<DirectoryEntry>> entries = files.ListDirectory(folder);
  if (!entries.ok()) return entries.status();
  std::map<std::string, uint64_t> sizes;
  for (const DirectoryEntry& entry : *entries) {
    if (entry.name == kStateName || entry.name == kTemporaryName) continue;
    const absl::StatusOr<std::unique_ptr<File>> file = files.OpenForRead(PathOf(folder, entry.name), /*direct=*/false);
    if (!file.ok()) return file.status();
    const absl::StatusOr<uint64_t> size = (*file)->Size();
    if (!size.ok()) return size.status();
    sizes.emplace(entry.name, *size);
  }
  std::string text;
  for (const auto& [name, size] : sizes) text += fmt::format("{} {}\n", name, size);
  return fmt::format("closed {}", ToHex(DigestOf(std::as_bytes(std::span(text))).bytes));
}

absl::StatusOr<std::string> OpenState(FileSystem& files, const std::string& folder, std::string_view boot) {
  const absl::StatusOr<FileId> id = files.Identify(folder);
  if (!id.ok()) return id.status();
  return fmt::format("open {} {} {}", boot, id->device, id->inode);
}

// The old state is there or the new one, but for a power loss, after which neither is believed.
absl::Status Write(FileSystem& files, const std::string& folder, std::string_view state) {
  const std::string temporary = PathOf(folder, kTemporaryName);
  if (absl::Status removed = files.RemoveFile(temporary); !removed.ok() && !absl::IsNotFound(removed)) return removed;
  absl::StatusOr<std::unique_ptr<File>> file = files.Create(temporary, /*direct=*/false);
  if (!file.ok()) return file.status();
  absl::Status status = (*file)->WriteAt(0, std::as_bytes(std::span(state)));
  if (status.ok()) status = (*file)->Close();
  return status.ok() ? files.Rename(temporary, PathOf(folder, kStateName)) : status;
}

}  // namespace

absl::StatusOr<bool> IsIndexBelieved(FileSystem& files, const std::string& folder, std::string_view boot) {
  const absl::StatusOr<std::string> state = ReadSmallFile(files, PathOf(folder, kStateName), kStateBytesMax);
  if (absl::IsNotFound(state.status()) || absl::IsDataLoss(state.status())) return false;
  if (!state.ok()) return state.status();
  const bool is_closed = state->starts_with("closed ");
  if (!is_closed && boot.empty()) return false;
  const absl::StatusOr<std::string> expected = is_closed ? ClosedState(files, folder) : OpenState(files, folder, boot);
  if (!expected.ok()) return expected.status();
  return *state == *expected;
}

absl::Status MarkIndexOpen(FileSystem& files, const std::string& folder, std::string_view boot) {
  const absl::StatusOr<std::string> state = OpenState(files, folder, boot);
  return state.ok() ? Write(files, folder, *state) : state.status();
}

absl::Status MarkIndexClosed(FileSystem& files, const std::string& folder, const FileId& opened) {
  const absl::StatusOr<FileId> id = files.Identify(folder);
  if (!id.ok()) return id.status();
  if (*id != opened) return absl::FailedPreconditionError(fmt::format("{} is another folder now", folder));
  const absl::StatusOr<std::string> state = ClosedState(files, folder);
  return state.ok() ? Write(files, folder, *state) : state.status();
}

absl::Status MarkIndexDamaged(FileSystem& files, const std::string& folder) {
  const absl::Status removed = files.RemoveFile(PathOf(folder, kStateName));
  return absl::IsNotFound(removed) ? absl::OkStatus() : removed;
}

absl::Status RemoveIndex(FileSystem& files, const std::string& folder) {
  const absl::StatusOr<FileType> type = files.TypeOf(folder);
  if (type.ok() && *type == FileType::kDirectory) {
    if (absl::Status status = MarkIndexDamaged(files, folder); !status.ok()) return status;
  }
  return RemoveTree(files, folder);
}

}  // namespace tidemark::storage
