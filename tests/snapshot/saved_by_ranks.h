// Steps as one or several ranks would save them: a shard for each rank, with the parts of the tensors that it has.

#ifndef TIDEMARK_TESTS_SNAPSHOT_SAVED_BY_RANKS_H_
#define TIDEMARK_TESTS_SNAPSHOT_SAVED_BY_RANKS_H_

#include <algorithm>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "snapshot/restore/box_plan.h"
#include "storage/io/file_system.h"
#include "storage/shard/write/shard_writer.h"
#include "storage/store/store.h"
#include "tests/storage/store/test_store.h"

namespace tidemark {

// What one rank saves. Owns its bytes.
class RankContents {
 public:
  // Returns the entry's number.
  size_t Add(EntrySpec spec, std::vector<std::byte> bytes) {
    bytes_.push_back(std::move(bytes));
    contents_.entries.push_back({.spec = std::move(spec), .bytes = bytes_.back()});
    return contents_.entries.size() - 1;
  }

  // With the bytes of an earlier entry.
  void Tie(EntrySpec spec, size_t earlier) {
    contents_.entries.push_back({.spec = std::move(spec), .alias_of = static_cast<int64_t>(earlier)});
  }

  // The box of a tensor whose elements, row-major, are `whole`. A rank may have several boxes of it that do not
  // overlap.
  void AddBox(const EntrySpec& tensor, std::span<const std::byte> whole, const Box& box) {
    const uint64_t element_bytes = GetDtypeInfo(tensor.dtype).element_bytes;
    uint64_t size = element_bytes;
    for (const int64_t extent : box.extent) size *= static_cast<uint64_t>(extent);
    std::vector<std::byte> bytes(size);
    ForEachRun(WholeBox(tensor.shape), box, box, element_bytes, [&](uint64_t from, uint64_t to, uint64_t run) {
      std::ranges::copy(whole.subspan(from, run), bytes.begin() + static_cast<ptrdiff_t>(to));
    });
    EntrySpec spec = tensor;
    spec.box_offset = box.offset;
    spec.box_extent = box.extent;
    Add(std::move(spec), std::move(bytes));
  }

  // So many elements of the tensor from element `first` on, in as few boxes as there are.
  void AddRange(const EntrySpec& tensor, std::span<const std::byte> whole, uint64_t first, uint64_t count) {
    for (const Box& box : BoxesOfRange(tensor.shape, first, count)) AddBox(tensor, whole, box);
  }

  const storage::ShardContents& contents() const { return contents_; }

 private:
  std::deque<std::vector<std::byte>> bytes_;
  storage::ShardContents contents_;
};

// Commits the step. `ranks`: of all of them. The shards of every other rank have chunks of twice that size.
inline absl::Status SaveByRanks(storage::Store& store, int64_t step, const std::deque<RankContents>& ranks,
                                uint32_t chunk_bytes) {
  storage::FileSystem& files = storage::PosixFileSystem();
  absl::StatusOr<storage::ShardIdentity> identity = store.BeginAttempt(step);
  if (!identity.ok()) return identity.status();
  identity->world_size = static_cast<uint32_t>(ranks.size());
  auto writer = storage::ShardWriter::Create(files, {.chunk_bytes = chunk_bytes, .io = storage::IoQueueKind::kThreads});
  if (!writer.ok()) return writer.status();
  for (identity->rank = 0; identity->rank < identity->world_size; ++identity->rank) {
    const std::string path = store.layout().shard(step, identity->attempt, identity->rank, identity->world_size);
    const auto written = (*writer)->Write(path, *identity, ranks[identity->rank].contents());
    if (!written.ok()) return written.status();
  }
  return storage::Commit(store, *identity);
}

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_SAVED_BY_RANKS_H_
