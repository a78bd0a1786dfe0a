// The facts of a journal's entry.

#ifndef TIDEMARK_STORAGE_STORE_ENTRY_FACTS_H_
#define TIDEMARK_STORAGE_STORE_ENTRY_FACTS_H_

#include <vector>

#include "absl/status/statusor.h"
#include "storage/bytes/ids.h"
#include "storage/journal/entry.h"
#include "storage/records/fact.h"

namespace tidemark::storage {

// Decodes them all. Errors, whose message names the entry: those of DecodeFact; kDataLoss if the journal belongs to
// another store.
absl::StatusOr<std::vector<Fact>> DecodeFacts(const JournalEntry& entry, const StoreId& store);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_ENTRY_FACTS_H_
