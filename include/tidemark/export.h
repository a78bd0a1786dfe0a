// A step as a safetensors file, which other libraries read: with the names of its entries, and complete or not at all.
//
//   auto store = tidemark::StoreReader::Open("run/ckpt");
//   if (!store.ok()) return store.status();
//   auto step = tidemark::ExportSafetensors(**store, tidemark::StepSelector::Best("validation/loss"),
//                                           "best.safetensors", {.entries = {"model.*"}, .replace = true});
//   if (!step.ok()) return step.status();
//
// tidemark/best_file.h keeps such a file up to date. `checkpoint-inspect export` writes the same files, and also npz,
// plain files, and models in several safetensors files. Link tidemark::exchange.

#ifndef TIDEMARK_EXPORT_H_
#define TIDEMARK_EXPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tidemark/entry.h"
#include "tidemark/snapshot.h"
#include "tidemark/step_selector.h"
#include "tidemark/store_reader.h"

namespace tidemark {

struct ExportOptions {
  // The file has the entries whose names match one of these patterns. '*' stands for any run of characters, '?' for one
  // character. Each pattern must match an entry. Empty: all entries.
  std::vector<std::string> entries = {};
  // As RestoreOptions::renames. If the second name is empty, the first one and the dot behind it are left out:
  // {"model", ""} makes layer.weight of model.layer.weight.
  std::vector<std::pair<std::string, std::string>> renames = {};
  // kFloat16, kBfloat16, kFloat32 or kFloat64: the dtype of all floating-point tensors in the file, rounded to nearest,
  // halves to even. Complex tensors are not converted. nullopt: each tensor keeps its dtype.
  std::optional<Dtype> dtype = {};
  // Whether a regular file of that name may be replaced.
  bool replace = false;
};

// Writes the entries of the snapshot to one file. Tensors become tensors. Of tied ones the first is written, and the
// metadata names the others, as safetensors.torch.save_model does. A value becomes text in the metadata, which also has
// the step's number, metrics and user metadata. Metrics or user metadata of more than 1 MiB are left out.
//
// The file gets its name when all of it is on the disk; until then the disk holds the old file and the new one. A
// process that reads the old file meanwhile goes on reading the old file. After an error, or if the process is killed,
// the old file is there unchanged. Mode 0666, less the umask. A symbolic link at `path` is replaced, not its target.
//   kInvalidArgument: a pattern or a rename fits nothing, renames give two entries one name, `dtype` is none of the
//     four, or safetensors has no such dtype. A value has more than 1 MiB.
//   kAlreadyExists: `path` is there and `replace` is false, or it is no regular file.
//   kNotFound: the folder of `path` does not exist.
//   kResourceExhausted: the disk is full, or there is no memory.
//   kPermissionDenied: the folder cannot be written.
//   Other errors are the disk's. If only the last step failed, the sync of the folder, the new file has its name.
// Thread-safe.
absl::Status ExportSafetensors(const Snapshot& snapshot, const std::string& path, const ExportOptions& options = {});

// Writes the entries of the selected step to one file, and returns the step's number. All exported entries are in
// memory at once. The metrics in the file include those of evaluations. Errors: those above, and those of
// StoreReader::Load.
absl::StatusOr<int64_t> ExportSafetensors(StoreReader& store, const StepSelector& step, const std::string& path,
                                          const ExportOptions& options = {});

}  // namespace tidemark

#endif  // TIDEMARK_EXPORT_H_
