// A segment: many entries of a journal in one file. It replaces their own files, under the same names.
//
// Bytes, little-endian: "TMKSGMNT", version (u16, 1), first number (u64), count (u32), each entry with its length
// before it (u32) and as DigestOfEntry takes it, XXH3-64 of all that (u64). Pure functions between structs and bytes;
// no I/O.

#ifndef TIDEMARK_STORAGE_JOURNAL_SEGMENT_H_
#define TIDEMARK_STORAGE_JOURNAL_SEGMENT_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/journal/entry.h"

namespace tidemark::storage {

inline constexpr std::string_view kSegmentMagic = "TMKSGMNT";

// Whether a file is a segment and not an entry's own, by its first bytes.
bool IsSegment(std::string_view bytes);

// `entries` have numbers without gaps, and each follows the one before it. Errors:
// - kInvalidArgument: they do not, or there are none.
// - kResourceExhausted: longer than kEntryFileBytesMax.
absl::StatusOr<std::string> EncodeSegment(const std::vector<DigestedEntry>& entries);

// `what` names the file in messages. Takes no more memory than a small multiple of `bytes`. The entries' facts may be
// anything. Errors:
// - kDataLoss: not such a file, not as it was written, or entries that do not follow each other.
// - kUnimplemented: written by a newer version.
absl::StatusOr<std::vector<DigestedEntry>> DecodeSegment(std::string_view what, std::string_view bytes);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_JOURNAL_SEGMENT_H_
