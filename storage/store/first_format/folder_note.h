// Notes in a step's folder, of the first format: pin.json says that the step is pinned, deleted.json that it was
// deleted and its files stay for a while. A note matters by being there, so one that cannot be understood counts:
// {"version": 1, "note": "<why, for people>"}, and, where there are any, the step's "tags": [".."] with a check of the
// bytes before it.

#ifndef TIDEMARK_STORAGE_STORE_FIRST_FORMAT_FOLDER_NOTE_H_
#define TIDEMARK_STORAGE_STORE_FIRST_FORMAT_FOLDER_NOTE_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/store/store_layout.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

inline constexpr size_t kFolderNoteBytesMax = 64 << 10;

struct FolderNote {
  std::string text;               // empty where the file cannot be understood; what is too long of it is cut off
  std::vector<std::string> tags;  // as CheckTags wants them: what is none is left out
  // kDataLoss: the bytes are not as they were written, and say nothing. Another error: the disk did not give them out.
  // Ok where they are only not to be understood.
  absl::Status problem;
};

// What the file's bytes say. A pure function.
FolderNote DecodeFolderNote(std::string_view bytes);

// nullopt: there is none. An error: it is not known whether there is one.
absl::StatusOr<std::optional<FolderNote>> ReadFolderNote(FileSystem& files, const std::string& path);

// Pins `info` if its attempt's folder says so, and adds the tags that the folder has and `info` has not, as far as
// there is room. A note that is damaged has no tags, with a warning. An error: the disk does not say whether there is a
// pin, or what it says; that is only a warning if `info` is pinned. After an error `info` is as it was.
absl::Status JoinPinOfFolder(FileSystem& files, const StoreLayout& layout,
                             const std::function<void(std::string_view)>& warn, StepInfo& info);

// Why the step was deleted, empty where that cannot be understood; nullopt: its folder does not say that it was. An
// error: the disk does not say.
absl::StatusOr<std::optional<std::string>> ReadDeletionMark(FileSystem& files, const StoreLayout& layout,
                                                            const StepFolder& folder);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_FIRST_FORMAT_FOLDER_NOTE_H_
