// Where things are in a store. Every path is made here, from numbers and ids; none is ever read from a file.

#ifndef TIDEMARK_STORAGE_STORE_STORE_LAYOUT_H_
#define TIDEMARK_STORAGE_STORE_STORE_LAYOUT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "storage/bytes/ids.h"

namespace tidemark::storage {

// Immutable.
class StoreLayout {
 public:
  // Slashes at the end of `directory` do not count.
  explicit StoreLayout(std::string directory) : directory_(std::move(directory)) {
    while (directory_.size() > 1 && directory_.back() == '/') directory_.pop_back();
  }

  const std::string& directory() const { return directory_; }
  std::string lock() const { return directory_ + "/LOCK"; }
  std::string identity() const { return directory_ + "/store.json"; }
  // Of the first format: the record of its steps.
  std::string manifest() const { return directory_ + "/manifest"; }
  std::string journal() const { return directory_ + "/journal"; }
  std::string index() const { return directory_ + "/index"; }  // of the journal
  std::string steps() const { return directory_ + "/steps"; }
  // Of the first format: reports and requests that were not recorded yet.
  std::string inbox() const { return directory_ + "/inbox"; }
  // Live readers' claims.
  std::string leases() const { return directory_ + "/leases"; }
  // What the ranks of a job tell each other: a folder for each session.
  std::string ranks() const { return directory_ + "/ranks"; }
  std::string ranks(const SessionId& session) const { return ranks() + "/" + ToHex(session.bytes); }
  // The file of an attempt that was removed: its blocks are written over by the next one.
  std::string retired() const { return directory_ + "/retired.tmk"; }
  // Of the first format: room that was given up when the disk was full.
  std::string reserve() const { return directory_ + "/disk-reserve"; }
  // Attempts that were found damaged, see docs/format.md: kept for a person to look at, never read again.
  std::string quarantine() const { return directory_ + "/quarantine"; }
  std::string attempt(int64_t step, const AttemptId& attempt) const {
    return steps() + "/" + StepFolderName(step, attempt);
  }
  std::string shard(int64_t step, const AttemptId& id, uint32_t rank, uint32_t world_size) const {
    return attempt(step, id) + "/" + ShardFileName(rank, world_size);
  }

  // Whether what has this name in the store's directory is the store's own.
  bool IsOwnName(std::string_view name) const;

  // Whether a directory may have this name and yet no store, nor what is left of one: the file system's and hidden
  // ones, and own ones that hold nothing.
  bool MeansNothing(std::string_view name) const;

 private:
  std::string directory_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_STORE_LAYOUT_H_
