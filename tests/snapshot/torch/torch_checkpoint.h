// A checkpoint in memory: the protocol of tidemark/state.h as AsyncCheckpointer follows it, without files.

#ifndef TIDEMARK_TESTS_SNAPSHOT_TORCH_TORCH_CHECKPOINT_H_
#define TIDEMARK_TESTS_SNAPSHOT_TORCH_TORCH_CHECKPOINT_H_

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tidemark/entry.h"
#include "tidemark/state.h"

namespace tidemark {

struct MemoryCheckpoint {
  struct Item {
    EntrySpec spec;
    std::vector<std::byte> bytes;
    std::string alias_of;  // the entry it was stored as, or empty
  };
  std::map<std::string, Item> items;

  std::vector<std::string> Names() const;
  std::string Text(const std::string& name) const;
  template <typename T>
  T Value(const std::string& name) const {
    return *reinterpret_cast<const T*>(items.at(name).bytes.data());
  }
};

absl::StatusOr<MemoryCheckpoint> SaveToMemory(State& state);

// Strict: kInvalidArgument lists every entry that is missing, unexpected or of another dtype or shape.
absl::Status RestoreFromMemory(State& state, const MemoryCheckpoint& checkpoint);

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_TORCH_TORCH_CHECKPOINT_H_
