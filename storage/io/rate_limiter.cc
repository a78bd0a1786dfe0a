#include "storage/io/rate_limiter.h"

#include <algorithm>

namespace tidemark::storage {

RateLimiter::Duration RateLimiter::Reserve(uint64_t bytes, Time now) {
  const Time start = std::max(paid_until_, now - kBurst);
  const std::chrono::duration<double> cost(static_cast<double>(bytes) / static_cast<double>(bytes_per_second_));
  paid_until_ = start + std::chrono::duration_cast<Duration>(cost);
  return std::max(start - now, Duration::zero());
}

}  // namespace tidemark::storage
