#include "storage/io/queues/transfer.h"

#include <algorithm>
#include <cerrno>

#include "fmt/format.h"
#include "storage/io/check.h"
#include "storage/io/errno_status.h"

namespace tidemark::storage {
namespace {

constexpr size_t kPieceMax = size_t{1} << 30;

std::string Describe(IoRequest::Kind kind, uint64_t offset, size_t size) {
  const bool read = kind == IoRequest::Kind::kRead;
  return fmt::format("{} {} bytes at {} {}", read ? "read" : "write", size, offset, read ? "of" : "to");
}

}  // namespace

absl::Status Transfer::CheckRange() const {
  if (offset_ <= kOffsetMax && size_ <= kOffsetMax - offset_) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{} {}: the range ends past the largest file offset, {}",
                                                Describe(kind_, offset_, size_), path_, kOffsetMax));
}

size_t Transfer::next_size() const { return std::min(size_ - done_, kPieceMax); }

std::optional<absl::Status> Transfer::Advance(int64_t result) {
  if (result == -EINTR || result == -EAGAIN) return std::nullopt;
  if (result < 0) return ErrnoStatus(static_cast<int>(-result), Describe(kind_, offset_, size_), path_);
  Check(static_cast<uint64_t>(result) <= next_size(), "a transfer was answered with more bytes than it asked for");
  const size_t before = done_;
  const size_t reached = before + static_cast<size_t>(result);
  done_ = reached;
  if (done_ == size_) return absl::OkStatus();
  // A direct transfer can only go on from an aligned place; what lies behind the last one is transferred again.
  if (direct_) done_ -= done_ % kDirectAlignment;
  if (done_ == before) return Stuck(reached);
  return std::nullopt;
}

absl::Status Transfer::Stuck(size_t reached) const {
  const std::string what = Describe(kind_, offset_, size_);
  if (kind_ == IoRequest::Kind::kRead) {
    return absl::DataLossError(fmt::format("{} {}: the file ends after {} of them", what, path_, reached));
  }
  return absl::InternalError(fmt::format("{} {}: the file system took only {} of them", what, path_, reached));
}

}  // namespace tidemark::storage
