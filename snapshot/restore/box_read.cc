#include "snapshot/restore/box_read.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "storage/bytes/ids.h"
#include "storage/io/printable_text.h"
#include "storage/shard/format/aligned_buffer.h"
#include "storage/shard/format/name_table.h"

namespace tidemark {
namespace {

// One call of WindowedStep::Read fills about so many bytes of the destinations.
constexpr uint64_t kReadBytesMax = 256 << 20;
// It takes about so much memory for what is read first and then copied, and as much for what is copied meanwhile.
constexpr uint64_t kScratchBytesMax = 32 << 20;
// A chunk with more pieces is read more than once.
constexpr size_t kPiecesMax = 1 << 20;

// Bytes of one stored entry that go to one place.
struct Piece {
  uint64_t from = 0;
  std::byte* to = nullptr;
  uint64_t bytes = 0;
};

// An element within which a range begins or ends.
struct Edge {
  std::array<std::byte, 16> element;  // no dtype has longer ones
  uint64_t skip = 0;
  std::span<std::byte> destination;
};

std::string NameOf(const StepContents& step, const EntrySpec& spec) {
  return fmt::format("'{}' of step {}", storage::PrintableText(spec.name), step.info.step);
}

// Reads pieces, a chunk of them at a time, so that as a rule each chunk is read once. What has to be copied is copied
// by a thread while the next pieces are read.
class PieceReader {
 public:
  // `on_read` may be null.
  PieceReader(const WindowedStep& step, const std::function<void(uint64_t)>& on_read)
      : step_(step), on_read_(on_read) {}
  ~PieceReader() { AwaitCopies(); }
  PieceReader(const PieceReader&) = delete;
  PieceReader& operator=(const PieceReader&) = delete;

  // Add the pieces of one part in ascending order. Then call EndChunk, because the next part may begin before the end
  // of this one.
  absl::Status Add(size_t entry, const Piece& piece) {
    const uint64_t chunk_bytes = step_.ChunkBytes(entry);
    for (Piece rest = piece; rest.bytes > 0;) {
      const uint64_t chunk = rest.from / chunk_bytes;
      const uint64_t bytes = std::min(rest.bytes, (chunk + 1) * chunk_bytes - rest.from);
      if (entry != entry_ || chunk != chunk_ || pieces_.size() == kPiecesMax) {
        if (absl::Status status = EndChunk(); !status.ok()) return status;
        entry_ = entry;
        chunk_ = chunk;
      }
      pieces_.push_back({rest.from, rest.to, bytes});
      rest = {rest.from + bytes, rest.to + bytes, rest.bytes - bytes};
    }
    return absl::OkStatus();
  }

  absl::Status EndChunk() {
    if (pieces_.empty()) return absl::OkStatus();
    for (const Piece& piece : pieces_) bytes_ += piece.bytes;
    if (pieces_.size() == 1) {
      AddDirect(pieces_.front());
    } else {
      AddCopied();
    }
    pieces_.clear();
    return bytes_ < kReadBytesMax && scratch_bytes_ < kScratchBytesMax ? absl::OkStatus() : Read(/*is_last=*/false);
  }

  absl::Status Finish() {
    absl::Status status = EndChunk();
    if (status.ok()) status = Read(/*is_last=*/true);
    AwaitCopies();
    return status;
  }

 private:
  struct Copy {
    const std::byte* from = nullptr;
    std::byte* to = nullptr;
    uint64_t bytes = 0;
  };
  // Memory to which chunks are read, and what is copied from there.
  struct Batch {
    void Run() {
      for (const Copy& copy : copies) std::memcpy(copy.to, copy.from, copy.bytes);
      copies.clear();
      used = 0;
      if (held_bytes <= kScratchBytesMax) return;
      memory.clear();
      held_bytes = 0;
    }
    std::vector<storage::AlignedBuffer> memory;
    size_t used = 0;          // so many of them
    uint64_t held_bytes = 0;  // of all of them
    std::vector<Copy> copies;
  };

  // If a chunk has only one piece, that is decoded to where it belongs.
  void AddDirect(const Piece& piece) {
    if (!windows_.empty()) {
      StepReader::Window& last = windows_.back();
      if (last.entry == entry_ && last.offset + last.destination.size() == piece.from &&
          last.destination.data() + last.destination.size() == piece.to) {
        last.destination = {last.destination.data(), last.destination.size() + piece.bytes};
        return;
      }
    }
    windows_.push_back({.entry = entry_, .offset = piece.from, .destination = {piece.to, piece.bytes}});
  }

