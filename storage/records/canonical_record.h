// A quick reader of step records. Who lists a store reads all of them, and a general JSON parser takes most of that
// time. Pure functions.

#ifndef TIDEMARK_STORAGE_RECORDS_CANONICAL_RECORD_H_
#define TIDEMARK_STORAGE_RECORDS_CANONICAL_RECORD_H_

#include <optional>
#include <string_view>

#include "storage/records/manifest_records.h"

namespace tidemark::storage {

// Reads a record that looks just as EncodeStepRecord writes it: version 2, these fields in this order, no spaces, no
// characters beyond ASCII. nullopt says nothing about the record but that DecodeStepRecord's parser must look at it;
// what is returned is what that one would return.
std::optional<StepRecord> ReadCanonicalStepRecord(std::string_view bytes);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RECORDS_CANONICAL_RECORD_H_
