// Requests in inbox/: how they get there, and how whoever has the store open carries them out. Record first, then the
// file goes: a crash in between has the request carried out once more, which changes nothing.

#ifndef TIDEMARK_STORAGE_MANIFEST_REQUEST_INBOX_H_
#define TIDEMARK_STORAGE_MANIFEST_REQUEST_INBOX_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/manifest/retention.h"
#include "storage/manifest/store.h"
#include "storage/manifest/store_layout.h"
#include "storage/manifest/store_request.h"

namespace tidemark::storage {

// For who does not have the store open: when this returns ok the request survives power loss. Makes inbox/ if need be.
// Returns the path of the file, which is gone once the request has been carried out or refused. kInvalidArgument: see
// EncodeStoreRequest. A deletion for which the disk has no room takes what is set aside, for it makes some; see
// disk_reserve.h.
absl::StatusOr<std::string> DeliverRequest(FileSystem& files, const StoreLayout& layout, const StoreRequest& request);

struct RequestsTaken {
  // Carried out, own ones included; after a crash once more.
  std::vector<StoreRequest> done;
  // Those of them whose steps this call has marked as deleted. Their files are for Retention.
  std::vector<StoreRequest> deleted;
  int64_t refused = 0;  // files that were removed or moved to quarantine/ without effect
  // The caller's own requests, by their place in the list, and why one is refused. One in neither is for the next call.
  std::set<size_t> own_done;
  std::map<size_t, std::string> own_refused;
  bool more = false;   // deletions are left only because one call does a bounded number
  absl::Status error;  // the first one met: what it kept from being done is for the next call
};

struct TakeRequestsOptions {
  Retention::ReadClaims claims;      // as for Retention::LetGo
  Retention::ReadUnjudged unjudged;  // the same
  bool deletions = true;             // else those stay for a later call
  // The caller's own requests, which lie in no file: who has the store open needs no room on the disk to ask itself.
  // Carried out in their order among the others. Not owned.
  std::span<const StoreRequest> own;
  std::function<void(std::string_view)> warn;
  // Names of requests of a newer version that have been warned of; null: each is, every time.
  std::set<std::string>* warned = nullptr;
};

// For the process that has the store open: carries out the requests in the order in which they were asked.
//   - One that cannot be read, or is another store's, is moved to quarantine/, with a warning.
//   - One that cannot be honoured is removed, with one warning for all that are refused for the same reason: its step
//   is
//     gone or has been replaced; to delete, stays whatever the rules say; to tag, has no room for another tag. The
//     step's record answers the asker: its state and attempt, its tags, or, of a step that stays, StepInfo::kept.
//   - A newer version's is left alone, with a warning.
// Files of writers that died while they wrote are removed once their step is gone.
//
// An error is the disk's or the manifest's. Other requests are carried out all the same. Of deletions one call does a
// bounded number.
RequestsTaken TakeInRequests(FileSystem& files, Store& store, Retention& retention, const TakeRequestsOptions& options);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_REQUEST_INBOX_H_
