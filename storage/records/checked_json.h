// JSON objects that are written in one process and believed in another one: the last bytes are a check of all before
// them, nothing is named twice, and nothing nests without end. No I/O.

#ifndef TIDEMARK_STORAGE_RECORDS_CHECKED_JSON_H_
#define TIDEMARK_STORAGE_RECORDS_CHECKED_JSON_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "storage/records/json_fields.h"

namespace tidemark::storage {

// A check of the bytes, as it is written: 16 hexadecimal digits.
std::string CheckOf(std::string_view bytes);

// Whether the bytes are as they were written; to be asked before any field is believed, the version included.
// kDataLoss, with `what` before it: there are more than `bytes_max`, they do not end in a check, or it is not theirs.
absl::Status CheckEnd(std::string_view what, std::string_view bytes, size_t bytes_max);

// Whether a check is anywhere in the bytes, right or wrong: for what may be older than its check. Text in an object is
// never taken for one.
bool HasCheck(std::string_view bytes);

// What they say. Throws what the library does, and std::invalid_argument where a name is in an object twice or the
// object nests deeper than anything that is written; for DecodeJson. Takes no more memory than a small multiple of
// `bytes`.
Json ParseStrictly(std::string_view bytes);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RECORDS_CHECKED_JSON_H_
