// FileMetadata: what safetensors files say of a step beside their tensors, in `__metadata__`. `export` writes it and
// `import` reads it. No I/O.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_EXCHANGE_FILE_METADATA_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_EXCHANGE_FILE_METADATA_H_

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "snapshot/exchange/export_metadata.h"
#include "snapshot/exchange/safetensors_header.h"
#include "tidemark/step_info.h"
#include "tools/checkpoint_inspect/tensors/tensor_source.h"

namespace tidemark::inspect {

// In the user metadata of what no export wrote: the files' names, and a string that a file itself has under that key.
inline constexpr std::string_view kImportedFromKey = "imported_from";
inline constexpr std::string_view kFileImportedFromKey = "file.imported_from";

// Values and tied names of all files together, and the bytes of their names and texts: they are held until the step is
// written. An export has all of them in the header of one file, which takes no more.
inline constexpr size_t kFileEntriesMax = kSafetensorsMetadataMax / 2;  // each is two strings
inline constexpr size_t kFileEntryBytesMax = kSafetensorsHeaderBytesMax;

// Thread-compatible.
class FileMetadata {
 public:
  struct Tie {
    std::string file;
    std::string name;
    std::string tied_to;
  };

  // `with_step`: whether what the files say of the step is asked for, or only values and ties.
  explicit FileMetadata(bool with_step) : with_step_(with_step) {}

  // Takes in what `file`, whose name is for people, has as its metadata. kDataLoss: an export's key does not say what
  // that key must. kInvalidArgument: another file has something else under the same key, it is more than a step's user
  // metadata may be, or there are more values and tied names than kFileEntriesMax or kFileEntryBytesMax. Every message
  // names the file, and the key where it is about one. The object is of no use after an error.
  absl::Status Add(const std::string& file, std::map<std::string, std::string> strings);

  // Takes in a tensor that is tied to another by what its file says elsewhere. kInvalidArgument: there are too many.
  absl::Status AddTie(Tie tie);

  // Whether Add takes in more than values and ties of exports.
  bool with_step() const { return with_step_; }

  // The values that are no tensors, a source for each file that has any.
  const std::vector<std::unique_ptr<TensorSource>>& values() const { return values_; }
  // Whether there are such tensors is the caller's to check.
  const std::vector<Tie>& ties() const { return ties_; }

  // Of the exported step; none where no file says any.
  const Metrics& metrics() const { return metrics_; }

  // The user metadata of the exported step, or {"imported_from": [`names`]}, and all strings that are not an export's
  // own, "imported_from" as kFileImportedFromKey; without any the text of an export to the byte. kInvalidArgument as
  // Add.
  absl::StatusOr<std::string> UserMetadata(const std::vector<std::string>& names) const;

 private:
  struct Text {
    std::string text;
    size_t file = 0;  // in files_
  };
  using Texts = std::map<std::string, Text>;

  absl::Status TakeEntries(std::map<std::string, std::string>* strings);
  absl::Status TakeStep(std::map<std::string, std::string>* strings);
  absl::Status Count(const std::string& name, size_t bytes);
  absl::Status Merge(const std::string& key, std::string text, Texts* texts);
  absl::Status Conflict(const std::string& key, size_t file, size_t other) const;
  absl::Status TooManyKeys() const;
  absl::Status BeyondLimits() const;

  const bool with_step_;
  std::vector<std::string> files_;
  std::vector<std::unique_ptr<TensorSource>> values_;
  std::vector<Tie> ties_;
  size_t entries_ = 0;      // values and ties
  size_t entry_bytes_ = 0;  // of them
  Metrics metrics_;
  Texts step_;        // kMetricsKey and kUserMetadataKey of exports
  Texts strings_;     // all others
  size_t bytes_ = 0;  // of strings_
};

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_EXCHANGE_FILE_METADATA_H_
