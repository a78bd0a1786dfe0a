#include "snapshot/ranks/part_of_state.h"

#include <utility>

#include "snapshot/ranks/replicated_entries.h"
#include "snapshot/staging/staging_plan.h"

namespace tidemark {
namespace {

std::vector<State::CopyRequest> OfWhole(std::span<const State::CopyRequest> requests,
                                        const std::vector<size_t>& in_whole) {
  std::vector<State::CopyRequest> out(requests.begin(), requests.end());
  for (State::CopyRequest& request : out) request.entry = in_whole[request.entry];
  return out;
}

class PartOfImage final : public State::DeviceImage {
 public:
  PartOfImage(std::unique_ptr<State::DeviceImage> whole, std::vector<size_t> in_whole)
      : whole_(std::move(whole)), in_whole_(std::move(in_whole)) {}

  uint64_t bytes() const override { return whole_->bytes(); }
  absl::Status CopyToHost(std::span<const State::CopyRequest> requests) override {
    return whole_->CopyToHost(OfWhole(requests, in_whole_));
  }

 private:
  const std::unique_ptr<State::DeviceImage> whole_;
  const std::vector<size_t> in_whole_;  // by entry of the part
};

}  // namespace

PartOfState::PartOfState(State& whole, const RankOptions& ranks)
    : whole_(whole), rank_(ranks.rank), world_size_(ranks.world_size), replicated_(ranks.replicated) {}

absl::Status PartOfState::Refresh() {
  whole_.AwaitStaging();
  if (absl::Status status = whole_.Refresh(); !status.ok()) return status;
  Look();
  return absl::OkStatus();
}

void PartOfState::Look() {
  const std::span<const Entry> entries = whole_.entries();
  if (known_version_ == whole_.structure_version()) {
    for (size_t i = 0; i < in_whole_.size(); ++i) {
      mutable_entries()[i].host = entries[in_whole_[i]].host;
      mutable_entries()[i].bytes = entries[in_whole_[i]].bytes;
    }
    return;
  }
  known_version_ = 0;
  ReplicatedEntries replicated = AssignWriters(entries, replicated_, world_size_);
  structure_ = replicated.structure;
  patterns_without_entry_ = std::move(replicated.without_entry);
  left_out_.assign(entries.size(), false);
  in_whole_.clear();
  std::vector<int64_t> in_part(entries.size(), -1);
  for (size_t i = 0; i < entries.size(); ++i) {
    const int32_t writer = replicated.writers[i];
    left_out_[i] = writer != ReplicatedEntries::kEveryRank && writer != rank_;
    if (left_out_[i]) continue;
    in_part[i] = static_cast<int64_t>(in_whole_.size());
    in_whole_.push_back(i);
  }
  auto left_out = std::make_shared<LeftOut>();
  std::vector<int64_t> before(entries.size());  // the last own tensor that is staged before it
  int64_t last = -1;
  for (const size_t i : StagingOrder(entries)) {
    before[i] = last;
    if (left_out_[i]) {
      left_out->emplace(entries[i].spec.name, last);
    } else if (entries[i].alias_of < 0 && entries[i].spec.kind == EntryKind::kTensor) {  // Save has read the values
      last = in_part[i];
    }
  }
  left_out_by_name_ = std::move(left_out);
  std::vector<Entry> own;
  own.reserve(in_whole_.size());
  for (const size_t i : in_whole_) {
    Entry& entry = own.emplace_back(entries[i]);
    // Tied entries have the same writer.
    if (entry.alias_of >= 0) entry.alias_of = in_part[static_cast<size_t>(entry.alias_of)];
    if (entry.staged_with < 0) continue;
    entry.staged_with = in_part[static_cast<size_t>(entry.staged_with)];
    // Another rank writes what it is staged with, so it keeps its place in the order.
    if (entry.staged_with < 0 && before[i] < in_part[i]) entry.staged_with = before[i];
  }
  SetDerivedEntries(std::move(own));
  known_version_ = whole_.structure_version();
}

absl::Status PartOfState::CopyToHost(std::span<const CopyRequest> requests) {
  return whole_.CopyToHost(OfWhole(requests, in_whole_));
}

absl::StatusOr<std::unique_ptr<State::DeviceImage>> PartOfState::CopyOnDevice(std::span<const size_t> entries,
                                                                              uint64_t bytes_max) {
  std::vector<size_t> of_whole;
  of_whole.reserve(entries.size());
  for (const size_t entry : entries) of_whole.push_back(in_whole_[entry]);
  absl::StatusOr<std::unique_ptr<DeviceImage>> image = whole_.CopyOnDevice(of_whole, bytes_max);
  if (!image.ok() || *image == nullptr) return image;
  return std::make_unique<PartOfImage>(*std::move(image), in_whole_);
}

}  // namespace tidemark