  // If a chunk has several pieces, the bytes from the first to the last one are read to our memory, and the pieces are
  // copied from there.
  void AddCopied() {
    const uint64_t begin = pieces_.front().from;
    const std::span<std::byte> scratch = Scratch(pieces_.back().from + pieces_.back().bytes - begin);
    scratch_bytes_ += storage::AlignUp(scratch.size()) + pieces_.size() * sizeof(Copy);
    windows_.push_back({.entry = entry_, .offset = begin, .destination = scratch});
    for (const Piece& piece : pieces_) {
      batch().copies.push_back({scratch.data() + (piece.from - begin), piece.to, piece.bytes});
    }
  }

  // Memory of earlier reads is used again: a page that is touched for the first time costs more than the copy. It is
  // aligned, so raw chunks are read to it directly.
  std::span<std::byte> Scratch(size_t bytes) {
    Batch& to = batch();
    if (to.used == to.memory.size()) to.memory.emplace_back();
    storage::AlignedBuffer& buffer = to.memory[to.used];
    if (buffer.size() < bytes) {
      to.held_bytes += storage::AlignUp(bytes) - buffer.size();
      buffer = storage::AlignedBuffer(bytes);
    }
    ++to.used;
    return buffer.span().first(bytes);
  }

  absl::Status Read(bool is_last) {
    if (windows_.empty()) return absl::OkStatus();
    if (absl::Status status = step_.Read(windows_); !status.ok()) return status;
    AwaitCopies();
    StartCopies(is_last);
    windows_.clear();
    scratch_bytes_ = 0;
    const uint64_t read = std::exchange(bytes_, 0);
    if (on_read_) on_read_(read);
    return absl::OkStatus();
  }

  // Of the batch at hand; the next pieces go to the other one.
  void StartCopies(bool is_last) {
    Batch& read = batch();
    current_ = 1 - current_;
    if (read.copies.empty()) return;
    if (is_last) return read.Run();
    try {
      copying_ = std::thread([&read] { read.Run(); });
    } catch (const std::system_error&) {  // the system gives no thread
      read.Run();
    }
  }
  void AwaitCopies() {
    if (copying_.joinable()) copying_.join();
  }
  Batch& batch() { return batches_[current_]; }

