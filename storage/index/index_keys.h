// The keys by which the index finds steps other than by their number, and its other keys. Pure functions. The values of
// the first three are empty, because everything is in the step's record.
//
//   "metric/" be32(bytes of the name) name be64(value) be64(step)   a metric of a committed, healthy step; finite
//   "reference/" attempt in hexadecimal "/" be64(step)              the step's chunks lie in a file of that attempt
//   "committed/" be64(step)                                         a committed step, of which there may be few among
//                                                                   many deleted ones
//   "journal"                                                       the place of the last journal entry applied
//   "request/" id                                                   a request to delete a step that was not answered
//
// A name's length stands before it, so that no name is the beginning of another one's keys, whatever bytes it has.

#ifndef TIDEMARK_STORAGE_INDEX_INDEX_KEYS_H_
#define TIDEMARK_STORAGE_INDEX_INDEX_KEYS_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "storage/records/manifest_records.h"

namespace tidemark::storage {

// All index keys that go with the record. A step that is not committed, or that an evaluation calls unhealthy, is no
// candidate for the best, but its references count: it may be taken back. Those of a deleted step do not.
std::set<std::string> IndexKeys(const StepRecord& record);

// What the keys of all steps with this metric begin with. They sort by value, then by step.
std::string MetricPrefix(std::string_view name);

// 0.0 and -0.0 give the same key. Preconditions: `value` is finite, step >= 0.
std::string MetricKey(std::string_view name, double value, int64_t step);

// The last key that a step with the metric's value in `key`, a MetricKey, can have.
std::string LastKeyOfValue(std::string_view key);

// The last key that a step with this metric can have.
std::string LastKeyOfMetric(std::string_view name);

// Of a MetricKey.
int64_t StepOfMetricKey(std::string_view key);

// What the keys of all committed steps begin with. They sort by step.
inline constexpr std::string_view kCommittedKeyPrefix = "committed/";

std::string CommittedKey(int64_t step);

// Of a CommittedKey.
int64_t StepOfCommittedKey(std::string_view key);

// The value is an encoded JournalPlace.
inline constexpr std::string_view kJournalKey = "journal";

// The values are encoded DeletionRequestFacts.
inline constexpr std::string_view kRequestKeyPrefix = "request/";

// What the keys of all steps that refer to the attempt begin with.
std::string ReferencePrefix(const AttemptId& attempt);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_INDEX_INDEX_KEYS_H_
