// Leases: live readers' claims on attempts, as locked files in leases/. A lease keeps retention from deleting the
// attempt's files, and other workers of the same evaluator from evaluating it too.
//
// A reader takes the lease and only then looks whether the step is still committed; who deletes marks the step deleted
// and only then looks whether there is a lease. So one of the two always sees the other.
//
// A lease dies with its holder. On the holder's own kernel (the same boot id) its lock says whether it lives; from
// elsewhere, where locks may not reach, a lease counts as dead when its renewals have stood still for its expiry, by
// the observer's own monotonic clock: no two clocks are ever compared.

#ifndef TIDEMARK_STORAGE_MANIFEST_LEASE_H_
#define TIDEMARK_STORAGE_MANIFEST_LEASE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/io/file_system.h"
#include "storage/manifest/store_layout.h"
#include "storage/shard/ids.h"

namespace tidemark::storage {

// What a lease file says. Encoded as one line of JSON with a version.
struct LeaseNote {
  int64_t step = 0;
  AttemptId attempt;
  std::string evaluator;
  std::string holder;   // for people: worker's name, process, host
  std::string machine;  // boot id of the holder's kernel
  absl::Duration expiry;
  uint64_t renewals = 0;
};

std::string EncodeLeaseNote(const LeaseNote& note);
// kDataLoss: not such a note. kUnimplemented: a newer version's.
absl::StatusOr<LeaseNote> DecodeLeaseNote(std::string_view bytes);

// "<attempt>-<32 hexadecimal digits of the evaluator's name's XXH3-128>.lease"
std::string LeaseFileName(const AttemptId& attempt, std::string_view evaluator);

// This kernel's boot id; where the system has none, the host's name.
std::string ThisMachine();

// Thread-compatible. Destruction releases the lease: removes the file, then unlocks it.
class Lease {
 public:
  // Counts one renewal. To be called several times within the expiry by who holds it for long.
  absl::Status Renew();
  ~Lease();

 private:
  friend class LeaseObserver;
  Lease(FileSystem& files, std::string path, LeaseNote note, std::unique_ptr<FileLock> lock);
  FileSystem& files_;
  const std::string path_;
  LeaseNote note_;
  std::unique_ptr<FileLock> lock_;
};

// Remembers when it saw which renewals, and so knows which leases of other machines stand still. Thread-compatible.
class LeaseObserver {
 public:
  // `now`: a monotonic clock. `machine`: this one's.
  LeaseObserver(FileSystem& files, const StoreLayout& layout, std::string machine, std::function<absl::Time()> now);

  // kUnavailable, with the holder, if the attempt is leased by a live holder of the same evaluator's name.
  absl::StatusOr<std::unique_ptr<Lease>> Acquire(LeaseNote note);

  struct Held {
    LeaseNote note;  // only the attempt is known where the note cannot be read
    bool readable = true;
  };
  // Live leases, by file name. Removes the files of dead ones. A note that cannot be read counts as a live holder's
  // until it has stood still, or can be locked on this machine.
  absl::StatusOr<std::vector<Held>> Live();

 private:
  struct Sighting {
    std::string note;
    absl::Time since;
  };
  FileSystem& files_;
  const StoreLayout layout_;
  const std::string machine_;
  const std::function<absl::Time()> now_;
  std::map<std::string, Sighting> sightings_;  // by file name
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_LEASE_H_
