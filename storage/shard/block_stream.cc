#include "storage/shard/block_stream.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace tidemark::storage {
namespace {

std::vector<AlignedBuffer> NewBlocks(size_t count) {
  std::vector<AlignedBuffer> blocks;
  for (size_t i = 0; i < count; ++i) blocks.emplace_back(BlockStream::kBlockBytes);
  return blocks;
}

bool IsAligned(const std::byte* data) { return reinterpret_cast<uintptr_t>(data) % kDirectAlignment == 0; }

}  // namespace

BlockStream::BlockStream(size_t blocks) : blocks_(NewBlocks(blocks)) {
  for (size_t i = 0; i < blocks; ++i) free_.push_back(i);
}

void BlockStream::Begin(File* file, IoQueue* queue, uint64_t offset) {
  if (free_.size() != blocks_.size() || offset % kDirectAlignment != 0) std::abort();
  file_ = file;
  queue_ = queue;
  offset_ = offset;
  status_ = absl::OkStatus();
}

absl::Status BlockStream::Append(std::span<const std::byte> data) {
  while (!data.empty()) {
    if (auto status = NeedBlock(); !status.ok()) return status;
    const size_t size = std::min(data.size(), kBlockBytes - used_);
    std::memcpy(blocks_[current_].data() + used_, data.data(), size);
    used_ += size;
    offset_ += size;
    data = data.subspan(size);
    if (used_ == kBlockBytes) {
      if (auto status = SubmitBlock(); !status.ok()) return status;
    }
  }
  return status_;
}

absl::Status BlockStream::AppendInPlace(std::span<const std::byte> data) {
  const size_t in_place = AlignDown(data.size());
  if (in_place == 0 || !IsAligned(data.data()) || offset_ % kDirectAlignment != 0) return Append(data);
  if (used_ > 0) {
    if (auto status = SubmitBlock(); !status.ok()) return status;
  }
  for (size_t done = 0; done < in_place; done += kBlockBytes) {
    const size_t size = std::min(in_place - done, kBlockBytes);
    if (auto status = Submit(offset_, data.data() + done, size, kNotABlock); !status.ok()) return status;
    offset_ += size;
  }
  return Append(data.subspan(in_place));
}

absl::Status BlockStream::Align() {
  static constexpr std::byte kZeros[kDirectAlignment] = {};
  return Append(std::span(kZeros).first(AlignUp(offset_) - offset_));
}

absl::Status BlockStream::Finish() {
  if (Align().ok() && used_ > 0) SubmitBlock().IgnoreError();  // kept in status_
  if (used_ > 0) {
    free_.push_back(current_);
    used_ = 0;
  }
  while (queue_->in_flight() > 0) Reap();
  return status_;
}

absl::Status BlockStream::NeedBlock() {
  if (used_ > 0 || !status_.ok()) return status_;
  while (free_.empty()) Reap();
  if (!status_.ok()) return status_;
  current_ = free_.back();
  free_.pop_back();
  return status_;
}

absl::Status BlockStream::SubmitBlock() {
  const size_t size = std::exchange(used_, 0);
  auto status = Submit(offset_ - size, blocks_[current_].data(), size, current_);
  if (!status.ok()) free_.push_back(current_);
  return status;
}

absl::Status BlockStream::Submit(uint64_t offset, const std::byte* data, size_t size, uint64_t tag) {
  while (status_.ok() && queue_->in_flight() >= queue_->depth()) Reap();
  if (!status_.ok()) return status_;
  IoRequest request;
  request.kind = IoRequest::Kind::kWrite;
  request.file = file_;
  request.offset = offset;
  request.data = const_cast<std::byte*>(data);  // a write only reads it
  request.size = size;
  request.tag = tag;
  queue_->Submit(request);
  return absl::OkStatus();
}

void BlockStream::Reap() {
  const IoCompletion completion = queue_->Wait();
  if (completion.tag != kNotABlock) free_.push_back(completion.tag);
  status_.Update(completion.status);
}

}  // namespace tidemark::storage
