// Notes in a step's folder: files that matter by being there, so that a manifest that is rebuilt from the folders knows
// what its records said: {"version": 1, "note": "<why, for people>"}, and, where there are any, the step's "tags":
// [".."] with a check of the bytes behind them, for a wrong name would be believed.

#ifndef TIDEMARK_STORAGE_MANIFEST_FOLDER_NOTE_H_
#define TIDEMARK_STORAGE_MANIFEST_FOLDER_NOTE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

inline constexpr size_t kFolderNoteBytesMax = 64 << 10;

struct FolderNote {
  std::string text;               // empty where the file cannot be understood; what is too long of it is cut off
  std::vector<std::string> tags;  // as CheckTags wants them: what is none is left out
  // Why the disk did not give it out. kDataLoss: it did, but the bytes are not as they were written, and say nothing.
  // Ok where they are only not to be understood.
  absl::Status problem;
};

// The file's bytes, and what they say. Pure functions. Preconditions: see WriteFolderNote.
std::string EncodeFolderNote(std::string_view note, const std::vector<std::string>& tags);
FolderNote DecodeFolderNote(std::string_view bytes);

// When this returns ok the note survives power loss, and what was there before is gone. After an error it is there or
// not, wholly. Preconditions: it has at most kFolderNoteBytesMax bytes; the tags are as CheckTags wants them.
absl::Status WriteFolderNote(FileSystem& files, const std::string& path, std::string_view note,
                             const std::vector<std::string>& tags = {});

// nullopt: there is none. An error says that nobody knows whether there is.
absl::StatusOr<std::optional<FolderNote>> ReadFolderNote(FileSystem& files, const std::string& path);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_FOLDER_NOTE_H_
