// An all-gather over a store of keys and values.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/deadline.h"
#include "snapshot/ranks/rank_exchange.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"
#include "tidemark/ranks.h"

namespace tidemark {
namespace {

// Between two looks at a key. Ranks come within milliseconds of each other, or one of them is in trouble.
constexpr absl::Duration kFirstPause = absl::Microseconds(200);
constexpr absl::Duration kLongestPause = absl::Milliseconds(20);

// A message that names more ranks is not read.
constexpr size_t kNamedRanksMax = 20;

// How much longer than rank 0 the others wait, for rank 0 says who did not come. They wait for rank 0 itself, too.
constexpr absl::Duration kMargin = absl::Seconds(5);

// What rank 0 sets for all: why it has failed, or what each rank gave.
std::string EncodeGathered(const absl::Status& status, const std::vector<std::string>& given) {
  storage::ByteWriter writer;
  writer.Put<uint32_t>(static_cast<uint32_t>(given.size()));
  for (const std::string& bytes : given) {
    writer.Put<uint64_t>(bytes.size());
    writer.PutText(bytes);
  }
  writer.PutText(EncodeStatus(status));
  return std::move(writer).Take();
}

absl::StatusOr<std::vector<std::string>> DecodeGathered(std::string_view bytes) {
  storage::ByteReader reader(storage::AsBytes(bytes), "what rank 0 has gathered");
  const uint32_t count = reader.Get<uint32_t>("count");
  reader.CheckCount(count, sizeof(uint64_t), "count");
  std::vector<std::string> given;
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    given.emplace_back(reader.GetText(reader.Get<uint64_t>("length"), "bytes"));
  }
  absl::Status status;
  absl::Status decoded = DecodeStatus(reader.GetText(reader.remaining(), "status"), &status);
  if (!reader.ok()) return reader.status();
  if (!decoded.ok()) return decoded;
  if (!status.ok()) return status;
  return given;
}

class Gatherer {
 public:
  Gatherer(std::shared_ptr<RankKeys> keys, std::string prefix, int32_t rank, int32_t world_size, absl::Duration timeout)
      : keys_(std::move(keys)), prefix_(std::move(prefix)), rank_(rank), world_size_(world_size), timeout_(timeout) {}

  absl::StatusOr<std::vector<std::string>> Gather(const std::string& bytes) {
    ++round_;
    // Every rank has read what rank 0 set two rounds ago, or it would not have come to the last one.
    if (round_ > 2) keys_->Remove(rank_ == 0 ? KeyOfAll(round_ - 2) : KeyOf(round_ - 2, rank_));
    return rank_ == 0 ? Collect(bytes) : Await(bytes);
  }

 private:
  std::string KeyOf(uint64_t round, int32_t rank) const { return fmt::format("{}/{}/{}", prefix_, round, rank); }
  std::string KeyOfAll(uint64_t round) const { return fmt::format("{}/{}/all", prefix_, round); }

  // Of rank 0.
  absl::StatusOr<std::vector<std::string>> Collect(const std::string& own) {
    std::vector<std::string> given(static_cast<size_t>(world_size_));
    given[0] = own;
    std::vector<int32_t> missing;
    for (int32_t rank = 1; rank < world_size_; ++rank) missing.push_back(rank);
    const Deadline deadline = Deadline::After(timeout_);
    absl::Duration pause = kFirstPause;
    absl::Status status;
    while (status.ok()) {
      std::erase_if(missing, [&](int32_t rank) {
        if (!status.ok()) return false;
        absl::StatusOr<std::optional<std::string>> found = keys_->Find(KeyOf(round_, rank));
        status = found.status();
        if (!found.ok() || !found->has_value()) return false;
        given[static_cast<size_t>(rank)] = **std::move(found);
        return true;
      });
      if (missing.empty() || !status.ok()) break;
      if (deadline.left() <= absl::ZeroDuration()) status = Missing(std::move(missing));
      Pause(pause);
    }
    if (!status.ok()) given.clear();
    const absl::Status set = keys_->Set(KeyOfAll(round_), EncodeGathered(status, given));
    if (!status.ok()) return status;
    if (!set.ok()) return set;
    return given;
  }

  // Of the others.
  absl::StatusOr<std::vector<std::string>> Await(const std::string& own) {
    if (absl::Status set = keys_->Set(KeyOf(round_, rank_), own); !set.ok()) return set;
    const absl::Duration timeout = 2 * timeout_ + kMargin;
    const Deadline deadline = Deadline::After(timeout);
    absl::Duration pause = kFirstPause;
    for (;;) {
      const absl::StatusOr<std::optional<std::string>> found = keys_->Find(KeyOfAll(round_));
      if (!found.ok()) return found.status();
      if (found->has_value()) return DecodeGathered(**found);
      if (deadline.left() <= absl::ZeroDuration()) {
        return absl::DeadlineExceededError(
            fmt::format("rank 0 did not answer within {}", absl::FormatDuration(timeout)));
      }
      Pause(pause);
    }
  }

  absl::Status Missing(std::vector<int32_t> ranks) const {
    const size_t count = ranks.size();
    ranks.resize(std::min(count, kNamedRanksMax));
    std::string named = fmt::format("{}", fmt::join(ranks, ", "));
    if (count > ranks.size()) named += fmt::format(" and {} more", count - ranks.size());
    return absl::DeadlineExceededError(
        fmt::format("rank{} {} did not come within {}", count == 1 ? "" : "s", named, absl::FormatDuration(timeout_)));
  }

  static void Pause(absl::Duration& pause) {
    absl::SleepFor(pause);
    pause = std::min(2 * pause, kLongestPause);
  }

  const std::shared_ptr<RankKeys> keys_;
  const std::string prefix_;
  const int32_t rank_;
  const int32_t world_size_;
  const absl::Duration timeout_;
  uint64_t round_ = 0;  // the calls so far; all ranks call alike
};

}  // namespace

AllGather GatherOverKeys(std::shared_ptr<RankKeys> keys, std::string prefix, int32_t rank, int32_t world_size,
                         absl::Duration timeout) {
  // Shared, because std::function copies what it holds.
  auto gatherer = std::make_shared<Gatherer>(std::move(keys), std::move(prefix), rank, world_size, timeout);
  return [gatherer](const std::string& bytes) { return gatherer->Gather(bytes); };
}

}  // namespace tidemark
