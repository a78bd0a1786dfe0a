// The assertion before the write of a record or a block: what was encoded is decoded again, and encoded once more. So
// nothing gets to the disk that no reader would take, or that would be read as something else. No I/O.

#ifndef TIDEMARK_STORAGE_BYTES_CHECKED_ENCODING_H_
#define TIDEMARK_STORAGE_BYTES_CHECKED_ENCODING_H_

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

// The bytes that `encode` makes of the record. `decode` returns a StatusOr. Errors, with `what` and why:
// - kInvalidArgument: `decode` refuses the bytes, or returns a record that `encode` makes other bytes of.
// - kResourceExhausted: `decode` has no memory, which says nothing about the bytes.
template <typename Record, typename Encode, typename Decode>
absl::StatusOr<CheckedEncoding<Record>> EncodeAndCheck(std::string_view what, const Record& record,
                                                       const Encode& encode, const Decode& decode) {
  std::string bytes = encode(record);
  absl::StatusOr<Record> as_read = decode(bytes);
  if (!as_read.ok()) {
    const bool has_memory = !absl::IsResourceExhausted(as_read.status());
    return absl::Status(has_memory ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kResourceExhausted,
                        fmt::format("{} was not written, because it could not be read back: {}", what,
                                    std::string(as_read.status().message())));
  }
  if (encode(*as_read) != bytes) {
    return absl::InvalidArgumentError(
        fmt::format("{} was not written, because it would be read back as a different one", what));
  }
  return CheckedEncoding<Record>{std::move(bytes), *std::move(as_read)};
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_BYTES_CHECKED_ENCODING_H_
