// Decides which chunks are compressed under CodecPolicy::kThroughput and kAuto: those for which there is time.

#ifndef TIDEMARK_STORAGE_SHARD_WRITE_COMPRESSION_GOVERNOR_H_
#define TIDEMARK_STORAGE_SHARD_WRITE_COMPRESSION_GOVERNOR_H_

#include <chrono>
#include <cstdint>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"

namespace tidemark::storage {

// A chunk is compressed if what lies between the codec and the disk keeps the disk busy for longer than the chunk takes
// to encode. So the disk never waits for the codec, and time that would be spent waiting for the disk goes into fewer
// bytes: all chunks are compressed where the disk is slow, none where it takes bytes as fast as they are hashed, and
// between these the share that keeps both busy.
//
// Both rates are measured as it goes and kept from one shard to the next. The disk's is the best of the recent past: a
// thread that came late to look at what has ended must not make the disk look slow, and a rate that is too high only
// lets fewer chunks be compressed. Until it is known, none is.
//
// Thread-safe; told the time.
class CompressionGovernor {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;
  static Time Now() { return std::chrono::steady_clock::now(); }  // what it is told outside of tests

  struct Disk {
    // Bytes in flight that keep it busy, and stay in reserve. With fewer, that it is slow says nothing.
    uint64_t saturating_bytes = 0;
    uint64_t bytes_per_second_max = 0;  // it is kept from going faster than this; 0: it is not
  };

  explicit CompressionGovernor(const Disk& disk) : disk_(disk) {}

  // Begins a shard: nothing is between codec and disk.
  void Begin();

  // A codec thread takes `raw_bytes`, of one chunk or of small ones that share their fate. True: compress them.
  bool Take(uint64_t raw_bytes, Time now);
  // They have become `stored_bytes`. `duration`: of compressing `compressed_bytes` of them.
  void Encoded(uint64_t raw_bytes, uint64_t stored_bytes, uint64_t compressed_bytes, Duration duration);
  // These leave the codec's hands for the writer's.
  void HandedOut(uint64_t stored_bytes);

  void Submitted(uint64_t bytes, Time now);
  void Completed(uint64_t bytes, Time now);

 private:
  // What the disk has done since a rate was last taken of it.
  struct Window {
    double bytes = 0;
    Duration busy = {};       // with anything in flight
    Duration saturated = {};  // with enough
  };

  // Bytes per second; 0: unknown.
  double DiskRate() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void Pass(Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Disk disk_;

  absl::Mutex mutex_;
  uint64_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;    // bytes in the codec and behind it, not handed out
  uint64_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes submitted, not completed
  Time last_event_ ABSL_GUARDED_BY(mutex_);         // submission or completion
  Window window_ ABSL_GUARDED_BY(mutex_);
  double disk_rate_ ABSL_GUARDED_BY(mutex_) = 0;  // bytes per second; 0: unknown

  // Of raw bytes, in one thread; what is older counts less.
  double encoded_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  double encode_seconds_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_WRITE_COMPRESSION_GOVERNOR_H_
