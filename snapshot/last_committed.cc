#include "snapshot/last_committed.h"

#include <limits>
#include <optional>
#include <utility>

#include "storage/manifest/attempt_reader.h"

namespace tidemark {

std::shared_ptr<const storage::ReusableShard> LastCommitted::Get() {
  absl::MutexLock lock(&mutex_);
  if (!known_) shard_ = Read();
  known_ = true;
  return shard_;
}

void LastCommitted::Set(std::shared_ptr<const storage::ReusableShard> shard) {
  absl::MutexLock lock(&mutex_);
  shard_ = std::move(shard);
  known_ = true;
}

// Any trouble on the way means that everything is written anew, which is always right; who restores the step hears of
// it.
std::shared_ptr<const storage::ReusableShard> LastCommitted::Read() const {
  absl::StatusOr<std::optional<storage::StepRecord>> record =
      store_.manifest().FindAtOrBelow(std::numeric_limits<int64_t>::max());
  while (record.ok() && record->has_value() && (*record)->info.state != StepState::kCommitted) {
    record = (*record)->info.step == 0 ? std::nullopt : store_.manifest().FindAtOrBelow((*record)->info.step - 1);
  }
  if (!record.ok() || !record->has_value()) return nullptr;
  const auto id = storage::FromHex((*record)->info.attempt);
  if (!id) return nullptr;
  const absl::StatusOr<storage::Attempt> attempt =
      storage::ReadAttempt(files_, store_.layout(), store_.id(), {(*record)->info.step, storage::AttemptId{*id}});
  if (!attempt.ok() || attempt->record.shards != (*record)->shards || attempt->shards.size() != 1) return nullptr;
  const storage::ShardReader& shard = *attempt->shards.front();
  return std::make_shared<const storage::ReusableShard>(storage::ReusableShard{
      .identity = shard.header().identity, .chunk_bytes = shard.header().chunk_bytes, .index = shard.index()});
}

}  // namespace tidemark
