// IndexCatalog: the index as a StepCatalog whose failures its users do not see. The journal has all that the index has.
// So where the index fails at a question, a catalog that is read from the journal answers it.

#ifndef TIDEMARK_STORAGE_STORE_INDEX_CATALOG_H_
#define TIDEMARK_STORAGE_STORE_INDEX_CATALOG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/index/manifest.h"
#include "storage/records/step_catalog.h"

namespace tidemark::storage {

// Thread-safe. A question gives the index's error only where the journal cannot be read either.
class IndexCatalog : public StepCatalog {
 public:
  // `replace`: called after a question has failed, with its error. Returns what is to be asked instead, which outlives
  // this catalog's users; null: nothing can be.
  using Replace = std::function<const StepCatalog*(const absl::Status& why)>;
  IndexCatalog(std::unique_ptr<Manifest> index, Replace replace)
      : index_(std::move(index)), replace_(std::move(replace)) {}

  uint64_t last_sequence() const override { return index_->last_sequence(); }
  absl::StatusOr<std::optional<StepRecord>> Find(int64_t step) const override;
  absl::StatusOr<std::optional<StepRecord>> FindAtOrBelow(int64_t step) const override;
  absl::StatusOr<std::optional<StepRecord>> FindCommittedAtOrBelow(int64_t step) const override;
  absl::Status ForEach(const std::function<bool(StepRecord)>& visit, int64_t first_step = 0) const override;
  absl::StatusOr<CommittedSteps> Committed() const override;
  absl::StatusOr<std::optional<int64_t>> LatestCommitted() const override;
  absl::StatusOr<std::optional<StepRecord>> FindBest(std::string_view metric, BestMode mode) const override;
  absl::StatusOr<BestModes> RecordedBestModes() const override;
  absl::StatusOr<std::vector<SavePhase>> Phases(int64_t step, std::string_view attempt) const override;
  absl::StatusOr<bool> IsReferenced(const AttemptId& attempt) const override;
  absl::StatusOr<std::vector<DeletionRecord>> Deletions() const override;
  absl::StatusOr<std::vector<DeletionRequestFact>> Requests() const override;

 private:
  template <typename Ask>
  auto Answer(const Ask& ask) const -> decltype(ask(std::declval<const StepCatalog&>())) {
    auto answer = ask(*index_);
    if (answer.ok()) return answer;
    const StepCatalog* instead = replace_(answer.status());
    return instead == nullptr ? std::move(answer) : ask(*instead);
  }

  const std::unique_ptr<Manifest> index_;
  const Replace replace_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_INDEX_CATALOG_H_
