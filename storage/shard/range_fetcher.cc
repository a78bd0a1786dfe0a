#include "storage/shard/range_fetcher.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "storage/shard/aligned_buffer.h"

namespace tidemark::storage {
namespace {

constexpr uint64_t kPoolBytesMax = 64 << 20;

// Fewer bytes than this between two items are read along: another request would cost more.
constexpr uint64_t kGapBytesMax = 64 * 1024;

struct Fetched {
  size_t range = 0;
  size_t buffer = 0;
  absl::Status read;
};

// Between the thread that reads and those that handle. Thread-safe.
class Exchange {
 public:
  explicit Exchange(size_t buffers) {
    for (size_t i = 0; i < buffers; ++i) free_.push_back(i);
  }

  // A free buffer; waits for one if `wait`. Nothing if there is none, or after an error.
  std::optional<size_t> TakeBuffer(bool wait) {
    absl::MutexLock lock(&mutex_);
    if (wait) mutex_.Await(absl::Condition(this, &Exchange::HasBufferOrError));
    if (free_.empty() || !status_.ok()) return std::nullopt;
    const size_t buffer = free_.back();
    free_.pop_back();
    return buffer;
  }

  void Push(Fetched fetched) {
    absl::MutexLock lock(&mutex_);
    ready_.push_back(std::move(fetched));
  }

  void PushNoMore() {
    absl::MutexLock lock(&mutex_);
    no_more_ = true;
  }

  // Waits for something to handle. Nothing: no more will come, or an error makes it useless.
  std::optional<Fetched> Pop() {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(this, &Exchange::HasReadyOrEnd));
    if (ready_.empty() || !status_.ok()) return std::nullopt;
    Fetched fetched = std::move(ready_.front());
    ready_.pop_front();
    return fetched;
  }

  void Done(size_t buffer, const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    free_.push_back(buffer);
    status_.Update(status);
  }

  void Fail(const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    status_.Update(status);
  }

  absl::Status status() const {
    absl::MutexLock lock(&mutex_);
    return status_;
  }

 private:
  bool HasBufferOrError() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !free_.empty() || !status_.ok(); }
  bool HasReadyOrEnd() const ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return !ready_.empty() || no_more_ || !status_.ok(); }

  mutable absl::Mutex mutex_;
  std::vector<size_t> free_ ABSL_GUARDED_BY(mutex_);
  std::deque<Fetched> ready_ ABSL_GUARDED_BY(mutex_);
  bool no_more_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_ ABSL_GUARDED_BY(mutex_);  // the first error
};

uint64_t AlignedBytes(const ByteRange& range) { return AlignUp(range.end) - AlignDown(range.begin); }

std::vector<AlignedBuffer> NewPool(std::span<const ByteRange> ranges, const FetchOptions& options) {
  uint64_t bytes = kDirectAlignment;
  for (const ByteRange& range : ranges) bytes = std::max(bytes, AlignedBytes(range));
  const size_t wanted = options.io_depth + 2 * options.threads;
  const size_t affordable = std::max<size_t>(2, kPoolBytesMax / bytes);
  std::vector<AlignedBuffer> pool;
  for (size_t i = 0; i < std::min({wanted, affordable, ranges.size()}); ++i) pool.emplace_back(bytes);
  return pool;
}

void Handle(std::span<const ByteRange> ranges, std::span<const AlignedBuffer> pool, const RangeHandler& handler,
            Exchange* exchange) {
  FetchWorker worker;
  while (auto fetched = exchange->Pop()) {
    const ByteRange& range = ranges[fetched->range];
    std::span<const std::byte> bytes;
    if (fetched->read.ok()) {
      bytes = pool[fetched->buffer].span().subspan(range.begin - AlignDown(range.begin), range.end - range.begin);
    }
    exchange->Done(fetched->buffer, handler(fetched->range, fetched->read, bytes, worker));
  }
}

void Drive(IoQueue* queue, std::span<const ByteRange> ranges, std::span<const AlignedBuffer> pool,
           const std::function<void(size_t)>& on_read, Exchange* exchange) {
  std::vector<size_t> buffers(ranges.size());  // by range
  size_t next = 0;
  while (true) {
    while (next < ranges.size() && queue->in_flight() < queue->depth()) {
      // With reads in flight there is something better to do than to wait for a buffer.
      const auto buffer = exchange->TakeBuffer(/*wait=*/queue->in_flight() == 0);
      if (!buffer) break;
      const ByteRange& range = ranges[next];
      IoRequest request;
      request.kind = IoRequest::Kind::kRead;
      request.file = range.file;
      request.offset = AlignDown(range.begin);
      request.data = pool[*buffer].data();
      request.size = AlignedBytes(range);
      request.tag = next;
      buffers[next++] = *buffer;
      queue->Submit(request);
    }
    if (queue->in_flight() == 0) return;  // all are read, or an error stopped it
    IoCompletion completion = queue->Wait();
    const size_t range = completion.tag;
    exchange->Push({range, buffers[range], std::move(completion.status)});
    if (on_read != nullptr) on_read(range);
  }
}

}  // namespace

void AddToRanges(File* file, uint64_t begin, uint64_t end, size_t item, std::vector<ByteRange>* ranges) {
  if (!ranges->empty() && ranges->back().file == file && ranges->back().last_item == item) {
    ByteRange& last = ranges->back();
    if (begin <= last.end + kGapBytesMax && (end <= last.end || end <= last.begin + kRangeBytes)) {
      last.end = std::max(last.end, end);
      last.last_item = item + 1;
      return;
    }
  }
  ranges->push_back({file, begin, end, item, item + 1});
}

absl::Status FetchRanges(FileSystem& files, const FetchOptions& options, std::span<const ByteRange> ranges,
                         const RangeHandler& handler, const std::function<void(size_t)>& on_read) {
  if (ranges.empty()) return absl::OkStatus();
  const std::vector<AlignedBuffer> pool = NewPool(ranges, options);
  auto queue = files.NewIoQueue(options.io, options.io_depth);
  if (!queue.ok()) return queue.status();
  Exchange exchange(pool.size());
  std::vector<std::thread> threads;
  const size_t count = std::clamp<size_t>(options.threads, 1, ranges.size());
  try {
    while (threads.size() < count) threads.emplace_back([&] { Handle(ranges, pool, handler, &exchange); });
  } catch (const std::system_error& error) {
    exchange.Fail(absl::ResourceExhaustedError(
        fmt::format("start codec thread {} of {}: {}", threads.size() + 1, count, error.what())));
  }
  Drive(queue->get(), ranges, pool, on_read, &exchange);
  exchange.PushNoMore();
  for (std::thread& thread : threads) thread.join();
  return exchange.status();
}

}  // namespace tidemark::storage
