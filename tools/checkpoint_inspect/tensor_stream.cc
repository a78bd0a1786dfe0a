#include "tools/checkpoint_inspect/tensor_stream.h"

#include <algorithm>
#include <future>
#include <memory>
#include <optional>

#include "tools/checkpoint_inspect/interrupt.h"

namespace tidemark::inspect {
namespace {

const StoredEntry& EntryOf(const Lane& lane, size_t item) { return lane.source->entries()[lane.entries[item]]; }

uint64_t ElementBytes(const Lane& lane, size_t item) {
  return GetDtypeInfo(EntryOf(lane, item).spec.dtype).element_bytes;
}

uint64_t ElementsOf(std::span<const Lane> lanes, size_t item) {
  return EntryOf(lanes[0], item).bytes / ElementBytes(lanes[0], item);
}

// Blocks whose bytes are read together, and the memory that they lie in.
struct Batch {
  std::vector<TensorBlock> blocks;
  std::vector<std::unique_ptr<std::byte[]>> memory;    // for each lane
  std::vector<std::vector<StepReader::Window>> reads;  // for each lane
};

// Cuts the items into batches.
class Planner {
 public:
  explicit Planner(std::span<const Lane> lanes) : lanes_(lanes) {}

  std::optional<Batch> Next() {
    Batch batch;
    std::vector<uint64_t> lane_bytes(lanes_.size());
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
      if (elements < left) elements -= elements % step;
      if (elements == 0 && left > 0) {
        if (!batch.blocks.empty()) break;
        elements = std::min(left, step);
      }
      TensorBlock block{.item = item_, .first_element = next_element_, .elements = elements, .last = elements == left};
      for (size_t l = 0; l < lanes_.size(); ++l) lane_bytes[l] += elements * ElementBytes(lanes_[l], item_);
      batch.blocks.push_back(std::move(block));
      room -= std::min(room, elements * bytes_each);
      next_element_ += elements;
      if (elements < left) break;
      ++item_;
      next_element_ = 0;
      if (batch.blocks.size() == kBlocksMax) break;
    }
    if (batch.blocks.empty()) return std::nullopt;
    Place(lane_bytes, &batch);
    return batch;
  }

 private:
  // Of entries of a few bytes each.
  static constexpr size_t kBlocksMax = 1 << 16;

  void Place(const std::vector<uint64_t>& lane_bytes, Batch* batch) const {
    for (size_t l = 0; l < lanes_.size(); ++l) {
      batch->memory.push_back(std::make_unique_for_overwrite<std::byte[]>(lane_bytes[l]));
      std::byte* place = batch->memory.back().get();
      std::vector<StepReader::Window>& reads = batch->reads.emplace_back();
      for (TensorBlock& block : batch->blocks) {
        const uint64_t element_bytes = ElementBytes(lanes_[l], block.item);
        const std::span<std::byte> destination(place, block.elements * element_bytes);
        block.bytes.push_back(destination);
        place += destination.size();
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
  std::optional<Batch> batch = planner.Next();
  absl::Status read = batch ? ReadBatch(lanes, *batch) : absl::OkStatus();
  while (batch) {
    if (!read.ok()) return read;
    std::optional<Batch> next = planner.Next();
    // Waits in its destructor, so nothing reads on when this has returned.
    std::future<absl::Status> reading;
    if (next) reading = std::async(std::launch::async, [&] { return ReadBatch(lanes, *next); });
    for (const TensorBlock& block : batch->blocks) {
      if (IsInterrupted()) return absl::CancelledError("interrupted");
      if (absl::Status status = visit(block); !status.ok()) return status;
    }
    if (next) read = reading.get();
    batch = std::move(next);
  }
  return absl::OkStatus();
}

}  // namespace tidemark::inspect
