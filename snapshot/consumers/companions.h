// Companions: what is computed from the snapshots and saved with them. See tidemark/companion.h.

#ifndef TIDEMARK_SNAPSHOT_CONSUMERS_COMPANIONS_H_
#define TIDEMARK_SNAPSHOT_CONSUMERS_COMPANIONS_H_

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "snapshot/staging/staged_snapshot.h"
#include "storage/shard/write/shard_writer.h"
#include "tidemark/companion.h"

namespace tidemark {

// Whether an entry of this name is one of the companion with this prefix.
bool IsUnderPrefix(std::string_view name, std::string_view prefix);

// The prefixes of the companions that a shard was written with.
std::vector<std::string> CompanionPrefixes(const std::map<std::string, std::string>& shard_properties);

// The error with the companion's prefix before its message.
absl::Status OfCompanion(const absl::Status& status, const Companion& companion);

// Owned by the trainer's thread while no save is in flight, by the persister's while one is.
class Companions {
 public:
  // See AsyncCheckpointer::AddCompanion. kInvalidArgument: null, no prefix, or too many bytes of all prefixes.
  absl::Status Add(std::shared_ptr<Companion> companion);

  bool empty() const { return companions_.empty(); }
  std::span<const std::shared_ptr<Companion>> all() const { return companions_; }

  // Blocks until the whole snapshot is staged, and then calls Companion::Update of each companion. Afterwards AppendTo
  // may be called. Returns the error of staging, and calls no companion then; or the first error of a companion, with
  // the companion's prefix.
  absl::Status Update(const StagedSnapshot& snapshot);

  // Adds their entries, and the property "companions", in which restores find the prefixes. What lies in `contents`
  // comes first and is waited for as before; the bytes added are there, and stay as they are until the next Update.
  // kInternal: a companion threw.
  absl::Status AppendTo(storage::ShardContents& contents) const;

 private:
  std::vector<std::shared_ptr<Companion>> companions_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_CONSUMERS_COMPANIONS_H_
