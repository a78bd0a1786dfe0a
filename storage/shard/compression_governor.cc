#include "storage/shard/compression_governor.h"

#include <algorithm>

namespace tidemark::storage {
namespace {

// What a rate is measured over, and the least that it takes to believe it.
constexpr double kWindowBytes = 64 << 20;
constexpr double kKnownBytes = 4 << 20;

// What compressing is taken to run at before any was: the order of magnitude of one core.
constexpr double kGuessedEncodeRate = 1e9;

double ToSeconds(CompressionGovernor::Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void CompressionGovernor::Rate::Add(double more_bytes, double more_seconds) {
  bytes += more_bytes;
  seconds += more_seconds;
  if (bytes > kWindowBytes) {
    bytes /= 2;
    seconds /= 2;
  }
}

void CompressionGovernor::Begin() {
  absl::MutexLock lock(&mutex_);
  waiting_ = 0;
  in_flight_ = 0;
}

bool CompressionGovernor::Take(uint64_t raw_bytes) {
  absl::MutexLock lock(&mutex_);
  const double disk_rate = DiskRate();
  const double encode_rate = encode_rate_.bytes > 0 ? encode_rate_.bytes_per_second() : kGuessedEncodeRate;
  // Where a cap holds the disk back, it is never saturated and needs no reserve.
  const bool capped = disk_.bytes_per_second_max > 0 && disk_rate >= static_cast<double>(disk_.bytes_per_second_max);
  const uint64_t reserve = capped ? 0 : disk_.saturating_bytes;
  const uint64_t backlog = waiting_ + in_flight_;
  waiting_ += raw_bytes;
  if (disk_rate == 0 || backlog <= reserve) return false;
  return static_cast<double>(backlog - reserve) / disk_rate > static_cast<double>(raw_bytes) / encode_rate;
}

void CompressionGovernor::Encoded(uint64_t raw_bytes, uint64_t stored_bytes, uint64_t compressed_bytes,
                                  Duration duration) {
  absl::MutexLock lock(&mutex_);
  waiting_ -= raw_bytes - stored_bytes;
  if (compressed_bytes > 0) encode_rate_.Add(static_cast<double>(compressed_bytes), ToSeconds(duration));
}

void CompressionGovernor::HandedOut(uint64_t stored_bytes) {
  absl::MutexLock lock(&mutex_);
  waiting_ -= stored_bytes;
}

void CompressionGovernor::Submitted(uint64_t bytes, Time now) {
  absl::MutexLock lock(&mutex_);
  Pass(now);
  in_flight_ += bytes;
}

void CompressionGovernor::Completed(uint64_t bytes, Time now) {
  absl::MutexLock lock(&mutex_);
  const bool saturated = in_flight_ >= disk_.saturating_bytes;
  Pass(now);
  in_flight_ -= bytes;
  if (saturated) disk_rate_.Add(static_cast<double>(bytes), 0);
}

double CompressionGovernor::DiskRate() const {
  const auto cap = static_cast<double>(disk_.bytes_per_second_max);
  if (disk_rate_.bytes < kKnownBytes) return cap;
  const double measured = disk_rate_.bytes_per_second();
  return cap > 0 ? std::min(cap, measured) : measured;
}

void CompressionGovernor::Pass(Time now) {
  if (in_flight_ >= disk_.saturating_bytes) disk_rate_.Add(0, ToSeconds(now - last_event_));
  last_event_ = now;
}

}  // namespace tidemark::storage