  const WindowedStep& step_;
  const std::function<void(uint64_t)>& on_read_;
  // The chunk whose pieces are being collected.
  size_t entry_ = 0;
  uint64_t chunk_ = 0;
  std::vector<Piece> pieces_;
  // What is read next.
  std::vector<StepReader::Window> windows_;
  std::array<Batch, 2> batches_;
  size_t current_ = 0;
  std::thread copying_;  // of the other batch
  uint64_t bytes_ = 0;
  uint64_t scratch_bytes_ = 0;
};

EntrySpec WholeOf(EntrySpec spec) {
  spec.box_offset.clear();
  spec.box_extent.clear();
  return spec;
}

// What keeps the entry from being a part of the whole; empty: nothing.
std::string Disagreement(const StepContents& step, size_t entry, const EntryParts& parts) {
  const EntrySpec& spec = step.entries[entry].spec;
  if (spec.kind != EntryKind::kTensor && HeldBox(spec) != WholeBox(spec.shape)) {
    return fmt::format("rank {} has saved {} of it, which is no tensor", step.entries[entry].rank,
                       DescribeBox(HeldBox(spec)));
  }
  if (spec.kind == parts.spec.kind && spec.dtype == parts.spec.dtype && spec.shape == parts.spec.shape) return "";
  return fmt::format("it is {} in the shard of rank {} and {} in that of rank {}", DescribeEntry(parts.spec),
                     step.entries[parts.stored.front()].rank, DescribeEntry(WholeOf(spec)), step.entries[entry].rank);
}

// A tensor is made of the parts of all ranks, a value is that of the first one.
void AddPart(const StepContents& step, size_t entry, EntryParts& parts) {
  const EntrySpec& spec = step.entries[entry].spec;
  const bool is_first = parts.stored.empty();
  if (is_first) {
    parts.spec = WholeOf(spec);
    // It is valid: the shard's reader has looked at this shape.
    ValidateEntry(parts.spec, &parts.bytes).IgnoreError();
  }
  if (!is_first && spec.kind != EntryKind::kTensor && parts.spec.kind != EntryKind::kTensor) return;
  if (std::string why = Disagreement(step, entry, parts); !why.empty()) {
    parts.problem.Update(absl::DataLossError(fmt::format("{}: {}", NameOf(step, spec), why)));
    if (!is_first) return;
  }
  parts.stored.push_back(entry);
  parts.boxes.push_back(HeldBox(spec));
}

absl::StatusOr<BoxPlan> PlanPart(const StepContents& step, const EntryParts& parts, const Box& box) {
  if (!parts.problem.ok()) return parts.problem;
  absl::StatusOr<BoxPlan> plan = PlanBox(box, parts.boxes);
  if (plan.ok() && !plan->missing.empty()) {
    return absl::DataLossError(fmt::format("{} is {}, and no rank has saved {} of it", NameOf(step, parts.spec),
                                           DescribeEntry(parts.spec), DescribeBox(plan->missing.front())));
  }
  return plan;
}

}  // namespace

std::vector<EntryParts> JoinEntries(const StepContents& step) {
  std::vector<EntryParts> joined;
  storage::NameMap<size_t> by_name;
  for (size_t i = 0; i < step.entries.size(); ++i) {
    const auto [place, is_new] = by_name.Add(step.entries[i].spec.name, joined.size());
    if (is_new) joined.emplace_back();
    AddPart(step, i, joined[*place]);
  }
  return joined;
}

absl::Status CheckIsThere(const StepContents& step, const EntryParts& parts, const Box& box) {
  return PlanPart(step, parts, box).status();
}

std::string DigestOfParts(const StepContents& step, const EntryParts& parts) {
  std::string digests = DescribeBox(WholeBox(parts.spec.shape));
  for (size_t i = 0; i < parts.stored.size(); ++i) {
    digests += DescribeBox(parts.boxes[i]) + step.entries[parts.stored[i]].digest;
  }
  return storage::ToHex(storage::DigestOf(std::as_bytes(std::span(digests))).bytes);
}

absl::Status ReadBoxes(const WindowedStep& step, std::span<const BoxRead> reads,
                       const std::function<void(uint64_t)>& on_read) {
  PieceReader reader(step, on_read);
  for (const BoxRead& read : reads) {
    const EntryParts& parts = *read.parts;
    const absl::StatusOr<BoxPlan> plan = PlanPart(step.Contents(), parts, read.box);
    if (!plan.ok()) return plan.status();
    const uint64_t element_bytes = GetDtypeInfo(parts.spec.dtype).element_bytes;
    absl::Status status;
    for (const BoxPart& part : plan->parts) {
      ForEachRun(parts.boxes[part.source], read.box, part.box, element_bytes,
                 [&](uint64_t from, uint64_t to, uint64_t bytes) {
                   if (!status.ok()) return;
                   status = reader.Add(parts.stored[part.source], {from, read.destination.data() + to, bytes});
                 });
      if (status.ok()) status = reader.EndChunk();
      if (!status.ok()) return status;
    }
  }
  return reader.Finish();
}

absl::Status ReadRanges(const WindowedStep& step, std::span<const RangeRead> reads,
                        const std::function<void(uint64_t)>& on_read) {
  std::vector<BoxRead> boxes;
  std::deque<Edge> edges;
  std::vector<BoxRead> boxes_of_edges;
  uint64_t bytes_of_edges = 0;
  for (const RangeRead& read : reads) {
    const Box whole = read.box.value_or(WholeBox(read.parts->spec.shape));
    // The boxes of the entry that hold these elements of `whole`.
    const auto boxes_of = [&](uint64_t first, uint64_t count) {
      std::vector<Box> found = BoxesOfRange(whole.extent, first, count);
      for (Box& box : found) {
        for (size_t d = 0; d < box.offset.size(); ++d) box.offset[d] += whole.offset[d];
      }
      return found;
    };
    const uint64_t element_bytes = GetDtypeInfo(read.parts->spec.dtype).element_bytes;
    std::span<std::byte> rest = read.destination;
    uint64_t offset = read.offset;
    const auto read_edge = [&](uint64_t bytes) {
      Edge& edge = edges.emplace_back();
      edge.skip = offset % element_bytes;
      edge.destination = rest.first(bytes);
      boxes_of_edges.push_back({read.parts, boxes_of(offset / element_bytes, 1).front(),
                                std::span<std::byte>(edge.element).first(element_bytes)});
      bytes_of_edges += bytes;
      rest = rest.subspan(bytes);
      offset += bytes;
    };
    if (!rest.empty() && offset % element_bytes != 0) {
      read_edge(std::min<uint64_t>(rest.size(), element_bytes - offset % element_bytes));
    }
    const uint64_t elements = rest.size() / element_bytes;
    for (Box& box : boxes_of(offset / element_bytes, elements)) {
      uint64_t bytes = element_bytes;
      for (const int64_t extent : box.extent) bytes *= static_cast<uint64_t>(extent);
      boxes.push_back({read.parts, std::move(box), rest.first(bytes)});
      rest = rest.subspan(bytes);
      offset += bytes;
    }
    if (!rest.empty()) read_edge(rest.size());
  }
  absl::Status status = ReadBoxes(step, boxes, on_read);
  if (status.ok()) status = ReadBoxes(step, boxes_of_edges);
  if (!status.ok()) return status;
  for (const Edge& edge : edges) {
    std::memcpy(edge.destination.data(), edge.element.data() + edge.skip, edge.destination.size());
  }
  if (on_read && bytes_of_edges > 0) on_read(bytes_of_edges);
  return absl::OkStatus();
}

}  // namespace tidemark
