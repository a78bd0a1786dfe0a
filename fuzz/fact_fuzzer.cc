// Facts, one after the other: for each its length and its bytes. What can be read is written with the same bytes,
// unless it is of an older version; all of them are what a store's journal says, which changes a record just as the
// fact says on its own.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "storage/records/fact.h"
#include "storage/records/manifest_records.h"
#include "storage/store/memory_catalog.h"

namespace tidemark::fuzz {
namespace {

constexpr size_t kVersionAt = 1;

std::string BytesOf(const std::optional<storage::StepRecord>& record) {
  if (!record) return "";
  const absl::StatusOr<std::string> bytes = storage::EncodeFact(storage::StepFact{*record});
  Require(bytes.ok(), "what facts make of a record cannot be written");
  return *bytes;
}

void TryFact(std::string_view bytes, storage::MemoryCatalog& catalog) {
  const absl::StatusOr<storage::Fact> fact = storage::DecodeFact(bytes);
  if (!fact.ok()) {
    return Require(
        (absl::IsDataLoss(fact.status()) || absl::IsUnimplemented(fact.status())) && !fact.status().message().empty(),
        "a fact is refused for another reason than damage or a newer version");
  }
  const absl::StatusOr<std::string> written = storage::EncodeFact(*fact);
  Require(written.ok(), "a fact that was read cannot be written");
  if (bytes[kVersionAt] == (*written)[kVersionAt]) {
    Require(*written == bytes, "a fact is not what it was once it is written");
  } else {
    const absl::StatusOr<storage::Fact> again = storage::DecodeFact(*written);
    Require(again.ok() && storage::EncodeFact(*again) == written, "a fact of an older version changes twice");
  }
  const std::optional<int64_t> step = storage::StepOfFact(*fact);
  std::optional<storage::StepRecord> record = step ? *catalog.Find(*step) : std::nullopt;
  if (step) storage::ApplyToStep(*fact, record);
  catalog.Apply({&*fact, 1});
  if (!step) return;
  Require(BytesOf(*catalog.Find(*step)) == BytesOf(record), "a step's record is not what its facts make of it");
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark;
  fuzz::FuzzInput in(data, size);
  std::vector<std::string_view> facts;
  while (!in.empty()) {
    const size_t length = in.Take<uint16_t>();
    facts.push_back(in.TakeText(length));
  }
  {
    const fuzz::AllocationBudget budget(size);
    for (const std::string_view fact : facts) storage::DecodeFact(fact).status().IgnoreError();
  }
  storage::MemoryCatalog catalog(/*unpacked_max=*/2);
  for (const std::string_view fact : facts) fuzz::TryFact(fact, catalog);
  std::vector<int64_t> committed;
  catalog
      .ForEach([&](const storage::StepRecord& record) {
        if (record.info.state == StepState::kCommitted) committed.push_back(record.info.step);
        return true;
      })
      .IgnoreError();
  const storage::CommittedSteps steps = *catalog.Committed();
  fuzz::Require(std::equal(steps.begin(), steps.end(), committed.begin(), committed.end(),
                           [](const auto& info, int64_t step) { return info->step == step; }),
                "the committed steps are others");
  return 0;
}
