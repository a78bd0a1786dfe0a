#include "storage/shard/read/range_fetcher.h"

#include <algorithm>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "storage/io/exception_status.h"
#include "storage/shard/format/aligned_buffer.h"

namespace tidemark::storage {
namespace {

constexpr uint64_t kPoolBytesMax = 64 << 20;

// Fewer bytes than this between two items are read along: another request would cost more.
constexpr uint64_t kGapBytesMax = 64 * 1024;

constexpr size_t kNoBuffer = std::numeric_limits<size_t>::max();

// A range that has been read, or not. Its buffer holds all of it, or where it has a place, what of its last block is
// not in it yet.
struct Fetched {
  size_t range = 0;
  size_t buffer = kNoBuffer;
  absl::Status read;
};

// One request. A range is one, or two if it has a place and ends within a block.
struct Piece {
  size_t range = 0;
  uint64_t offset = 0;
  size_t bytes = 0;
  std::byte* place = nullptr;  // null: a buffer of the pool
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

  // `buffer` may be kNoBuffer.
  void Done(size_t buffer, const absl::Status& status) {
    absl::MutexLock lock(&mutex_);
    if (buffer != kNoBuffer) free_.push_back(buffer);
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

  bool failed() const {
    absl::MutexLock lock(&mutex_);
    return !status_.ok();
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

// The bytes of the range that can be read to its place; those of its last block cannot, unless they fill it.
uint64_t PlacedBytes(const ByteRange& range) { return range.place == nullptr ? 0 : AlignDown(range.end - range.begin); }

std::vector<Piece> CutIntoPieces(std::span<const ByteRange> ranges) {
  std::vector<Piece> pieces;
  pieces.reserve(ranges.size());
  for (size_t i = 0; i < ranges.size(); ++i) {
    const ByteRange& range = ranges[i];
    const uint64_t placed = PlacedBytes(range);
    if (placed > 0) pieces.push_back({i, range.begin, placed, range.place});
    const uint64_t rest = AlignDown(range.begin + placed);
    if (rest < range.end) pieces.push_back({i, rest, AlignUp(range.end) - rest});
  }
  return pieces;
}

// Buffers of one size, in memory that is taken at once.
class BufferPool {
 public:
  BufferPool(std::span<const Piece> pieces, const FetchOptions& options) {
    size_t users = 0;
    for (const Piece& piece : pieces) {
      if (piece.place != nullptr) continue;
      ++users;
      buffer_bytes_ = std::max(buffer_bytes_, piece.bytes);
    }
    if (users == 0) return;
    // As many again as are in flight, so that the disk stays busy while the threads catch up.
    const size_t wanted = 2 * options.io_depth + 2 * static_cast<size_t>(options.threads);
    const size_t affordable = std::max<size_t>(2, kPoolBytesMax / buffer_bytes_);
    count_ = std::min({wanted, affordable, users});
    memory_ = AlignedBuffer(count_ * buffer_bytes_);
    used_again_ = users / count_ > 1;
  }

  size_t count() const { return count_; }
  std::byte* operator[](size_t buffer) const { return memory_.data() + buffer * buffer_bytes_; }

  // Worth registering with the kernel, or empty.
  std::span<const std::byte> reused_memory() const {
    return used_again_ ? memory_.span() : std::span<const std::byte>();
  }

 private:
  size_t count_ = 0;
  size_t buffer_bytes_ = 0;
  bool used_again_ = false;
  AlignedBuffer memory_;
};

// The bytes of a range, brought together.
std::span<const std::byte> BytesOf(const ByteRange& range, const Fetched& fetched, const BufferPool& pool) {
  const size_t size = range.end - range.begin;
  if (range.place == nullptr) return {pool[fetched.buffer] + (range.begin - AlignDown(range.begin)), size};
  const size_t placed = PlacedBytes(range);
  if (placed < size) std::memcpy(range.place + placed, pool[fetched.buffer], size - placed);
  return {range.place, size};
}

// Threads that hand the ranges to the handler. Its destructor always joins them.
class Handlers {
 public:
  Handlers(std::span<const ByteRange> ranges, const BufferPool& pool, const RangeHandler& handler, Exchange* exchange)
      : ranges_(ranges), pool_(pool), handler_(handler), exchange_(exchange) {}
  ~Handlers() {
    exchange_->PushNoMore();
    for (std::thread& thread : threads_) thread.join();
  }
  Handlers(const Handlers&) = delete;
  Handlers& operator=(const Handlers&) = delete;

  void Start(size_t count) {
    threads_.reserve(count);
    try {
      while (threads_.size() < count) threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error& error) {
      exchange_->Fail(absl::ResourceExhaustedError(
          fmt::format("start codec thread {} of {}: {}", threads_.size() + 1, count, error.what())));
    }
  }

 private:
  void Run() {
    try {
      FetchWorker worker;
      while (auto fetched = exchange_->Pop()) {
        std::span<const std::byte> bytes;
        if (fetched->read.ok()) bytes = BytesOf(ranges_[fetched->range], *fetched, pool_);
        exchange_->Done(fetched->buffer, handler_(fetched->range, fetched->read, bytes, worker));
      }
    } catch (...) {
      exchange_->Fail(ExceptionStatus("a codec thread"));
    }
  }

  const std::span<const ByteRange> ranges_;
  const BufferPool& pool_;
  const RangeHandler& handler_;
  Exchange* const exchange_;
  std::vector<std::thread> threads_;
};

// Keeps the queue full. Owned by the thread that calls FetchRanges.
class Driver {
 public:
  Driver(IoQueue* queue, std::span<const ByteRange> ranges, std::vector<Piece> pieces, const BufferPool& pool,
         Exchange* exchange)
      : queue_(queue), ranges_(ranges), pieces_(std::move(pieces)), pool_(pool), exchange_(exchange) {
    reads_.resize(ranges.size());
    for (const Piece& piece : pieces_) ++reads_[piece.range].pending;
  }

  // Returns when nothing is in flight and all ranges are read, or an error stopped it.
  void Run(const std::function<void(size_t)>& on_read) {
    for (;;) {
      while (next_ < pieces_.size() && queue_->in_flight() < queue_->depth() && SubmitNext()) {
      }
      if (queue_->in_flight() == 0) return;
      IoCompletion completion = queue_->Wait();
      const size_t range = pieces_[completion.tag].range;
      RangeRead& read = reads_[range];
      read.status.Update(completion.status);
      if (--read.pending > 0) continue;
      exchange_->Push({range, read.buffer, std::move(read.status)});
      if (on_read != nullptr) on_read(range);
    }
  }

 private:
  struct RangeRead {
    int pending = 0;
    size_t buffer = kNoBuffer;
    absl::Status status;
  };

  // Nothing is submitted for want of a buffer, or after an error.
  bool SubmitNext() {
    const Piece& piece = pieces_[next_];
    std::byte* data = piece.place;
    if (data == nullptr) {
      // With reads in flight there is something better to do than to wait for a buffer.
      const auto buffer = exchange_->TakeBuffer(/*wait=*/queue_->in_flight() == 0);
      if (!buffer) return false;
      reads_[piece.range].buffer = *buffer;
      data = pool_[*buffer];
    } else if (exchange_->failed()) {
      return false;
    }
    queue_->Submit({.kind = IoRequest::Kind::kRead,
                    .file = ranges_[piece.range].file,
                    .offset = piece.offset,
                    .data = data,
                    .size = piece.bytes,
                    .tag = next_++});
    return true;
  }

  IoQueue* const queue_;
  const std::span<const ByteRange> ranges_;
  const std::vector<Piece> pieces_;
  const BufferPool& pool_;
  Exchange* const exchange_;
  std::vector<RangeRead> reads_;
  size_t next_ = 0;
};

// On return, also with an error, nothing is in flight and no thread is left.
absl::Status Fetch(FileSystem& files, const FetchOptions& options, std::span<const ByteRange> ranges,
                   const RangeHandler& handler, const std::function<void(size_t)>& on_read) {
  std::vector<Piece> pieces = CutIntoPieces(ranges);
  const BufferPool pool(pieces, options);
  Exchange exchange(pool.count());
  // Its destruction waits for requests in flight, so the memory that they write to must outlive it.
  auto queue = files.NewIoQueue(options.io, options.io_depth);
  if (!queue.ok()) return queue.status();
  // Optional: reads are right without it.
  if (!pool.reused_memory().empty()) (*queue)->RegisterMemory(pool.reused_memory()).IgnoreError();
  {
    Handlers handlers(ranges, pool, handler, &exchange);
    try {
      handlers.Start(std::clamp<size_t>(options.threads, 1, ranges.size()));
      Driver(queue->get(), ranges, std::move(pieces), pool, &exchange).Run(on_read);
    } catch (...) {
      exchange.Fail(ExceptionStatus("the reading thread"));
    }
  }
  return exchange.status();
}

}  // namespace

void AddToRanges(File* file, uint64_t begin, uint64_t end, size_t item, std::vector<ByteRange>* ranges,
                 std::byte* place) {
  const bool aligned =
      begin % kDirectAlignment == 0 && reinterpret_cast<uintptr_t>(place) % kDirectAlignment == 0 && end > begin;
  if (!aligned || end - begin < kPlacedBytesMin) place = nullptr;
  if (!ranges->empty() && ranges->back().file == file && ranges->back().last_item == item) {
    ByteRange& last = ranges->back();
    const bool within = begin >= last.begin && end <= last.end;
    const bool fits = begin <= last.end + kGapBytesMax && end <= last.begin + kRangeBytes;
    // What is read to a place goes on only with what comes right behind it in both, and ends where a block does.
    const bool goes_on = last.place == nullptr ? place == nullptr
                                               : begin == last.end && begin % kDirectAlignment == 0 &&
                                                     place == last.place + (last.end - last.begin);
    if (within || (fits && goes_on)) {
      last.end = std::max(last.end, end);
      last.last_item = item + 1;
      return;
    }
  }
  ranges->push_back({file, begin, end, item, item + 1, place});
}

absl::Status FetchRanges(FileSystem& files, const FetchOptions& options, std::span<const ByteRange> ranges,
                         const RangeHandler& handler, const std::function<void(size_t)>& on_read) {
  if (ranges.empty()) return absl::OkStatus();
  try {
    return Fetch(files, options, ranges, handler, on_read);
  } catch (...) {
    return ExceptionStatus("reading");
  }
}

}  // namespace tidemark::storage
