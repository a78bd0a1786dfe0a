// SnapshotShelf: where snapshots are to be had when they are in memory no more. What WhenLagging::kQueue needs of a
// store.

#ifndef TIDEMARK_SNAPSHOT_STAGING_SNAPSHOT_SHELF_H_
#define TIDEMARK_SNAPSHOT_STAGING_SNAPSHOT_SHELF_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tidemark/evaluator.h"
#include "tidemark/snapshot.h"

namespace tidemark {

// Thread-safe.
class SnapshotShelf {
 public:
  virtual ~SnapshotShelf() = default;

  // Keeps the step's files from being deleted until Release has been called as often with the same arguments. The step
  // is in flight, or committed. `who` is for people: "evaluator 'validation'". Quick, both.
  virtual void Claim(int64_t step, std::string_view who) = 0;
  virtual void Release(int64_t step, std::string_view who) = 0;

  struct Reading {
    std::string attempt;  // StepInfo::attempt of what is read
    // Reads a snapshot, whole or not at all. Owns all that it touches, for it may be called when shelf and store are
    // gone. Errors: those of OpenStoredSnapshot.
    std::function<absl::StatusOr<std::shared_ptr<const Snapshot>>()> read;
  };

  // How to read the entries of the committed step that match a pattern; empty: all. Waits for nothing and reads no
  // tensor. kNotFound: the step is not committed. Else the catalog's own errors.
  virtual absl::StatusOr<Reading> Find(int64_t step, std::vector<std::string> patterns, HalfPrecision half) = 0;

  // A Reading has found files of this attempt missing or damaged. Unless another attempt has replaced it, whose save
  // may have removed them, nothing more is to be built upon what is there. Quick.
  virtual void NoteDamage(int64_t step, const std::string& attempt) = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STAGING_SNAPSHOT_SHELF_H_
