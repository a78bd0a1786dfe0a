#include "storage/shard/write/compression_governor.h"

#include <algorithm>

namespace tidemark::storage {
namespace {

// What it takes to believe a rate of the disk: enough time for a thread that is late to be forgiven, enough bytes for a
// slow disk to have completed several writes.
constexpr CompressionGovernor::Duration kWindow = std::chrono::milliseconds(20);
constexpr double kWindowBytes = 4 << 20;
// How fast the rate follows a disk that has become slower.
constexpr double kDecay = 0.1;

// How far back the codec's rate goes, and what it is taken to be before anything was compressed: the order of magnitude
// of one core.
constexpr double kEncodedBytesMax = 64 << 20;
constexpr double kGuessedEncodeRate = 1e9;

double ToSeconds(CompressionGovernor::Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void CompressionGovernor::Begin() {
  absl::MutexLock lock(&mutex_);
  waiting_ = 0;
  in_flight_ = 0;
  window_ = {};
}

bool CompressionGovernor::Take(uint64_t raw_bytes, Time now) {
  absl::MutexLock lock(&mutex_);
  const double disk_rate = DiskRate();
  const double encode_rate = encode_seconds_ > 0 ? encoded_bytes_ / encode_seconds_ : kGuessedEncodeRate;
  // What has ended since somebody looked is in flight no more.
  const double unseen = disk_rate * ToSeconds(std::max(now - last_event_, Duration::zero()));
  const double in_flight = std::max(static_cast<double>(in_flight_) - unseen, 0.0);
  const double backlog = in_flight + static_cast<double>(waiting_);
  waiting_ += raw_bytes;
  // Where it is the cap that holds the disk back, it needs no reserve.
  const bool capped = disk_.bytes_per_second_max > 0 && disk_rate >= static_cast<double>(disk_.bytes_per_second_max);
  const double reserve = capped ? 0 : static_cast<double>(disk_.saturating_bytes);
  if (disk_rate == 0) return false;
  return (backlog - reserve) / disk_rate > static_cast<double>(raw_bytes) / encode_rate;
}

void CompressionGovernor::Encoded(uint64_t raw_bytes, uint64_t stored_bytes, uint64_t compressed_bytes,
                                  Duration duration) {
  absl::MutexLock lock(&mutex_);
  waiting_ -= raw_bytes - stored_bytes;
  if (compressed_bytes == 0) return;
  encoded_bytes_ += static_cast<double>(compressed_bytes);
  encode_seconds_ += ToSeconds(duration);
  if (encoded_bytes_ > kEncodedBytesMax) {
    encoded_bytes_ /= 2;
    encode_seconds_ /= 2;
  }
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
  Pass(now);
  in_flight_ -= bytes;
  window_.bytes += static_cast<double>(bytes);
  if (window_.busy < kWindow || window_.bytes < kWindowBytes) return;
  const double rate = window_.bytes / ToSeconds(window_.busy);
  const bool was_saturated = window_.saturated > window_.busy / 10 * 9;
  if (rate > disk_rate_) {
    disk_rate_ = rate;
  } else if (was_saturated) {
    disk_rate_ += kDecay * (rate - disk_rate_);
  }
  window_ = {};
}

double CompressionGovernor::DiskRate() const {
  const auto cap = static_cast<double>(disk_.bytes_per_second_max);
  if (disk_rate_ == 0 || cap == 0) return std::max(disk_rate_, cap);
  return std::min(disk_rate_, cap);
}

void CompressionGovernor::Pass(Time now) {
  const Duration passed = now - last_event_;
  last_event_ = now;
  if (in_flight_ > 0) window_.busy += passed;
  if (in_flight_ >= disk_.saturating_bytes) window_.saturated += passed;
}

}  // namespace tidemark::storage
