#include "storage/shard/write/block_stream.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>

namespace tidemark::storage {
namespace {

// A request's tag says how long it is and which block it writes.
uint64_t TagOf(size_t size, uint32_t block) { return uint64_t{size} << 32 | block; }
uint64_t SizeOf(uint64_t tag) { return tag >> 32; }
uint32_t BlockOf(uint64_t tag) { return static_cast<uint32_t>(tag); }

bool IsAligned(const std::byte* data) { return reinterpret_cast<uintptr_t>(data) % kDirectAlignment == 0; }

}  // namespace

BlockStream::BlockStream(size_t blocks) : blocks_(blocks), pool_(blocks * kBlockBytes) { free_.reserve(blocks); }

void BlockStream::Begin(File* file, IoQueue* queue, uint64_t offset, WriteObserver* observer) {
  if (queue->in_flight() > 0 || offset % kDirectAlignment != 0) std::abort();
  free_.clear();
  for (size_t i = 0; i < blocks_; ++i) free_.push_back(static_cast<uint32_t>(i));
  used_ = 0;
  file_ = file;
  queue_ = queue;
  observer_ = observer;
  offset_ = offset;
  status_ = absl::OkStatus();
}

absl::Status BlockStream::Append(std::span<const std::byte> data) {
  while (!data.empty()) {
    if (auto status = NeedBlock(); !status.ok()) return status;
    const size_t size = std::min(data.size(), kBlockBytes - used_);
    std::memcpy(block(current_) + used_, data.data(), size);
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
  if (data.size() < kInPlaceBytesMin || !IsAligned(data.data()) || offset_ % kDirectAlignment != 0) return Append(data);
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

absl::Status BlockStream::Wait() {
  ReapNext();
  return status_;
}

void BlockStream::Poll() {
  while (const std::optional<IoCompletion> completion = queue_->Poll()) Reap(*completion);
}

absl::Status BlockStream::Finish() {
  if (Align().ok() && used_ > 0) SubmitBlock().IgnoreError();  // kept in status_
  if (used_ > 0) {
    free_.push_back(current_);
    used_ = 0;
  }
  while (queue_->in_flight() > 0) ReapNext();
  return status_;
}

absl::Status BlockStream::NeedBlock() {
  if (used_ > 0 || !status_.ok()) return status_;
  while (free_.empty()) ReapNext();
  if (!status_.ok()) return status_;
  current_ = free_.back();
  free_.pop_back();
  return status_;
}

absl::Status BlockStream::SubmitBlock() {
  const size_t size = std::exchange(used_, 0);
  absl::Status status;
  try {
    status = Submit(offset_ - size, block(current_), size, current_);
  } catch (...) {
    free_.push_back(current_);
    throw;
  }
  if (!status.ok()) free_.push_back(current_);
  return status;
}

absl::Status BlockStream::Submit(uint64_t offset, const std::byte* data, size_t size, uint32_t block) {
  while (status_.ok() && queue_->in_flight() >= queue_->depth()) ReapNext();
  if (!status_.ok()) return status_;
  if (observer_ != nullptr) observer_->Submitting(size);
  IoRequest request;
  request.kind = IoRequest::Kind::kWrite;
  request.file = file_;
  request.offset = offset;
  request.data = const_cast<std::byte*>(data);  // a write only reads it
  request.size = size;
  request.tag = TagOf(size, block);
  queue_->Submit(request);
  return absl::OkStatus();
}

void BlockStream::ReapNext() {
  if (observer_ == nullptr) return Reap(queue_->Wait());
  const BusySpans::Time begin = BusySpans::Now();
  const IoCompletion completion = queue_->Wait();
  const BusySpans::Time end = BusySpans::Now();
  Reap(completion);
  observer_->Waited(begin, end);
}

// The observer comes last: if it throws, the completion is not lost.
void BlockStream::Reap(const IoCompletion& completion) {
  if (const uint32_t block = BlockOf(completion.tag); block != kNotABlock) free_.push_back(block);
  status_.Update(completion.status);
  if (observer_ != nullptr) observer_->Completed(SizeOf(completion.tag));
}

}  // namespace tidemark::storage
