#include "tools/checkpoint_inspect/checks/disk_speed.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "snapshot/stopwatch.h"
#include "storage/shard/format/aligned_buffer.h"
#include "storage/shard/write/preallocation.h"
#include "storage/shard/write/shard_writer.h"

namespace tidemark::inspect {
namespace {

using storage::AlignedBuffer;
using storage::File;
using storage::IoCompletion;
using storage::IoQueue;
using storage::IoRequest;
using storage::kDirectAlignment;

// Neither the blocks nor the pages in them are the same, so that compressing or sharing them saves a file system
// nothing.
class BlockSource {
 public:
  explicit BlockSource(size_t blocks) : buffer_(blocks * kSpeedBlockBytes) {
    std::mt19937_64 random(1);
    const std::span<std::byte> bytes = buffer_.span();
    for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
      const uint64_t number = random();
      std::memcpy(&bytes[i], &number, sizeof(number));
    }
  }

  std::span<const std::byte> memory() const { return buffer_.span(); }
  std::byte* block(size_t slot) const { return buffer_.data() + slot * kSpeedBlockBytes; }

  // Makes the block another one than it was.
  void Stamp(size_t slot, uint64_t offset) const {
    for (size_t i = 0; i < kSpeedBlockBytes; i += kDirectAlignment) {
      const uint64_t place = offset + i;
      std::memcpy(block(slot) + i, &place, sizeof(place));
    }
  }

 private:
  AlignedBuffer buffer_;
};

// The two passes over the file. Owned by the thread that calls it.
class SpeedRun {
 public:
  SpeedRun(IoQueue& queue, File& file, const SpeedOptions& options)
      : queue_(queue), file_(file), options_(options), blocks_(queue.depth()) {}

  // Transfers blocks from the beginning of the file, until `bytes` or the time is used up; then awaits what is in
  // flight. The bytes that were transferred.
  absl::StatusOr<uint64_t> Pass(IoRequest::Kind kind, uint64_t bytes) {
    const bool writing = kind == IoRequest::Kind::kWrite;
    storage::Preallocation preallocation(&file_, bytes);
    std::vector<size_t> free_slots;
    for (size_t i = 0; i < queue_.depth(); ++i) free_slots.push_back(i);
    absl::Status status;
    uint64_t begun = 0;
    uint64_t done = 0;
    const Stopwatch watch;
    const auto may_begin = [&] {
      return status.ok() && begun + kSpeedBlockBytes <= bytes &&
             (begun == 0 || watch.elapsed() < options_.duration_max);
    };
    while (may_begin() || queue_.in_flight() > 0) {
      if (status.ok() && options_.cancelled && options_.cancelled()) status = absl::CancelledError("interrupted");
      if (may_begin() && !free_slots.empty()) {
        if (writing) status.Update(preallocation.Reserve(begun + kSpeedBlockBytes));
        if (!status.ok()) continue;
        const size_t slot = free_slots.back();
        free_slots.pop_back();
        if (writing) blocks_.Stamp(slot, begun);
        queue_.Submit({.kind = kind,
                       .file = &file_,
                       .offset = begun,
                       .data = blocks_.block(slot),
                       .size = kSpeedBlockBytes,
                       .tag = slot});
        begun += kSpeedBlockBytes;
        continue;
      }
      const IoCompletion completion = queue_.Wait();
      free_slots.push_back(completion.tag);
      status.Update(completion.status);
      if (completion.status.ok()) done += kSpeedBlockBytes;
      if (options_.progress) options_.progress(writing ? "writing" : "reading", done, bytes);
    }
    if (!status.ok()) return status;
    return done;
  }

  std::span<const std::byte> memory() const { return blocks_.memory(); }

 private:
  IoQueue& queue_;
  File& file_;
  const SpeedOptions& options_;
  BlockSource blocks_;
};

double Rate(uint64_t bytes, absl::Duration elapsed) {
  return static_cast<double>(bytes) / std::max(absl::ToDoubleSeconds(elapsed), 1e-9);
}

}  // namespace

absl::StatusOr<DiskSpeed> MeasureSpeed(storage::FileSystem& files, File& file, const SpeedOptions& options) {
  absl::StatusOr<std::unique_ptr<IoQueue>> queue =
      files.NewIoQueue(storage::IoQueueKind::kAuto, storage::ShardWriterOptions().io_depth);
  if (!queue.ok()) return queue.status();
  SpeedRun run(**queue, file, options);
  // Only cheaper with it; the checks say why the kernel refuses.
  (*queue)->RegisterMemory(run.memory()).IgnoreError();

  const uint64_t bytes_max = std::max<uint64_t>(options.bytes_max, kSpeedBlockBytes);
  DiskSpeed speed{.direct = file.direct(), .queue = std::string((*queue)->name())};
  const Stopwatch writing;
  absl::StatusOr<uint64_t> written = run.Pass(IoRequest::Kind::kWrite, bytes_max);
  if (!written.ok()) return written.status();
  if (absl::Status synced = file.SyncData(); !synced.ok()) return synced;
  speed.bytes = *written;
  speed.write_bytes_per_second = Rate(*written, writing.elapsed());

  const Stopwatch reading;
  absl::StatusOr<uint64_t> read = run.Pass(IoRequest::Kind::kRead, *written);
  if (!read.ok()) return read.status();
  speed.read_bytes_per_second = Rate(*read, reading.elapsed());
  (*queue)->UnregisterMemory(run.memory());
  return speed;
}

absl::StatusOr<SyncSpeed> MeasureSyncs(File& file, absl::Duration duration_max,
                                       const std::function<bool()>& cancelled) {
  const AlignedBuffer page(kDirectAlignment);
  std::memset(page.data(), 0, page.size());
  std::vector<absl::Duration> times;
  const Stopwatch all;
  while (times.empty() || all.elapsed() < duration_max) {
    if (cancelled && cancelled()) return absl::CancelledError("interrupted");
    page.span()[0] = static_cast<std::byte>(times.size());
    const Stopwatch one;
    if (absl::Status written = file.WriteAt(0, page.span()); !written.ok()) return written;
    if (absl::Status synced = file.SyncData(); !synced.ok()) return synced;
    times.push_back(one.elapsed());
  }
  std::sort(times.begin(), times.end());
  return SyncSpeed{.syncs = times.size(), .median = times[times.size() / 2], .longest = times.back()};
}

}  // namespace tidemark::inspect
