#include "snapshot/restore/destination_plan.h"

#include <algorithm>
#include <new>
#include <tuple>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "storage/io/printable_text.h"

namespace tidemark {
namespace {

// Addresses as numbers, because pointers to unrelated objects have no order.
uintptr_t BeginOf(const Destination& destination) { return reinterpret_cast<uintptr_t>(destination.memory.data()); }
uintptr_t EndOf(const Destination& destination) { return BeginOf(destination) + destination.memory.size(); }

// A part of a destination's memory.
struct Part {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  size_t destination = 0;
};

class Planner {
 public:
  Planner(const SavedBytes& saved, std::span<const Destination> destinations, uint64_t bounce_bytes_max)
      : saved_(saved),
        destinations_(destinations),
        // Two buffers: the bytes that a destination is to hold, and the bytes that the pieces put there.
        window_bytes_(std::max<uint64_t>(1, bounce_bytes_max / 2)) {}

  absl::Status Sweep();
  absl::Status Compare() const;
  std::vector<DestinationRead> Reads() const;

 private:
  absl::Status CompareBatch(std::span<const Part> batch) const;
  // The part of it that is to be at [begin, end).
  storage::EntryRead Window(size_t destination, uintptr_t begin, std::span<std::byte> into) const {
    return {.entry = destinations_[destination].saved,
            .destination = into,
            .begin = begin - BeginOf(destinations_[destination])};
  }
  // The piece that has this address. Precondition: one does.
  std::vector<Part>::const_iterator PieceAt(uintptr_t address) const {
    return std::prev(std::upper_bound(pieces_.begin(), pieces_.end(), address,
                                      [](uintptr_t value, const Part& piece) { return value < piece.begin; }));
  }
  absl::Status Differ(size_t one, size_t other) const {
    return absl::InvalidArgumentError(fmt::format(
        "the checkpoint does not fit the state: '{}' and '{}' share memory in the state, but they differ in the "
        "checkpoint",
        storage::PrintableText(destinations_[one].name), storage::PrintableText(destinations_[other].name)));
  }

  const SavedBytes& saved_;
  const std::span<const Destination> destinations_;
  const uint64_t window_bytes_;
  std::vector<Part> pieces_;  // read to: disjoint, ascending, and together the memory of all destinations
  std::vector<Part> shared_;  // parts that lie in pieces of other destinations, cut into window_bytes_ or less
};

// Along the addresses, each destination gets as its piece the bytes that no earlier destination has.
absl::Status Planner::Sweep() {
  std::vector<size_t> order;
  order.reserve(destinations_.size());
  for (size_t i = 0; i < destinations_.size(); ++i) {
    if (!destinations_[i].memory.empty()) order.push_back(i);
  }
  // If several begin at one address, the largest comes first; equal ones follow each other.
  const auto place = [&](size_t i) {
    return std::tuple(BeginOf(destinations_[i]), ~destinations_[i].memory.size(), i);
  };
  const auto comes_before = [&](size_t a, size_t b) { return place(a) < place(b); };
  if (!std::is_sorted(order.begin(), order.end(), comes_before)) std::sort(order.begin(), order.end(), comes_before);
  pieces_.reserve(order.size());
  uintptr_t covered_end = 0;
  for (size_t k = 0; k < order.size(); ++k) {
    const size_t i = order[k];
    const Destination& destination = destinations_[i];
    if (k > 0) {
      const Destination& before = destinations_[order[k - 1]];
      if (before.memory.data() == destination.memory.data() && before.memory.size() == destination.memory.size()) {
        if (!saved_.AreSame(before.saved, destination.saved)) return Differ(order[k - 1], i);
        continue;
      }
    }
    const uintptr_t shared_end = std::min(EndOf(destination), covered_end);
    for (uintptr_t begin = BeginOf(destination); begin < shared_end;) {
      const uintptr_t end = begin + std::min<uint64_t>(shared_end - begin, window_bytes_);
      shared_.push_back({begin, end, i});
      begin = end;
    }
    if (EndOf(destination) <= covered_end) continue;
    pieces_.push_back({std::max(BeginOf(destination), covered_end), EndOf(destination), i});
    covered_end = EndOf(destination);
  }
  return absl::OkStatus();
}

absl::Status Planner::Compare() const {
  for (size_t begin = 0; begin < shared_.size();) {
    size_t end = begin;
    uint64_t bytes = 0;
    do {
      bytes += shared_[end].end - shared_[end].begin;
      ++end;
    } while (end < shared_.size() && bytes + (shared_[end].end - shared_[end].begin) <= window_bytes_);
    if (absl::Status status = CompareBatch({shared_.data() + begin, end - begin}); !status.ok()) return status;
    begin = end;
  }
  return absl::OkStatus();
}

absl::Status Planner::CompareBatch(std::span<const Part> batch) const {
  uint64_t bytes = 0;
  for (const Part& shared : batch) bytes += shared.end - shared.begin;
  std::vector<std::byte> own;
  std::vector<std::byte> others;
  try {
    own.resize(bytes);
    others.resize(bytes);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(
        fmt::format("no memory to compare {} bytes of tensors that share memory", bytes));
  }
  std::vector<storage::EntryRead> reads;
  uint64_t offset = 0;  // in the buffers
  for (const Part& shared : batch) {
    const uint64_t size = shared.end - shared.begin;
    reads.push_back(Window(shared.destination, shared.begin, std::span(own).subspan(offset, size)));
    for (auto piece = PieceAt(shared.begin); piece != pieces_.end() && piece->begin < shared.end; ++piece) {
      const uintptr_t begin = std::max(piece->begin, shared.begin);
      const uintptr_t end = std::min(piece->end, shared.end);
      reads.push_back(
          Window(piece->destination, begin, std::span(others).subspan(offset + (begin - shared.begin), end - begin)));
    }
    offset += size;
  }
  if (absl::Status status = saved_.Read(reads); !status.ok()) return status;
  const auto differing = std::mismatch(own.begin(), own.end(), others.begin()).first;
  if (differing == own.end()) return absl::OkStatus();
  auto position = static_cast<uint64_t>(differing - own.begin());
  const Part* shared = batch.data();
  for (; position >= shared->end - shared->begin; ++shared) position -= shared->end - shared->begin;
  return Differ(PieceAt(shared->begin + position)->destination, shared->destination);
}

std::vector<DestinationRead> Planner::Reads() const {
  std::vector<DestinationRead> reads;
  reads.reserve(pieces_.size());
  for (const Part& piece : pieces_) {
    const std::span<std::byte> memory = destinations_[piece.destination].memory;
    const size_t skip = piece.begin - BeginOf(destinations_[piece.destination]);
    storage::EntryRead read = Window(piece.destination, piece.begin, memory.subspan(skip, piece.end - piece.begin));
    // If it is read as a whole, its size is compared with the entry's.
    if (read.destination.size() == memory.size()) read.begin.reset();
    reads.push_back({piece.destination, read});
  }
  return reads;
}

}  // namespace

absl::StatusOr<std::vector<DestinationRead>> PlanDestinations(const SavedBytes& saved,
                                                              std::span<const Destination> destinations,
                                                              uint64_t bounce_bytes_max) {
  Planner planner(saved, destinations, bounce_bytes_max);
  if (absl::Status status = planner.Sweep(); !status.ok()) return status;
  if (absl::Status status = planner.Compare(); !status.ok()) return status;
  return planner.Reads();
}

}  // namespace tidemark
