// CompressionTime: how long a save may compress everything (Compression::kAuto).

#ifndef TIDEMARK_SNAPSHOT_CONSUMERS_COMPRESSION_TIME_H_
#define TIDEMARK_SNAPSHOT_CONSUMERS_COMPRESSION_TIME_H_

#include <algorithm>
#include <cstddef>
#include <deque>

#include "absl/time/time.h"
#include "storage/shard/write/busy_spans.h"

namespace tidemark {

// For half the time to the next save, so that it has ended well before that one begins. What is taken for that time is
// the shortest of the last few between two saves: trainers that save after each epoch as well have short ones among the
// long. The first save has none. Thread-compatible.
class CompressionTime {
 public:
  using Time = storage::BusySpans::Time;

  // `longest`: no save has more time.
  explicit CompressionTime(absl::Duration longest) : longest_(longest) {}

  // Until when the save compresses everything that was called then; `called`: not at all. Each save once, in order.
  Time EndFor(Time called) {
    calls_.push_back(called);
    if (calls_.size() > kIntervals + 1) calls_.pop_front();
    if (calls_.size() == 1) return called;
    absl::Duration shortest = longest_ * 2;
    for (size_t i = 1; i < calls_.size(); ++i) {
      shortest = std::min(shortest, absl::FromChrono(calls_[i] - calls_[i - 1]));
    }
    return called + absl::ToChronoNanoseconds(shortest / 2);
  }

 private:
  static constexpr size_t kIntervals = 3;

  const absl::Duration longest_;
  std::deque<Time> calls_;  // of the last saves
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_CONSUMERS_COMPRESSION_TIME_H_
