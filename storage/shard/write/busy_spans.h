// BusySpans: when a thread was busy with one thing, in a bounded number of pieces, however long that went on.

#ifndef TIDEMARK_STORAGE_SHARD_WRITE_BUSY_SPANS_H_
#define TIDEMARK_STORAGE_SHARD_WRITE_BUSY_SPANS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tidemark::storage {

// Thread-compatible.
class BusySpans {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  struct Span {
    Time begin;
    Time end;
    Clock::duration busy = {};  // less than from begin to end where spans with a pause between them became one
    uint64_t bytes = 0;         // that were handled in it

    friend bool operator==(const Span&, const Span&) = default;
  };

  // Where there would be more, the two with the shortest pause between them become one. A screen shows a few hundred.
  static constexpr size_t kSpansMax = 64;

  static Time Now() { return Clock::now(); }

  // Preconditions: begin <= end, and begin is not before the end of the span that was added last.
  void Add(Time begin, Time end, uint64_t bytes = 0);

  // Makes one of all neighbours with a pause between them that is shorter than this.
  void JoinAcross(Clock::duration pause);

  void Clear() { spans_.clear(); }

  // Ascending; none begins before the one before it has ended.
  std::span<const Span> spans() const { return spans_; }

 private:
  std::vector<Span> spans_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_WRITE_BUSY_SPANS_H_
