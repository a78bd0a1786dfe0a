// StoreChange: something that bringing a store into order does to it, or finds and leaves alone.

#ifndef TIDEMARK_STORAGE_STORE_REPAIR_STORE_CHANGE_H_
#define TIDEMARK_STORAGE_STORE_REPAIR_STORE_CHANGE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tidemark::storage {

struct StoreChange {
  enum class Kind {
    kIdentityWritten,  // store.json, from what the store holds
    kConverted,        // a store of the first format has a journal now
    kJournalRebuilt,   // from the index or its own entries, and from the shards; the old one is kept beside it
    kIndexMade,        // from the journal
    kCommittedAgain,   // a step that was lost or damaged is whole
    kAdopted,          // a step whose save was cut short is committed (adoption.h)
    kMarkedLost,       // the step's files are gone
    kMarkedDamaged,    // bytes are wrong, and the files stay, because other steps refer to them
    kQuarantined,      // moved to quarantine/
    kRemoved,
    kLeftAlone,  // nothing was done: it is not Tidemark's, or of a newer version, or kept for a person
  };
  Kind kind = Kind::kLeftAlone;
  std::optional<int64_t> step;
  std::string path;                  // of what it is about
  std::string why;                   // what is wrong, or what it is
  std::vector<std::string> entries;  // kQuarantined, kMarkedDamaged: which lose data, as far as is known
  bool adoptable = false;            // kRemoved, in a plan: all files of a save that was cut short; see adoption.h
};

// Told of changes when they have been made.
using OnStoreChange = std::function<void(StoreChange)>;

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_REPAIR_STORE_CHANGE_H_
