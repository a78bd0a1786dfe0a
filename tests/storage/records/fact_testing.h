// Facts that tests draw and compare.

#ifndef TIDEMARK_TESTS_STORAGE_RECORDS_FACT_TESTING_H_
#define TIDEMARK_TESTS_STORAGE_RECORDS_FACT_TESTING_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "storage/bytes/ids.h"
#include "storage/records/fact.h"
#include "storage/records/manifest_records.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

inline AttemptId TestAttempt(uint8_t number) { return AttemptId{{number, 0xab}}; }
inline std::string TestAttemptName(uint8_t number) { return ToHex(TestAttempt(number).bytes); }

// A committed step with something in each field.
StepRecord FullStep(int64_t step = 1000, uint8_t attempt = 1);

// One fact of each kind, in the order of the kinds, with something in each field.
std::vector<Fact> FactsOfEachKind();

// Draws facts that EncodeFact accepts, of few steps and attempts, so that they often meet. Thread-compatible.
class FactDrawer {
 public:
  explicit FactDrawer(uint64_t seed) : random_(seed) {}

  Fact Draw();
  Fact DrawOfKind(size_t kind);  // the fact's index in the variant
  uint64_t Below(uint64_t bound) { return random_() % bound; }

 private:
  std::string Text();
  double Number();
  int64_t Step() { return static_cast<int64_t>(Below(8)) * 10; }
  std::string Attempt(StepState state);
  Metrics DrawMetrics();
  Evaluation DrawEvaluation(uint64_t evaluator);
  std::vector<std::string> Tags();
  StepRecord Record();
  PhasesRecord Phases();

  std::mt19937_64 random_;
};

// The same bytes are the same fact, NaN included.
std::string Bytes(const Fact& fact);
std::string Bytes(const StepRecord& record);

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_RECORDS_FACT_TESTING_H_
