// Requests of the first format: what a person asked of a store that a trainer held, as a file in inbox/. Each is about
// one attempt.
//
// Pure functions between structs and bytes; no I/O. A request is a JSON object with a version and a check of all its
// bytes, like a metric report.

#ifndef TIDEMARK_STORAGE_STORE_FIRST_FORMAT_STORE_REQUEST_H_
#define TIDEMARK_STORAGE_STORE_FIRST_FORMAT_STORE_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/bytes/ids.h"
#include "storage/store/first_format/folder_note.h"

namespace tidemark::storage {

inline constexpr int kStoreRequestVersion = 1;
inline constexpr size_t kRequestTextBytesMax = kFolderNoteBytesMax;
inline constexpr size_t kRequestAskerBytesMax = 1024;
inline constexpr size_t kStoreRequestBytesMax = 512 << 10;  // an escaped byte takes up to 6

struct StoreRequest {
  enum class Kind {
    kPin,     // retention keeps the step
    kUnpin,   // and may let go of it
    kDelete,  // it goes, unless something keeps it whatever the rules of retention say
    kTag,     // retention keeps the step, and it has a name
    kUntag,   // it has that name no more; retention keeps it still
  };
  Kind kind = Kind::kPin;
  StoreId store;
  int64_t step = 0;
  AttemptId attempt;
  std::string text;   // kPin: the note; kDelete: why, for the step's record; kTag, kUntag: the name; else empty
  std::string asker;  // for people: process, host and user
  absl::Time asked;   // by the asker's wall clock; of two requests the later one counts
};

// "pin", "unpin", "delete", "tag", "untag"
std::string_view RequestKindName(StoreRequest::Kind kind);

// kDataLoss: not such a request, or not as it was written; the message says what is wrong. kUnimplemented: written by a
// newer version. Takes no more memory than a small multiple of `bytes`, whatever they are.
absl::StatusOr<StoreRequest> DecodeStoreRequest(std::string_view bytes);

// Whether that is the name of a request in inbox/: "request-<name of the step's folder>-<32 hexadecimal digits of the
// bytes' XXH3-128>.json".
bool IsRequestFileName(std::string_view name);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_FIRST_FORMAT_STORE_REQUEST_H_
