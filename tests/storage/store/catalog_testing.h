// Records for tests of catalogs, and what a catalog has.

#ifndef TIDEMARK_TESTS_STORAGE_STORE_CATALOG_TESTING_H_
#define TIDEMARK_TESTS_STORAGE_STORE_CATALOG_TESTING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "storage/bytes/ids.h"
#include "storage/records/step_catalog.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {

inline std::string AttemptOf(int64_t step) { return ToHex(AttemptId{{static_cast<uint8_t>(step)}}.bytes); }

// Of a committed step. Its metric "loss" is 1 / step.
inline StepRecord CommittedRecord(int64_t step) {
  StepRecord record;
  record.info.step = step;
  record.info.attempt = AttemptOf(step);
  record.info.sequence = static_cast<uint64_t>(step);
  record.info.metrics = {{"loss", 1.0 / static_cast<double>(step)}};
  return record;
}

// All that have a record, ascending.
inline std::vector<int64_t> StepsOf(const StepCatalog& catalog) {
  std::vector<int64_t> steps;
  EXPECT_THAT(catalog.ForEach([&](const StepRecord& record) {
    steps.push_back(record.info.step);
    return true;
  }),
              IsOk());
  return steps;
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_STORE_CATALOG_TESTING_H_
