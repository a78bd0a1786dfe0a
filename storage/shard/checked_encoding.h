// The assertion before the write of a record or a block: what was encoded is decoded again, and encoded once more. So
// nothing gets to the disk that no reader would take, or that would be read as something else. No I/O.

#ifndef TIDEMARK_STORAGE_SHARD_CHECKED_ENCODING_H_
#define TIDEMARK_STORAGE_SHARD_CHECKED_ENCODING_H_

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fmt/format.h"

namespace tidemark::storage {

template <typename Record>
struct CheckedEncoding {
  std::string bytes;
  Record as_read;  // text that is not UTF-8 has been replaced by then
};

// The bytes that `encode` makes of the record. kInvalidArgument, with `what` and why: `decode`, which returns a
// StatusOr, refuses them, or returns a record that `encode` makes other bytes of.
template <typename Record, typename Encode, typename Decode>
absl::StatusOr<CheckedEncoding<Record>> EncodeAndCheck(std::string_view what, const Record& record,
                                                       const Encode& encode, const Decode& decode) {
  std::string bytes = encode(record);
  absl::StatusOr<Record> as_read = decode(bytes);
  if (!as_read.ok()) {
    return absl::InvalidArgumentError(
        fmt::format("{} is not written, for it could not be read: {}", what, std::string(as_read.status().message())));
  }
  if (encode(*as_read) != bytes) {
    return absl::InvalidArgumentError(fmt::format("{} is not written, for it would be read as another", what));
  }
  return CheckedEncoding<Record>{std::move(bytes), *std::move(as_read)};
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_CHECKED_ENCODING_H_
