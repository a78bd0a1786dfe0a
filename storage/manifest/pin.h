// Pins: steps that retention never deletes. The manifest's record says so; pin.json in the step's folder says it too,
// so that a manifest that is rebuilt from the folders knows it. A step's tags are part of its pin: what has a name is
// wanted, and a rebuild must know that name.
//
// That the file is there is the pin. Its note is for people, and a file that cannot be read or understood pins as well:
// of the two mistakes that is the one which can be taken back. Tags are believed only where the file's check holds.

#ifndef TIDEMARK_STORAGE_MANIFEST_PIN_H_
#define TIDEMARK_STORAGE_MANIFEST_PIN_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/manifest/folder_note.h"
#include "storage/manifest/store_layout.h"
#include "storage/shard/ids.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

inline constexpr size_t kPinNoteBytesMax = kFolderNoteBytesMax;

// When this returns ok the pin survives power loss, with these tags and no others. After an error it is as before, or
// as it was to be. Precondition: the tags are as CheckTags wants them.
absl::Status WritePin(FileSystem& files, const StoreLayout& layout, const StepFolder& folder, std::string_view note,
                      const std::vector<std::string>& tags = {});

// The same for its removal. No pin, or no folder, is ok.
absl::Status RemovePin(FileSystem& files, const StoreLayout& layout, const StepFolder& folder);

// The pin's note, empty where it cannot be read or understood; nullopt: there is no pin. An error says that nobody
// knows whether there is.
absl::StatusOr<std::optional<std::string>> ReadPin(FileSystem& files, const StoreLayout& layout,
                                                   const StepFolder& folder);

// Why the pin cannot be read, though that it is there is pin enough. Ok where there is none, and where the disk gives
// it out and its check holds, if it has one: also of bytes that nobody understands.
absl::Status CheckPin(FileSystem& files, const StoreLayout& layout, const StepFolder& folder);

// Pins `info` where its attempt's folder says so and it does not, and adds the tags that the folder has and `info` has
// not, as far as there is room. The note is empty and there are no tags where the file cannot be understood, or, with a
// warning, where its bytes are wrong or the disk does not give it out. The latter is for a later look, and until then
// nobody may write over it: with `must_be_given_out`, for who is to write it anew, that is an error. Whether anything
// changed. Any other error says that nobody knows whether there is a pin, and is only a warning where `info` is pinned
// already. After an error `info` is as it was.
absl::StatusOr<bool> JoinPinOfFolder(FileSystem& files, const StoreLayout& layout,
                                     const std::function<void(std::string_view)>& warn, StepInfo& info,
                                     bool must_be_given_out = false);

// Pins `info`, which takes the place of `replaced` at its step, if that was pinned: it is the step that somebody wants
// to keep, by all its tags. It keeps its own note if it has a pin. Of more tags than a step may have those of
// `replaced` come first, with a warning. Whether anything changed.
bool JoinPin(const StepInfo& replaced, const std::function<void(std::string_view)>& warn, StepInfo& info);

// The same. Where it changes anything and `replaced` is another attempt, the folder of `info` must be there, and gets
// the pin; `info` has it even if that fails. A pin.json that is there already and cannot be read stays as it is, with a
// warning: it may have tags that are nowhere else.
absl::Status InheritPin(FileSystem& files, const StoreLayout& layout, const StepInfo& replaced,
                        const std::function<void(std::string_view)>& warn, StepInfo& info);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_PIN_H_
