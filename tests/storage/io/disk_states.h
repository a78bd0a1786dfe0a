// The states of a logged disk, made quickly.

#ifndef TIDEMARK_TESTS_STORAGE_IO_DISK_STATES_H_
#define TIDEMARK_TESTS_STORAGE_IO_DISK_STATES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tests/storage/io/disk_log.h"

namespace tidemark::storage {

// What a file holds depends on what was done to that file alone, and is made once; of names, only what came since the
// first operation that may be lost is done anew. Fast where it is asked for one prefix after another, in order.
// Thread-compatible.
class DiskStates {
 public:
  // `log` is not owned, and does not change.
  explicit DiskStates(const DiskLog& log);

  // As DiskLog::StateAfter.
  DiskImage After(size_t prefix, const std::vector<LostOperation>& lost = {});

 private:
  using Contents = std::shared_ptr<const FileContents>;
  struct History {
    std::vector<size_t> operations;  // on the contents of a file, in order
    size_t done = 0;                 // how many of them `contents` has, none lost
    Contents contents;               // null: empty
  };

  void GoTo(size_t prefix);
  Contents ContentsOf(uint64_t node, History& history, const std::vector<LostOperation>& lost);
  Contents Without(History& history, size_t count, const std::vector<LostOperation>& lost);

  const DiskLog& log_;
  size_t prefix_ = 0;
  std::map<uint64_t, History> files_;  // those to which anything was done, by node

  // Names as they are after the operations before `settled_`, none of which can be lost at prefix_; contents of the
  // boot.
  ImageEditor names_;
  size_t settled_ = 0;

  // Contents without some operations, by the hash of what is lost, of which file and how far.
  absl::flat_hash_map<uint64_t, Contents> torn_;
  uint64_t torn_bytes_ = 0;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_DISK_STATES_H_
