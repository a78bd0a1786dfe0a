// How long each of a sequence of transfers has to wait, so that together they keep to a rate.

#ifndef TIDEMARK_STORAGE_IO_RATE_LIMITER_H_
#define TIDEMARK_STORAGE_IO_RATE_LIMITER_H_

#include <chrono>
#include <cstdint>

namespace tidemark::storage {

// A token bucket that holds what may be transferred in kBurst: after a pause, that much goes at once. A transfer that
// is larger than the bucket waits only for those before it. Told the time; thread-compatible.
class RateLimiter {
 public:
  using Time = std::chrono::steady_clock::time_point;
  using Duration = std::chrono::steady_clock::duration;

  static constexpr Duration kBurst = std::chrono::milliseconds(100);

  // `bytes_per_second` is 1 or more.
  explicit RateLimiter(uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  // A transfer of `bytes` is to begin at `now`. Returns how much later it may. `now` never goes back.
  Duration Reserve(uint64_t bytes, Time now);

 private:
  const uint64_t bytes_per_second_;
  // When all that was reserved will have been transferred at exactly the rate.
  Time paid_until_ = Time::min();
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_RATE_LIMITER_H_
