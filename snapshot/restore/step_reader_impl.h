// What a StepReader is made of; StoreReader makes it.

#ifndef TIDEMARK_SNAPSHOT_RESTORE_STEP_READER_IMPL_H_
#define TIDEMARK_SNAPSHOT_RESTORE_STEP_READER_IMPL_H_

#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "snapshot/restore/box_read.h"
#include "snapshot/restore/stored_step.h"
#include "storage/shard/format/name_table.h"
#include "tidemark/step_reader.h"

namespace tidemark {

struct StepReader::Impl {
  explicit Impl(std::unique_ptr<StoredStep> stored) : step(std::move(stored)) {}

  // Makes the entries wholes. Call it before anything else.
  void Join();

  const StepContents& contents() const { return joined_ ? *joined_ : step->contents; }
  absl::Status Read(std::span<const Window> windows) const;
  // Where the parts of the entry are; null: there is none of that name. Thread-safe.
  const EntryParts* Find(std::string_view name) const;

  const std::unique_ptr<StoredStep> step;

 private:
  std::optional<StepContents> joined_;     // if the entries are wholes
  mutable std::vector<EntryParts> parts_;  // of joined_->entries; else made by Find
  mutable std::once_flag found_;
  mutable storage::NameMap<size_t> by_name_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RESTORE_STEP_READER_IMPL_H_
