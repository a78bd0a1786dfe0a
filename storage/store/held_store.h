// What the other ranks of a job must know to take part in a holder's commits, and its bytes, which the job's own means
// carry to them. No I/O.

#ifndef TIDEMARK_STORAGE_STORE_HELD_STORE_H_
#define TIDEMARK_STORAGE_STORE_HELD_STORE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "storage/bytes/ids.h"
#include "storage/journal/journal_view.h"

namespace tidemark::storage {

struct HeldStore {
  StoreId id;
  SessionId session;
  uint64_t epoch = 0;
  JournalPlace place;     // an entry of the journal that is established
  uint64_t sequence = 0;  // of the next attempt

  friend bool operator==(const HeldStore&, const HeldStore&) = default;
};

std::string EncodeHeldStore(const HeldStore& held);

// kDataLoss: not such bytes, or not as they were written. kUnimplemented: of a newer version.
absl::StatusOr<HeldStore> DecodeHeldStore(std::string_view bytes);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_HELD_STORE_H_
