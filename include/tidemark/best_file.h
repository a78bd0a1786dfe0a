// BestFile: keeps a safetensors file of the best step up to date, beside a trainer or in another process.
//
//   auto best = tidemark::BestFile::Start({.store = "run/ckpt",
//                                          .metric = "validation/loss",
//                                          .path = "run/best.safetensors",
//                                          .contents = {.entries = {"model.*"}}});
//   if (!best.ok()) return best.status();
//
// A process that reads the file gets the earlier best step or the new one, whole. Link tidemark::exchange.

#ifndef TIDEMARK_BEST_FILE_H_
#define TIDEMARK_BEST_FILE_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tidemark/checkpoint_observer.h"
#include "tidemark/export.h"
#include "tidemark/step_info.h"

namespace tidemark {

struct BestFileOptions {
  std::string store = {};   // its directory
  std::string metric = {};  // "loss", or "validation/loss" of an evaluator
  // nullopt: the mode that the store has recorded for the metric, else the mode that its name gives (BestModeOfName).
  std::optional<BestMode> mode = {};
  std::string path = {};  // the file. Start resolves relative paths once
  // Of the file. `replace` is for a file that is there and is not an export of this store: false refuses it.
  ExportOptions contents = {};
  // How often the store is read for a new best step. More than 0. It costs little if nothing has changed.
  absl::Duration poll_interval = absl::Seconds(1);
  // Exported is called after each export, on its thread. Warning is called once for each new reason why the file is not
  // up to date. Neither may destroy the BestFile. Null: warnings go to standard error.
  std::shared_ptr<CheckpointObserver> observer = {};
};

// Thread-safe. Reads the store as StoreReader does: without its lock, and with a lease on the step while it reads.
// Nothing that happens here delays or fails a save. Its thread has the niceness of background threads. Holds the
// exported entries of one step in memory during an export.
//
// The best step is the healthy one with the best finite value; of several, the highest. A step that was deleted remains
// the best one, and the file then stays as it is. RetentionOptions::keep_best keeps the best step until it is exported.
//
// An export that fails leaves the file as it was. The thread tries again after twice the last pause, up to a minute or
// the poll interval. The first best step after Start is always exported, even if an earlier process has exported it.
class BestFile {
 public:
  // Starts a thread that exports the best step whenever it changes.
  //   kInvalidArgument: an option is out of its range, or nothing says whether the lowest or the highest is the best.
  //   kAlreadyExists: `path` is there, is not an export of this store, and contents.replace is false.
  //   kResourceExhausted: no thread.
  //   Other errors are those of StoreReader::Open; kNotFound: there is no store yet.
  static absl::StatusOr<std::unique_ptr<BestFile>> Start(BestFileOptions options);

  // Waits for an export that is running, and ends the thread. Call Update before, if the last steps are to count. In a
  // forked child, which has no such thread, it does nothing.
  ~BestFile();
  BestFile(const BestFile&) = delete;
  BestFile& operator=(const BestFile&) = delete;

  // Looks for a new best step now, and exports it on the caller's thread. If it is ok, the file holds the best step, or
  // the best step was deleted, or no step has the metric yet.
  //   kFailedPrecondition: a forked child calls it.
  //   Other errors are those of StoreReader::Refresh and ExportSafetensors. The observer is warned of them too.
  absl::Status Update();

 private:
  struct Impl;
  explicit BestFile(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidemark

#endif  // TIDEMARK_BEST_FILE_H_
