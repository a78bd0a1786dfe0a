#include "storage/shard/write/encode_pipeline.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <utility>

#include "fmt/format.h"
#include "storage/io/exception_status.h"
#include "storage/shard/format/chunk_check.h"

namespace tidemark::storage {
namespace {

std::vector<size_t> BatchEnds(std::span<const EncodePipeline::Task> tasks) {
  std::vector<size_t> ends;
  size_t bytes = 0;
  size_t count = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const size_t more = tasks[i].bytes();
    if (count > 0 && (bytes + more > EncodePipeline::kBatchBytes || count == EncodePipeline::kBatchChunksMax)) {
      ends.push_back(i);
      bytes = 0;
      count = 0;
    }
    bytes += more;
    ++count;
  }
  if (count > 0) ends.push_back(tasks.size());
  return ends;
}

void RecordRaw(std::span<const std::byte> raw, ChunkRecord* record) {
  record->codec = Codec::kRaw;
  record->float_bytes = 0;
  record->raw_bytes = raw.size();
  record->stored_bytes = raw.size();
  record->checksum = ChecksumOf(raw, record->digest);
}

bool IsReusable(const EncodePipeline::Task& task) {
  return task.reusable != nullptr && task.reusable->raw_bytes == task.bytes() &&
         task.reusable->digest == task.record->digest;
}

}  // namespace

// What each thread has for itself.
struct EncodePipeline::Worker {
  explicit Worker(BusySpans* busy) : busy(busy) {}

  BusySpans* const busy;
  ChunkEncoder encoder;
  ChunkCheck check;
  std::vector<std::byte> buffer;  // of one chunk, in batches of several
  // By task of the batch at hand.
  std::vector<std::span<const std::byte>> raw;
  std::vector<std::byte> gathered;  // those of tiles
  size_t batch_bytes = 0;           // of the batch at hand, before encoding; 0 if it is a single chunk
};

namespace {

bool HasGovernor(CodecPolicy policy) { return policy == CodecPolicy::kThroughput || policy == CodecPolicy::kAuto; }

}  // namespace

EncodePipeline::EncodePipeline(CodecPolicy policy, const Shape& shape, CompressionGovernor* governor)
    : policy_(policy),
      governor_(HasGovernor(policy) ? governor : nullptr),
      slots_(shape.slots),
      busy_(shape.threads),
      ready_(slots_.size(), false) {
  for (BusySpans& busy : busy_) workers_.push_back(std::make_unique<Worker>(&busy));
  threads_.reserve(shape.threads);
}

EncodePipeline::Shape EncodePipeline::ShapeOf(CodecPolicy policy, uint32_t chunk_bytes, int threads) {
  Shape shape{static_cast<size_t>(threads), kWindowPerThread * threads};
  if (policy == CodecPolicy::kNone) return shape;
  const size_t buffers = std::max<size_t>(2, kBufferBytesMax / std::max<size_t>(chunk_bytes, kBatchBytes));
  shape.threads = std::min(shape.threads, buffers / 2);
  shape.slots = std::min(kWindowPerThread * shape.threads, buffers - shape.threads);
  return shape;
}

