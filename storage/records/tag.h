// Tags: names that a person gives to a step. A step that has one is pinned, and its tags are part of the pin.
//
// Pure functions; no I/O.

#ifndef TIDEMARK_STORAGE_RECORDS_TAG_H_
#define TIDEMARK_STORAGE_RECORDS_TAG_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace tidemark::storage {

inline constexpr size_t kTagBytesMax = 128;
inline constexpr size_t kTagsPerStepMax = 64;

// kInvalidArgument, saying what is wrong: it is not of 1 to kTagBytesMax letters, digits, '.', '_', '/' and '-' (all
// ASCII), or begins with '-'.
absl::Status CheckTag(std::string_view name);

// What a step's tags are always: at most kTagsPerStepMax valid names, sorted, each there once. kInvalidArgument else.
absl::Status CheckTags(const std::vector<std::string>& tags);

// `tags` are as CheckTags wants them, before and after. Whether anything changed: AddTag adds nothing that CheckTag
// refuses, and nothing to as many as there may be.
bool AddTag(std::vector<std::string>& tags, std::string_view name);
bool RemoveTag(std::vector<std::string>& tags, std::string_view name);
bool HasTag(const std::vector<std::string>& tags, std::string_view name);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RECORDS_TAG_H_
