#include "tools/checkpoint_inspect/tensors/tensor_stream.h"

#include <algorithm>
#include <future>
#include <optional>
#include <utility>

#include "storage/shard/format/aligned_buffer.h"
#include "storage/shard/read/range_fetcher.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"

namespace tidemark::inspect {
namespace {

const StoredEntry& EntryOf(const Lane& lane, size_t item) { return lane.source->entries()[lane.entries[item]]; }

uint64_t ElementBytes(const Lane& lane, size_t item) {
  return GetDtypeInfo(EntryOf(lane, item).spec.dtype).element_bytes;
}

uint64_t ElementsOf(std::span<const Lane> lanes, size_t item) {
  return EntryOf(lanes[0], item).bytes / ElementBytes(lanes[0], item);
}

// A buffer for each lane.
using Buffers = std::vector<storage::AlignedBuffer>;

// Blocks whose bytes are read together, and the memory that they lie in.
struct Batch {
  std::vector<TensorBlock> blocks;
  Buffers memory;
  std::vector<std::vector<StepReader::Window>> reads;  // for each lane
};

// Cuts the items into batches.
class Planner {
 public:
  explicit Planner(std::span<const Lane> lanes) : lanes_(lanes) {}

  // `memory`: of an earlier batch, to be used again, or empty. The kernel clears every page that it gives out.
  std::optional<Batch> Next(Buffers memory) {
    Batch batch;
    uint64_t room = kStreamBytes;
    while (item_ < lanes_[0].entries.size()) {
      const uint64_t left = ElementsOf(lanes_, item_) - next_element_;
      uint64_t bytes_each = 0;  // of one element, in all lanes
      uint64_t step = 1;        // elements between places where no lane has a chunk cut in two
      for (const Lane& lane : lanes_) {
        bytes_each += ElementBytes(lane, item_);
        step = std::max(step, lane.source->chunk_bytes() / ElementBytes(lane, item_));
      }
      uint64_t elements = std::min(left, room / bytes_each);
      if (elements < left && elements < step && !batch.blocks.empty()) break;
      // A chunk that is too large is cut in two, and decoded for each part.
      if (elements < left && elements > step) elements -= elements % step;
      TensorBlock block{.item = item_, .first_element = next_element_, .elements = elements, .last = elements == left};
      batch.blocks.push_back(std::move(block));
      room -= std::min(room, elements * bytes_each);
      next_element_ += elements;
      if (elements < left) break;
      ++item_;
      next_element_ = 0;
      if (batch.blocks.size() == kBlocksMax) break;
    }
    if (batch.blocks.empty()) return std::nullopt;
    batch.memory = std::move(memory);
    Place(&batch);
    return batch;
  }

 private:
  // Of entries of a few bytes each.
  static constexpr size_t kBlocksMax = 1 << 14;

  // Where a block may lie: numbers at their own alignment, and what is large where a disk may put it.
  static uint64_t AlignBlock(uint64_t offset, uint64_t bytes) {
    const uint64_t alignment = bytes >= storage::kPlacedBytesMin ? storage::kDirectAlignment : kBlockAlignment;
    return (offset + alignment - 1) / alignment * alignment;
  }
  static constexpr uint64_t kBlockAlignment = 16;

  void Place(Batch* batch) const {
    batch->memory.resize(lanes_.size());
    for (size_t l = 0; l < lanes_.size(); ++l) {
      std::vector<uint64_t> offsets;
      uint64_t end = 0;
      for (const TensorBlock& block : batch->blocks) {
        const uint64_t bytes = block.elements * ElementBytes(lanes_[l], block.item);
        offsets.push_back(AlignBlock(end, bytes));
        end = offsets.back() + bytes;
      }
      if (batch->memory[l].size() < end) {
        batch->memory[l] = {};  // gone before more is taken
        batch->memory[l] = storage::AlignedBuffer(end);
      }
      std::vector<StepReader::Window>& reads = batch->reads.emplace_back();
      for (size_t i = 0; i < offsets.size(); ++i) {
        TensorBlock& block = batch->blocks[i];
        const uint64_t element_bytes = ElementBytes(lanes_[l], block.item);
        const std::span<std::byte> destination =
            batch->memory[l].span().subspan(offsets[i], block.elements * element_bytes);
        block.bytes.push_back(destination);
        if (destination.empty()) continue;
        reads.push_back({.entry = lanes_[l].entries[block.item],
                         .offset = block.first_element * element_bytes,
                         .destination = destination});
      }
    }
  }

  const std::span<const Lane> lanes_;
  size_t item_ = 0;
  uint64_t next_element_ = 0;
};

absl::Status ReadBatch(std::span<const Lane> lanes, const Batch& batch) {
  for (size_t l = 0; l < lanes.size(); ++l) {
    if (batch.reads[l].empty()) continue;
    if (absl::Status status = lanes[l].source->Read(batch.reads[l]); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StreamTensors(std::span<const Lane> lanes,
                           absl::FunctionRef<absl::Status(const TensorBlock& block)> visit) {
  Planner planner(lanes);
  Buffers spare;
  std::optional<Batch> batch = planner.Next({});
  absl::Status read = batch ? ReadBatch(lanes, *batch) : absl::OkStatus();
  while (batch) {
    if (!read.ok()) return read;
    std::optional<Batch> next = planner.Next(std::move(spare));
    // Waits in its destructor, so nothing reads on when this has returned.
    std::future<absl::Status> reading;
    if (next) reading = std::async(std::launch::async, [&] { return ReadBatch(lanes, *next); });
    for (const TensorBlock& block : batch->blocks) {
      if (IsInterrupted()) return absl::CancelledError("interrupted");
      if (absl::Status status = visit(block); !status.ok()) return status;
    }
    if (next) read = reading.get();
    spare = std::move(batch->memory);
    batch = std::move(next);
  }
  return absl::OkStatus();
}

}  // namespace tidemark::inspect
