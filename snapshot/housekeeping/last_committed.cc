#include "snapshot/housekeeping/last_committed.h"

#include <limits>
#include <optional>
#include <string>

#include "fmt/format.h"
#include "storage/shard/format/shard_files.h"
#include "storage/store/attempt_reader.h"

namespace tidemark {

namespace {

// A file that cannot be read is not known, and new shards do not refer to it. CheckFiles finds and reports files that
// are gone.
storage::ReusableFile Look(const absl::StatusOr<storage::File*>& file) {
  if (!file.ok()) return {};
  const absl::StatusOr<uint64_t> bytes = (*file)->Size();
  const absl::StatusOr<storage::ShardHeader> header = storage::ReadShardHeader(**file);
  if (!bytes.ok() || !header.ok()) return {};
  return {.bytes = *bytes, .sequence = header->identity.sequence};
}

}  // namespace

std::shared_ptr<const storage::ReusableShard> LastCommitted::Get() {
  uint64_t times_set = 0;
  bool known = false;
  std::shared_ptr<const storage::ReusableShard> shard;
  const uint64_t times_damaged = store_.times_damaged();
  {
    absl::MutexLock lock(&mutex_);
    times_set = times_set_;
    known = known_;
    if (!of_rank_ || times_damaged_ == times_damaged) shard = shard_;
  }
  if (!known && !of_rank_) shard = Read();
  // Somebody may have made room by hand, or found damage, since the last save.
  if (absl::Status sound = shard == nullptr ? absl::OkStatus() : CheckFiles(*shard); !sound.ok()) {
    warn_(fmt::format("the next step is written in full, because the step that it would refer to is damaged: {}",
                      std::string(sound.message())));
    shard = nullptr;
  }
  absl::MutexLock lock(&mutex_);
  if (times_set_ == times_set) {
    shard_ = std::move(shard);
    known_ = true;
  }
  return shard_;
}

std::shared_ptr<const storage::ReusableShard> LastCommitted::Known() const {
  absl::MutexLock lock(&mutex_);
  return shard_;
}

absl::Status LastCommitted::CheckFiles(const storage::ReusableShard& shard) const {
  const storage::ShardIdentity& own = shard.identity;
  absl::Status status = CheckFile(own.step, own.attempt, own.rank, own.world_size);
  for (size_t i = 0; status.ok() && i < shard.index.files.size(); ++i) {
    const storage::FileReference& file = shard.index.files[i];
    status = CheckFile(file.step, file.attempt, file.rank, file.world_size);
  }
  return status;
}

absl::Status LastCommitted::CheckFile(int64_t step, const storage::AttemptId& attempt, uint32_t rank,
                                      uint32_t world_size) const {
  const absl::StatusOr<storage::FileType> type = files_.TypeOf(store_.layout().shard(step, attempt, rank, world_size));
  if (!type.ok()) return type.status();
  const absl::StatusOr<std::optional<storage::StepRecord>> record = store_.catalog().Find(step);
  if (!record.ok()) return record.status();
  // An attempt that was replaced has no record, and is as sound as it was. So is one whose step was deleted: its files
  // stay as long as a step refers to them, and only committed steps are deleted.
  if (!record->has_value() || (*record)->info.attempt != storage::ToHex(attempt.bytes)) return absl::OkStatus();
  const StepInfo& info = (*record)->info;
  if (info.state == StepState::kCommitted || info.state == StepState::kDeleted) return absl::OkStatus();
  return absl::DataLossError(fmt::format("step {} is {}: {}", step, StepStateName(info.state), info.reason));
}

std::shared_ptr<const storage::ReusableShard> LastCommitted::Set(std::shared_ptr<const storage::ReusableShard> shard,
                                                                 uint64_t times_forgotten) {
  absl::MutexLock lock(&mutex_);
  if (times_forgotten_ != times_forgotten) return shard;
  if (of_rank_ && !shard->index.files.empty()) return shard;
  times_damaged_ = store_.times_damaged();
  shard_.swap(shard);
  known_ = true;
  ++times_set_;
  return shard;
}

uint64_t LastCommitted::times_forgotten() const {
  absl::MutexLock lock(&mutex_);
  return times_forgotten_;
}

void LastCommitted::Forget() {
  absl::MutexLock lock(&mutex_);
  shard_ = nullptr;
  known_ = true;
  ++times_set_;
  ++times_forgotten_;
}

// Any trouble on the way means that everything is written anew, which is always right; who restores the step hears of
// it.
std::shared_ptr<const storage::ReusableShard> LastCommitted::Read() const {
  absl::StatusOr<std::optional<storage::StepRecord>> record =
      store_.catalog().FindCommittedAtOrBelow(std::numeric_limits<int64_t>::max());
  if (!record.ok() || !record->has_value()) return nullptr;
  const auto id = storage::FromHex((*record)->info.attempt);
  if (!id) return nullptr;
  const absl::StatusOr<storage::Attempt> attempt =
      storage::ReadAttempt(files_, store_.layout(), store_.id(), {(*record)->info.step, storage::AttemptId{*id}});
  if (!attempt.ok() || attempt->record.shards != (*record)->shards || attempt->shards.size() != 1) return nullptr;
  const storage::ShardReader& shard = *attempt->shards.front();
  storage::ReusableShard reusable{.identity = shard.header().identity,
                                  .chunk_bytes = shard.header().chunk_bytes,
                                  .repeats_names = shard.header().repeats_names,
                                  .index = shard.index(),
                                  .index_base = shard.index_base()};
  reusable.files.push_back({.bytes = shard.footer().file_bytes, .sequence = reusable.identity.sequence});
  storage::ReferencedShards referenced(files_, store_.layout().steps(), store_.id(), shard.index().files);
  for (size_t i = 0; i < shard.index().files.size(); ++i) {
    reusable.files.push_back(Look(referenced.Get(i)));
  }
  return std::make_shared<const storage::ReusableShard>(std::move(reusable));
}

}  // namespace tidemark
