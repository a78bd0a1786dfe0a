// The functions of VerifyOptions, which may throw.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_VERIFY_CALLBACKS_H_
#define TIDEMARK_SNAPSHOT_RESTORE_VERIFY_CALLBACKS_H_

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "storage/io/exception_status.h"
#include "tidemark/store_reader.h"

namespace tidemark {

// The first exception cancels the verification and becomes its error. Thread-safe, except Progress, which one thread
// calls. `options` is not owned.
class VerifyCallbacks {
 public:
  explicit VerifyCallbacks(const VerifyOptions& options) : options_(options) {}

  void Progress(const VerifyProgress& done) {
    if (!options_.progress || !thrown().ok()) return;
    try {
      options_.progress(done);
    } catch (...) {
      Note(storage::ExceptionStatus("VerifyOptions::progress"));
    }
  }

  bool Cancelled() {
    if (!thrown().ok()) return true;
    if (!options_.cancelled) return false;
    try {
      return options_.cancelled();
    } catch (...) {
      Note(storage::ExceptionStatus("VerifyOptions::cancelled"));
      return true;
    }
  }

  absl::Status thrown() const {
    absl::MutexLock lock(&mutex_);
    return thrown_;
  }

 private:
  void Note(const absl::Status& thrown) {
    absl::MutexLock lock(&mutex_);
    thrown_.Update(thrown);
  }

  const VerifyOptions& options_;
  mutable absl::Mutex mutex_;
  absl::Status thrown_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_VERIFY_CALLBACKS_H_