absl::StatusOr<std::unique_ptr<EncodePipeline>> EncodePipeline::Create(CodecPolicy policy, uint32_t chunk_bytes,
                                                                       int threads, CompressionGovernor* governor) {
  if (HasGovernor(policy) && governor == nullptr) std::abort();
  const Shape shape = ShapeOf(policy, chunk_bytes, threads);
  std::unique_ptr<EncodePipeline> pipeline;
  try {
    pipeline.reset(new EncodePipeline(policy, shape, governor));
    for (const std::unique_ptr<Worker>& worker : pipeline->workers_) {
      pipeline->threads_.emplace_back([raw = pipeline.get(), own = worker.get()] { raw->Work(own); });
    }
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        fmt::format("start codec thread {} of {}: {}", pipeline->threads_.size() + 1, shape.threads, error.what()));
  } catch (...) {
    return ExceptionStatus("start codec threads");
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

void EncodePipeline::Start(std::vector<Task> tasks, WaitUntilReady wait_until_ready, CompressAll compress_all) {
  auto run = std::make_unique<Run>();
  run->batch_ends = BatchEnds(tasks);
  run->tasks = std::move(tasks);
  run->wait_until_ready = std::move(wait_until_ready);
  if (policy_ == CodecPolicy::kAuto) run->compress_all = std::move(compress_all);
  if (governor_ != nullptr) governor_->Begin();
  absl::MutexLock lock(&mutex_);
  if (run_ != nullptr) std::abort();
  for (BusySpans& busy : busy_) busy.Clear();
  run_ = std::move(run);
}

absl::StatusOr<std::span<const EncodePipeline::Encoded>> EncodePipeline::Next() {
  absl::MutexLock lock(&mutex_);
  if (run_ == nullptr) std::abort();
  if (holding_) ++returned_;
  holding_ = false;
  mutex_.Await(absl::Condition(this, &EncodePipeline::IsDecided));
  if (!status_.ok()) return status_;
  if (returned_ == run_->batch_ends.size()) return std::span<const Encoded>();
  const size_t slot = returned_ % slots_.size();
  ready_[slot] = false;
  holding_ = true;
  const std::vector<Encoded>& batch = slots_[slot].batch;
  if (governor_ != nullptr) {
    uint64_t bytes = 0;
    for (const Encoded& encoded : batch) bytes += encoded.reused ? 0 : encoded.task->record->stored_bytes;
    governor_->HandedOut(bytes);
  }
  return std::span<const Encoded>(batch);
}

bool EncodePipeline::HasNext() {
  absl::MutexLock lock(&mutex_);
  if (run_ == nullptr) std::abort();
  if (!status_.ok()) return true;
  const size_t next = returned_ + (holding_ ? 1 : 0);
  return next == run_->batch_ends.size() || ready_[next % slots_.size()];
}

void EncodePipeline::Stop() {
  std::unique_ptr<const Run> ended;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  if (run_ == nullptr) return;
  if (status_.ok()) status_ = absl::Status(absl::StatusCode::kCancelled, "");  // a message could need memory
  mutex_.Await(absl::Condition(this, &EncodePipeline::NobodyWorks));
  ended = std::move(run_);
  status_ = absl::OkStatus();
  ready_.assign(slots_.size(), false);
  taken_ = 0;
  returned_ = 0;
  holding_ = false;
}

bool EncodePipeline::MayWork() const {
  return quit_ ||
         (run_ != nullptr && status_.ok() && taken_ < run_->batch_ends.size() && taken_ < returned_ + slots_.size());
}

bool EncodePipeline::IsDecided() const {
  return !status_.ok() || returned_ == run_->batch_ends.size() || ready_[returned_ % slots_.size()];
}

void EncodePipeline::Work(Worker* worker) {
  absl::MutexLock lock(&mutex_);
  while (true) {
    mutex_.Await(absl::Condition(this, &EncodePipeline::MayWork));
    if (quit_) return;
    const size_t batch = taken_++;
    const Run& run = *run_;
    ++working_;
    mutex_.Unlock();
    Slot& slot = slots_[batch % slots_.size()];
    absl::Status status;
    try {
      status = EncodeBatch(run, batch, worker, &slot);
    } catch (...) {
      status = ExceptionStatus("a codec thread");
    }
    mutex_.Lock();
    ready_[batch % slots_.size()] = status.ok();
    status_.Update(std::move(status));
    --working_;
  }
}

// The bytes of each task. Those of tiles are copied, because a chunk is hashed and compressed as one piece.
void EncodePipeline::Gather(std::span<const Task> tasks, size_t bytes_max, Worker* worker) {
  worker->raw.clear();
  size_t used = 0;
  for (const Task& task : tasks) {
    if (task.tile == nullptr) {
      worker->raw.push_back(task.raw);
      continue;
    }
    if (worker->gathered.size() < bytes_max) worker->gathered.resize(bytes_max);
    std::byte* const begin = worker->gathered.data() + used;
    std::byte* place = begin;
    task.tile->ForEachRun(task.tile_begin, task.tile_end, [&](uint64_t offset, uint64_t bytes) {
      std::memcpy(place, task.raw.data() + offset, bytes);
      place += bytes;
    });
    worker->raw.emplace_back(begin, task.bytes());
    used += task.bytes();
  }
}

absl::Status EncodePipeline::EncodeBatch(const Run& run, size_t batch, Worker* worker, Slot* slot) const {
  const size_t begin = batch == 0 ? 0 : run.batch_ends[batch - 1];
  const std::span<const Task> tasks = std::span(run.tasks).subspan(begin, run.batch_ends[batch] - begin);
  size_t raw_bytes = 0;
  for (const Task& task : tasks) {
    raw_bytes += task.bytes();
    if (run.wait_until_ready == nullptr) continue;
    if (auto status = run.wait_until_ready(task.entry, task.end); !status.ok()) return status;
  }
  const auto start = CompressionGovernor::Now();
  bool compress = governor_ != nullptr ? governor_->Take(raw_bytes, start) : policy_ == CodecPolicy::kSpace;
  if (run.compress_all != nullptr && run.compress_all()) compress = true;
  Gather(tasks, raw_bytes, worker);
  worker->batch_bytes = tasks.size() > 1 ? raw_bytes : 0;
  slot->batch.clear();
  slot->used = 0;
  size_t stored_bytes = 0;
  size_t compressed_bytes = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    task.record->digest = DigestOf(worker->raw[i]);
    Encoded encoded{.task = &task, .reused = IsReusable(task), .stored = {}};
    if (!encoded.reused) {
      encoded.stored = EncodeChunk(task, worker->raw[i], compress, worker, slot);
      stored_bytes += encoded.stored.size();
      if (compress) compressed_bytes += task.bytes();
    }
    slot->batch.push_back(encoded);
  }
  const auto end = CompressionGovernor::Now();
  if (governor_ != nullptr) governor_->Encoded(raw_bytes, stored_bytes, compressed_bytes, end - start);
  worker->busy->Add(start, end, raw_bytes);
  // Not in the time that the governor is told: a build with assertions compresses no less for them.
  for (size_t i = 0; i < tasks.size(); ++i) {
    Encoded& encoded = slot->batch[i];
    if (encoded.reused) continue;
    auto status = worker->check.Check(worker->raw[i], *encoded.task->record, encoded.stored);
    if (!status.ok()) return status;
    // The next batch overwrites what was gathered.
    if (encoded.task->tile != nullptr && encoded.task->record->codec == Codec::kRaw) encoded.stored = {};
  }
  return absl::OkStatus();
}

// What is compressed lies in the slot's buffer: a chunk that is alone right from the encoder, others behind each other.
std::span<const std::byte> EncodePipeline::EncodeChunk(const Task& task, std::span<const std::byte> raw, bool compress,
                                                       Worker* worker, Slot* slot) {
  if (!compress) {
    RecordRaw(raw, task.record);
    return raw;
  }
  if (worker->batch_bytes == 0) {
    return worker->encoder.Encode(raw, task.float_bytes, /*compress=*/true, &slot->buffer, task.record);
  }
  const std::span<const std::byte> stored =
      worker->encoder.Encode(raw, task.float_bytes, /*compress=*/true, &worker->buffer, task.record);
  if (task.record->codec == Codec::kRaw) return stored;
  // Never grown in the middle of a batch: nothing is stored in more bytes than it has.
  if (slot->buffer.size() < worker->batch_bytes) slot->buffer.resize(worker->batch_bytes);
  std::byte* const place = slot->buffer.data() + slot->used;
  std::memcpy(place, stored.data(), stored.size());
  slot->used += stored.size();
  return {place, stored.size()};
}

}  // namespace tidemark::storage
