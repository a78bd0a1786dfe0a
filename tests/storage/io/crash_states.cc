#include "tests/storage/io/crash_states.h"

#include <algorithm>
#include <random>

#include "fmt/format.h"
#include "tests/storage/io/disk_states.h"
#include "xxhash.h"

namespace tidemark::storage {
namespace {

uint64_t Mix(uint64_t a, uint64_t b) {
  const uint64_t words[] = {a, b};
  return XXH3_64bits(words, sizeof(words));
}

bool SpansSectors(const DiskOperation& operation) {
  if (operation.kind != DiskOperation::Kind::kWrite) return false;
  const uint64_t last = operation.offset + operation.bytes->size() - 1;
  return operation.offset / kSectorBytes != last / kSectorBytes;
}

// The crashes before one operation. Functions that return bool: false if no more are wanted.
class Cut {
 public:
  using Try = std::function<bool(const Crash&)>;

  Cut(const DiskLog& log, const CrashOptions& options, size_t prefix, Try attempt)
      : log_(log),
        options_(options),
        prefix_(prefix),
        attempt_(std::move(attempt)),
        unsynced_(log.Unsynced(prefix)),
        random_(Mix(options.seed, prefix)) {}

  // Whether all subsets are lost in turn.
  bool exhaustive() const { return unsynced_.size() <= options_.all_subsets_up_to; }

  // `known`: every subset was lost in turn before the last operation, and nothing was promised by it. Then what is new
  // are the states that have that operation.
  bool Go(bool known) {
    if (!exhaustive()) return Lose([](size_t) { return false; }) && SomeSubsets() && Tearings();
    size_t free = unsynced_.size();
    if (known && (free == 0 || unsynced_.back() != prefix_ - 1)) return Tearings();
    if (known) --free;
    return AllSubsets(free) && Tearings();
  }

 private:
  // Without the unsynced operations for whose place in unsynced_ `is_lost` holds.
  template <typename IsLost>
  bool Lose(IsLost is_lost) {
    Crash crash{.prefix = prefix_};
    for (size_t i = 0; i < unsynced_.size(); ++i) {
      if (is_lost(i)) crash.lost.push_back({.index = unsynced_[i]});
    }
    return attempt_(crash);
  }

  // Of the first `free` of unsynced_.
  bool AllSubsets(size_t free) {
    for (uint64_t subset = 0; subset < uint64_t{1} << free; ++subset) {
      if (!Lose([&](size_t i) { return (subset >> i & 1) != 0; })) return false;
    }
    return true;
  }

  bool SomeSubsets() {
    if (!Lose([](size_t) { return true; })) return false;
    for (size_t first = 0; first < unsynced_.size(); ++first) {
      if (!Lose([&](size_t i) { return i == first; })) return false;
      if (unsynced_.size() > options_.all_pairs_up_to) continue;
      for (size_t second = first + 1; second < unsynced_.size(); ++second) {
        if (!Lose([&](size_t i) { return i == first || i == second; })) return false;
      }
    }
    // Each subset has a rate of its own, so that few, half and nearly all are lost in turn.
    for (size_t sample = 0; sample < options_.samples; ++sample) {
      const uint64_t rate = random_() % 256;
      if (!Lose([&](size_t) { return random_() % 256 <= rate; })) return false;
    }
    return true;
  }

  // In turn: the end of a write is lost, any of its sectors, all of them but for the length that they gave the file.
  uint64_t SomeSectors(const DiskOperation& write, size_t kind) {
    const uint64_t first = write.offset / kSectorBytes;
    const uint64_t last = (write.offset + write.bytes->size() - 1) / kSectorBytes;
    uint64_t lost = 0;
    uint64_t from = first;
    if (kind % 3 == 0) from = first + 1 + random_() % (last - first);
    for (uint64_t sector = from; sector <= last; ++sector) {
      if (kind % 3 != 1 || random_() % 2 == 0) lost |= uint64_t{1} << sector % 64;
    }
    // A mask of all ones would be the loss of the whole write.
    return lost == kAllSectors ? lost >> 1 : lost;
  }

  bool Tearings() {
    std::vector<size_t> writes;  // places in unsynced_
    for (size_t i = 0; i < unsynced_.size(); ++i) {
      if (SpansSectors(log_.operations[unsynced_[i]])) writes.push_back(i);
    }
    if (writes.empty()) return true;
    for (size_t torn = 0; torn < options_.torn; ++torn) {
      const size_t which = writes[random_() % writes.size()];
      Crash crash{.prefix = prefix_};
      for (size_t i = 0; i < unsynced_.size(); ++i) {
        if (i == which) {
          const uint64_t mask = SomeSectors(log_.operations[unsynced_[i]], torn);
          if (mask != 0) crash.lost.push_back({.index = unsynced_[i], .sector_mask = mask});
        } else if (torn % 2 == 1 && random_() % 2 == 0) {
          crash.lost.push_back({.index = unsynced_[i]});
        }
      }
      if (!attempt_(crash)) return false;
    }
    return true;
  }

  const DiskLog& log_;
  const CrashOptions& options_;
  const size_t prefix_;
  const Try attempt_;
  const std::vector<size_t> unsynced_;
  std::mt19937_64 random_;
};

}  // namespace

std::string Crash::ToString(const DiskLog& log) const {
  std::string text = fmt::format("after {} of {} operations", prefix, log.operations.size());
  for (size_t i = 0; i < lost.size(); ++i) {
    const LostOperation& operation = lost[i];
    text += fmt::format(
        "{} {} ({}{})", i == 0 ? ", without" : ",", operation.index, log.operations[operation.index].ToString(),
        operation.sector_mask == kAllSectors ? "" : fmt::format(" sectors {:#x}", operation.sector_mask));
  }
  return text;
}

size_t ForEachCrash(const DiskLog& log, const CrashOptions& options, std::unordered_set<uint64_t>& seen,
                    const std::function<bool(const Crash&, const DiskImage&)>& visit) {
  DiskStates states(log);
  size_t visited = 0;
  uint64_t promised = options.promised;
  bool known = false;
  for (size_t prefix = 0; prefix <= log.operations.size(); ++prefix) {
    if (prefix > 0 && log.operations[prefix - 1].kind == DiskOperation::Kind::kMark) {
      const std::string& text = log.operations[prefix - 1].name;
      promised = Mix(promised, XXH3_64bits(text.data(), text.size()));
      known = false;
    }
    if (prefix < options.begin) continue;
    Cut cut(log, options, prefix, [&](const Crash& crash) {
      const DiskImage image = states.After(crash.prefix, crash.lost);
      if (!seen.insert(Mix(image.Fingerprint(), promised)).second) return true;
      ++visited;
      return visit(crash, image);
    });
    if (!cut.Go(known)) break;
    known = cut.exhaustive();
  }
  return visited;
}

}  // namespace tidemark::storage
