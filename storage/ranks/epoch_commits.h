// What the journal says of the commits of one epoch, for a rank whose process does not hold the store.

#ifndef TIDEMARK_STORAGE_RANKS_EPOCH_COMMITS_H_
#define TIDEMARK_STORAGE_RANKS_EPOCH_COMMITS_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "storage/journal/journal.h"
#include "storage/ranks/participant.h"
#include "storage/store/store.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

// Thread-compatible. Only established entries count.
class EpochCommits {
 public:
  // Begins at the place that the holder has given, so the journal's length does not matter. Errors: Journal::Open's.
  static absl::StatusOr<std::unique_ptr<EpochCommits>> Open(FileSystem& files, const StoreLayout& layout,
                                                            const HeldStore& held);

  // What is known of the attempt, after a look at what is new. To be asked of one attempt after the other, of each
  // before it can be committed. Errors: Journal::Look's; kDataLoss or kUnimplemented, from then on: a fact cannot be
  // understood, so nothing after it is.
  absl::StatusOr<JournalSight> Look(const AttemptId& attempt);

  // The same past the caches of a file server. If the journal shows the attempt's commit or a newer epoch, and does not
  // say that it is established, an entry without facts is appended, which makes it so. Only then: many ranks whose
  // deadline passes at once would be in each other's way, and in that of the commit. Errors: those of Look, and the
  // append's.
  absl::StatusOr<JournalSight> Settle(const AttemptId& attempt);

 private:
  absl::StatusOr<JournalSight> Look(const AttemptId& attempt, bool* has_visible);
  EpochCommits(std::unique_ptr<Journal> journal, const HeldStore& held);

  const std::unique_ptr<Journal> journal_;
  const StoreId store_;
  uint64_t newest_epoch_;
  AttemptId asked_;  // the last attempt that was asked for
  bool committed_ = false;
  absl::Status refused_;  // why an entry cannot be understood
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RANKS_EPOCH_COMMITS_H_
