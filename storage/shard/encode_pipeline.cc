#include "storage/shard/encode_pipeline.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "fmt/format.h"

namespace tidemark::storage {

EncodePipeline::EncodePipeline(CodecPolicy policy, size_t slots)
    : policy_(policy), slots_(slots), ready_(slots_.size(), false) {}

EncodePipeline::Shape EncodePipeline::ShapeOf(CodecPolicy policy, uint32_t chunk_bytes, int threads) {
  Shape shape{static_cast<size_t>(threads), kWindowPerThread * threads};
  if (policy == CodecPolicy::kNone) return shape;
  const size_t buffers = std::max<size_t>(2, kBufferBytesMax / chunk_bytes);
  shape.threads = std::min(shape.threads, buffers / 2);
  shape.slots = std::min(kWindowPerThread * shape.threads, buffers - shape.threads);
  return shape;
}

absl::StatusOr<std::unique_ptr<EncodePipeline>> EncodePipeline::Create(CodecPolicy policy, uint32_t chunk_bytes,
                                                                       int threads) {
  const Shape shape = ShapeOf(policy, chunk_bytes, threads);
  std::unique_ptr<EncodePipeline> pipeline(new EncodePipeline(policy, shape.slots));
  try {
    for (size_t i = 0; i < shape.threads; ++i) pipeline->threads_.emplace_back([raw = pipeline.get()] { raw->Work(); });
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        fmt::format("start codec thread {} of {}: {}", pipeline->threads_.size() + 1, shape.threads, error.what()));
  }
  return pipeline;
}

EncodePipeline::~EncodePipeline() {
  Stop();
  {
    absl::MutexLock lock(&mutex_);
    quit_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

void EncodePipeline::Start(std::vector<Task> tasks) {
  absl::MutexLock lock(&mutex_);
  if (!tasks_.empty()) std::abort();
  tasks_ = std::move(tasks);
}

const EncodePipeline::Encoded& EncodePipeline::Next() {
  absl::MutexLock lock(&mutex_);
  if (holding_) ++returned_;
  holding_ = true;
  if (returned_ >= tasks_.size()) std::abort();
  mutex_.Await(absl::Condition(this, &EncodePipeline::NextIsReady));
  const size_t slot = returned_ % slots_.size();
  ready_[slot] = false;
  return slots_[slot].encoded;
}

void EncodePipeline::Stop() {
  absl::MutexLock lock(&mutex_);
  tasks_.clear();
  mutex_.Await(absl::Condition(this, &EncodePipeline::NobodyWorks));
  ready_.assign(slots_.size(), false);
  taken_ = 0;
  returned_ = 0;
  holding_ = false;
}

bool EncodePipeline::MayWork() const { return quit_ || (taken_ < tasks_.size() && taken_ < returned_ + slots_.size()); }

bool EncodePipeline::NextIsReady() const { return ready_[returned_ % slots_.size()]; }

void EncodePipeline::Work() {
  ChunkEncoder encoder;
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(this, &EncodePipeline::MayWork));
    if (quit_) return;
    const size_t chunk = taken_++;
    const Task task = tasks_[chunk];
    ++working_;
    mutex_.Unlock();
    Slot& slot = slots_[chunk % slots_.size()];
    slot.encoded.record.digest = DigestOf(task.raw);
    slot.encoded.stored =
        encoder.Encode(task.raw, task.float_bytes, policy_ != CodecPolicy::kNone, &slot.buffer, &slot.encoded.record);
    mutex_.Lock();
    ready_[chunk % slots_.size()] = true;
    --working_;
  }
}

}  // namespace tidemark::storage
