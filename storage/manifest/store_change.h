// StoreChange: something that bringing a store into order does to it, or finds and leaves alone.

#ifndef TIDEMARK_STORAGE_MANIFEST_STORE_CHANGE_H_
#define TIDEMARK_STORAGE_MANIFEST_STORE_CHANGE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tidemark::storage {

struct StoreChange {
  enum class Kind {
    kIdentityWritten,   // store.json, from what the store holds
    kManifestRebuilt,   // from the shards; the old one is kept beside it
    kIndicesCorrected,  // the manifest's own, from its records
    kAdopted,           // a complete attempt without a record is committed
    kCommittedAgain,    // a step that was lost or damaged is whole
    kPinned,            // a record, as the step's folder says
    kMarkedLost,        // the step's files are gone
    kMarkedDamaged,     // bytes are wrong, and the files stay, for other steps need them, or it needs others' files
    kMarkedDeleted,     // a record, as the step's folder says
    kQuarantined,       // moved to quarantine/
    kRemoved,
    kLeftAlone,  // nothing was done: it is somebody else's, or of a newer version, or kept for a person
  };
  Kind kind = Kind::kLeftAlone;
  std::optional<int64_t> step;
  std::string path;                  // of what it is about
  std::string why;                   // what is wrong, or what it is
  std::vector<std::string> entries;  // kQuarantined, kMarkedDamaged: which lose data, as far as is known
};

// Told of changes when they have been made. Null: nobody wants to know.
using OnStoreChange = std::function<void(const StoreChange&)>;

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_STORE_CHANGE_H_
