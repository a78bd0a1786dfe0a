// Hash tables by the names of entries. They survive an allocation that fails, which Abseil's tables do not: their
// destructors then end the process. The hash has a seed, so that no file can choose names that collide.

#ifndef TIDEMARK_STORAGE_SHARD_NAME_TABLE_H_
#define TIDEMARK_STORAGE_SHARD_NAME_TABLE_H_

#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "absl/hash/hash.h"

namespace tidemark::storage {

// The names are not owned.
using NameSet = std::unordered_set<std::string_view, absl::Hash<std::string_view>>;
template <typename Value>
using NameMap = std::unordered_map<std::string_view, Value, absl::Hash<std::string_view>>;

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_NAME_TABLE_H_
