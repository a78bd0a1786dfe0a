// What a worker or checkpoint-inspect does to a store, beside the trainer that holds it or without one.

#ifndef TIDEMARK_TESTS_SNAPSHOT_OTHER_PROCESS_H_
#define TIDEMARK_TESTS_SNAPSHOT_OTHER_PROCESS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "storage/bytes/ids.h"
#include "storage/io/file_system.h"
#include "storage/records/fact.h"
#include "storage/store/step_changes.h"
#include "storage/store/store_identity.h"
#include "storage/store/store_journal.h"
#include "storage/store/store_layout.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {

// Each call is a process of its own: it opens the journal and appends one entry, or none.
class OtherProcess {
 public:
  explicit OtherProcess(std::string directory, storage::FileSystem& files = storage::PosixFileSystem())
      : files_(files), layout_(std::move(directory)) {}

  absl::StatusOr<std::unique_ptr<storage::StoreJournal>> Open() const {
    const absl::StatusOr<storage::StoreId> store = storage::ReadStoreIdentity(files_, layout_);
    if (!store.ok()) return store.status();
    return storage::StoreJournal::Open(files_, layout_, *store,
                                       {.warn = [](std::string_view line) { ADD_FAILURE() << line; }});
  }

  // On the attempt that the step has, or on that one.
  absl::Status Report(int64_t step, Evaluation evaluation, std::optional<std::string> attempt = std::nullopt) const {
    std::vector<storage::ReportOutcome> outcomes;
    const absl::Status status = Append(step, [&](const storage::StepCatalog& catalog, const StepInfo& info) {
      const storage::EvaluationFact fact{
          .step = step, .attempt = attempt.value_or(info.attempt), .evaluation = evaluation};
      return storage::ReportFacts(catalog, {&fact, 1}, outcomes);
    });
    return status.ok() ? outcomes.at(0).status : status;
  }

  absl::Status Pin(int64_t step, std::string_view note) const {
    return Append(step, [&](const storage::StepCatalog& catalog, const StepInfo&) {
      return storage::PinFacts(catalog, step, note, std::nullopt);
    });
  }
  absl::Status Unpin(int64_t step) const {
    return Append(step, [&](const storage::StepCatalog& catalog, const StepInfo&) {
      return storage::UnpinFacts(catalog, step, std::nullopt);
    });
  }

  absl::Status Tag(int64_t step, std::string_view name, storage::TakenTag taken = storage::TakenTag::kRefuse) const {
    return Append(step, [&](const storage::StepCatalog& catalog, const StepInfo&) {
      return storage::TagFacts(catalog, step, name, std::nullopt, taken);
    });
  }

  // Asks the process that holds the store to delete the step.
  absl::Status AskToDelete(int64_t step, std::string_view reason) const {
    return Append(step, [&](const storage::StepCatalog& catalog, const StepInfo& info) {
      return storage::DeletionRequestFacts(catalog, {.id = storage::ToHex(storage::RandomBytes16()),
                                                     .step = step,
                                                     .attempt = info.attempt,
                                                     .reason = std::string(reason),
                                                     .asker = "pid 7 on node-3",
                                                     .asked = absl::Now()});
    });
  }

  // Requests without an answer.
  size_t OpenRequests() const {
    const auto journal = Open();
    EXPECT_THAT(journal, storage::IsOk());
    const auto requests = (*journal)->catalog().Requests();
    EXPECT_THAT(requests, storage::IsOk());
    return requests->size();
  }

  // The step's record as it is read without an index; kNotFound: it has none.
  absl::StatusOr<StepInfo> Find(int64_t step) const {
    const auto journal = Open();
    if (!journal.ok()) return journal.status();
    return Find((*journal)->catalog(), step);
  }

 private:
  static absl::StatusOr<StepInfo> Find(const storage::StepCatalog& catalog, int64_t step) {
    absl::StatusOr<std::optional<storage::StepRecord>> record = catalog.Find(step);
    if (!record.ok()) return record.status();
    if (!record->has_value()) return absl::NotFoundError("no record of step " + std::to_string(step));
    return std::move((*record)->info);
  }

  template <typename Compose>
  absl::Status Append(int64_t step, Compose compose) const {
    const auto journal = Open();
    if (!journal.ok()) return journal.status();
    return (*journal)->Change([&](const storage::StepCatalog& catalog) -> absl::StatusOr<storage::Facts> {
      const absl::StatusOr<StepInfo> info = Find(catalog, step);
      return info.ok() ? compose(catalog, *info) : info.status();
    });
  }

  storage::FileSystem& files_;
  const storage::StoreLayout layout_;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_OTHER_PROCESS_H_
