// Leases: live readers' claims on attempts, as locked files in leases/. A lease keeps retention from deleting the
// attempt's files, and other workers of the same evaluator from evaluating it too.
//
// A reader takes the lease and only then looks whether the step is still committed; the holder deletes the step by an
// entry of the journal and only then looks whether there is a lease. So one of the two always sees the other.
//
// A lease dies with its holder. On the holder's own kernel (the same boot id) its lock says whether it lives; from
// elsewhere, where locks may not reach, a lease counts as dead when its renewals have stood still for its expiry, by
// the observer's own monotonic clock, and its lock can be had: no two clocks are ever compared.
//
// Taking a lock erases the note of whoever had it. So nobody tries the lock of a lease that may be alive out of its
// reach; and who renews or releases a lease first looks whether it is still its own.

#ifndef TIDEMARK_STORAGE_STORE_LEASE_H_
#define TIDEMARK_STORAGE_STORE_LEASE_H_

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

inline constexpr int kLeaseNoteVersion = 1;

// Nobody waits longer than this for a lease of another machine to die.
inline constexpr absl::Duration kLeaseExpiryMax = absl::Hours(24);

// What a lease file says. Encoded as one line of JSON with a version.
struct LeaseNote {
  int64_t step = 0;
  AttemptId attempt;
  std::string evaluator;
  std::string holder;     // for people: worker's name, process, host
  std::string machine;    // boot id of the holder's kernel; Acquire fills it in
  absl::Duration expiry;  // more than 0, up to kLeaseExpiryMax
  uint64_t renewals = 0;  // Acquire sets it to 0
  std::array<uint8_t, 16> lease =
      {};  // random; tells this lease from the next one of the same holder; Acquire draws it
};

std::string EncodeLeaseNote(const LeaseNote& note);
// kDataLoss: not such a note. kUnimplemented: a newer version's.
absl::StatusOr<LeaseNote> DecodeLeaseNote(std::string_view bytes);

// "<attempt>-<32 hexadecimal digits of the evaluator's name's XXH3-128>.lease"
std::string LeaseFileName(const AttemptId& attempt, std::string_view evaluator);
// The attempt in a name that LeaseFileName gives for it and some evaluator.
std::optional<AttemptId> AttemptOfLeaseFile(std::string_view name);

// This kernel's boot id, which each start of the machine changes. Empty where the system has none.
std::string BootId();
// The boot id; where there is none, the host's name.
std::string ThisMachine();

// The clock for everybody but tests: goes on whatever is done to the time of day.
absl::Time MonotonicNow();

// Thread-compatible. Destruction releases the lease: removes the file, then unlocks it. A forked child's copy releases
// nothing.
class Lease {
 public:
  // Counts one renewal. To be called several times within the expiry by who holds it for long. kAborted: it stood still
  // for longer, and somebody took it for dead: the attempt's files may go, and another may be evaluating it. After any
  // other error the lease is still held, and the next call may do better.
  absl::Status Renew();
  ~Lease();

  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;

  const LeaseNote& note() const { return note_; }

 private:
  friend class LeaseObserver;
  Lease(FileSystem& files, std::string path, LeaseNote note, std::unique_ptr<FileLock> lock);
  absl::StatusOr<bool> IsStillHeld() const;

  FileSystem& files_;
  const std::string path_;
  const pid_t process_;
  LeaseNote note_;
  bool written_ = true;  // the file says what note_ does; false after a write that failed
  const std::unique_ptr<FileLock> lock_;
};

// Remembers when it saw which renewals, and so knows which leases of other machines stand still. Thread-compatible.
class LeaseObserver {
 public:
  // `now`: a monotonic clock. `machine`: this one's. `files` outlives the leases.
  LeaseObserver(FileSystem& files, const StoreLayout& layout, std::string machine, std::function<absl::Time()> now);

  // kUnavailable, with the holder, if the attempt is leased by a live holder of the same evaluator's name.
  // kInvalidArgument: the expiry is out of range, the texts are longer than a note has room for, or the note could not
  // be read again. Other errors: the lease cannot be written; there is none then.
  absl::StatusOr<std::unique_ptr<Lease>> Acquire(LeaseNote note);

  struct Held {
    LeaseNote note;  // only the attempt is known where the note cannot be read
    bool readable = true;
    std::string problem;  // why it is not readable, for a warning; empty while the lease may just be being taken
  };
  // Live leases, by file name. Removes the files of dead ones. A note that cannot be read counts as a live holder's
  // until it has stood still (seconds if it is empty, an hour otherwise) and can be locked; a newer version's, or one
  // that the disk does not give out, for good.
  absl::StatusOr<std::vector<Held>> Live();

 private:
  struct Sighting {
    std::string note;
    absl::Time since;
  };
  enum class Life { kNone, kLive, kByLock };  // kByLock: it is alive if its lock is held
  struct Look {
    Life life = Life::kNone;
    Held held;
    std::string bytes;  // of the note, as far as they could be read
  };
  Look LookAt(const std::string& name, const AttemptId& attempt);
  bool StoodStill(const std::string& name, const std::string& bytes, absl::Duration expiry);
  // `bytes`: the note as it is written.
  absl::StatusOr<std::unique_ptr<Lease>> Take(const std::string& path, const LeaseNote& note, const std::string& bytes,
                                              std::unique_ptr<FileLock> lock);

  FileSystem& files_;
  const StoreLayout layout_;
  const std::string machine_;
  const std::function<absl::Time()> now_;
  // By file name. Forgotten once the file is seen gone, taken or local: an empty note is like any other empty note.
  std::map<std::string, Sighting> sightings_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_LEASE_H_
