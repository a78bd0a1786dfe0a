// RestoreCatalog: the steps that a restore chooses from, and the changes that it may make to them. A checkpointer's
// catalog is the store that it holds. A StoreReader's catalog is the list that it has read, with leases.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_RESTORE_CATALOG_H_
#define TIDEMARK_SNAPSHOT_RESTORE_RESTORE_CATALOG_H_

#include <cstdint>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/bytes/ids.h"
#include "storage/records/manifest_records.h"
#include "storage/store/store.h"
#include "storage/store/store_layout.h"

namespace tidemark {

// Thread-compatible.
class RestoreCatalog {
 public:
  virtual ~RestoreCatalog() = default;

  virtual const storage::StoreLayout& layout() const = 0;
  virtual const storage::StoreId& id() const = 0;

  // As in StepCatalog.
  virtual absl::StatusOr<std::optional<storage::StepRecord>> Find(int64_t step) const = 0;
  virtual absl::StatusOr<std::optional<storage::StepRecord>> FindAtOrBelow(int64_t step) const = 0;

  // Keeps the files of the committed step from being deleted until the next call. False: the step is not committed any
  // more, or has other files now.
  virtual absl::StatusOr<bool> Hold(const storage::StepRecord& record) = 0;

  // Whether Mark records anything: only the holder of a store marks damage.
  virtual bool may_mark() const = 0;
  virtual absl::Status Mark(const storage::StepRecord& record, StepState state, std::string_view reason) = 0;
};

// The catalog of a store that is held open for writing, while nothing in it is deleted. Refers to the store.
class HeldStoreCatalog final : public RestoreCatalog {
 public:
  explicit HeldStoreCatalog(storage::Store& store) : store_(store) {}

  const storage::StoreLayout& layout() const override { return store_.layout(); }
  const storage::StoreId& id() const override { return store_.id(); }
  absl::StatusOr<std::optional<storage::StepRecord>> Find(int64_t step) const override {
    return store_.catalog().Find(step);
  }
  absl::StatusOr<std::optional<storage::StepRecord>> FindAtOrBelow(int64_t step) const override {
    return store_.catalog().FindAtOrBelow(step);
  }
  absl::StatusOr<bool> Hold(const storage::StepRecord&) override { return true; }
  bool may_mark() const override { return true; }
  absl::Status Mark(const storage::StepRecord& record, StepState state, std::string_view reason) override {
    return store_.MarkStep(record.info.step, record.info.attempt, state, reason);
  }

 private:
  storage::Store& store_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_RESTORE_CATALOG_H_
