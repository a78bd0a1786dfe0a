// StoreReader::Catalog: the steps that a restore chooses from, in a store that another process may be writing.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_STORE_READER_CATALOG_H_
#define TIDEMARK_SNAPSHOT_RESTORE_STORE_READER_CATALOG_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "snapshot/housekeeping/lease_renewal.h"
#include "snapshot/restore/restore.h"
#include "snapshot/restore/restore_catalog.h"
#include "storage/io/file_system.h"
#include "storage/store/lease.h"
#include "tidemark/store_reader.h"

namespace tidemark {

// Lives for one call of its reader. Thread-compatible.
class StoreReader::Catalog final : public RestoreCatalog {
 public:
  // The reader's lists and rights. Not owned.
  struct Host {
    storage::FileSystem& files;
    const storage::StoreLayout& layout;
    const storage::StoreId& store;
    const storage::ShardReadOptions& read;
    bool may_lease;  // false: nothing may be written to this store
    std::function<std::optional<storage::StepRecord>(int64_t step)> find;
    std::function<std::optional<storage::StepRecord>(int64_t step)> find_at_or_below;
    std::function<absl::Status()> refresh;
  };
  explicit Catalog(Host host);

  storage::FileSystem& files() const { return host_.files; }
  const storage::ShardReadOptions& read() const { return host_.read; }
  RestoreSource source() const { return {host_.files, host_.layout, host_.store, host_.read, {}}; }

  const storage::StoreLayout& layout() const override { return host_.layout; }
  const storage::StoreId& id() const override { return host_.store; }
  absl::StatusOr<std::optional<storage::StepRecord>> Find(int64_t step) const override { return host_.find(step); }
  absl::StatusOr<std::optional<storage::StepRecord>> FindAtOrBelow(int64_t step) const override {
    return host_.find_at_or_below(step);
  }
  // Takes a lease, if one can be written. Only then it checks that the step is still there: a trainer that deletes
  // looks for leases after it has marked the step.
  absl::StatusOr<bool> Hold(const storage::StepRecord& record) override;
  bool may_mark() const override { return false; }
  absl::Status Mark(const storage::StepRecord&, StepState, std::string_view) override { return absl::OkStatus(); }

 private:
  void Lease(const storage::StepRecord& record);

  const Host host_;
  storage::LeaseObserver leases_;
  std::unique_ptr<storage::Lease> lease_;
  std::unique_ptr<LeaseRenewal> renewal_;  // of lease_, and so destroyed before it
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_STORE_READER_CATALOG_H_
