// OpenStaging: a published snapshot whose bytes are still being copied. The writer and the next save wait for the end
// of the copy, so the destructor ends it even if the copying thread throws.

#ifndef TIDEMARK_SNAPSHOT_STAGING_OPEN_STAGING_H_
#define TIDEMARK_SNAPSHOT_STAGING_OPEN_STAGING_H_

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "snapshot/staging/staged_snapshot.h"

namespace tidemark {

// Thread-compatible.
class OpenStaging {
 public:
  explicit OpenStaging(std::shared_ptr<StagedSnapshot> snapshot) : snapshot_(std::move(snapshot)) {}
  // If the staging has not ended, an exception is passing: fails the staging.
  ~OpenStaging() { End(abandoned_); }
  OpenStaging(const OpenStaging&) = delete;
  OpenStaging& operator=(const OpenStaging&) = delete;

  // Before End.
  StagedSnapshot& snapshot() const { return *snapshot_; }

  // Ends the staging. The second call does nothing.
  void End(const absl::Status& status) {
    if (snapshot_ == nullptr) return;
    const std::shared_ptr<StagingProgress> progress = snapshot_->progress();
    snapshot_.reset();  // first: consumers that are done with it may expect its memory to be free
    progress->End(status);
  }

 private:
  std::shared_ptr<StagedSnapshot> snapshot_;  // null: its staging has ended
  // Made beforehand: after an exception there may be no memory for it.
  const absl::Status abandoned_ = absl::InternalError("the copying of the state was abandoned");
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STAGING_OPEN_STAGING_H_
