// How the cost of a piece of work grows with a count of its input. Growth compares what is counted, and is the same on
// every machine. TimeGrowth compares processor time, never the wall clock.

#ifndef TIDEMARK_TESTS_FUZZ_COST_GROWTH_H_
#define TIDEMARK_TESTS_FUZZ_COST_GROWTH_H_

#include <algorithm>
#include <cstdint>
#include <ctime>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_set>

#include "fmt/format.h"
#include "fuzz/allocation_count.h"
#include "tests/storage/io/failing_file_system.h"

namespace tidemark::storage {

// Of all threads of the process together.
struct Cost {
  uint64_t allocated_bytes = std::numeric_limits<uint64_t>::max();
  uint64_t file_calls = std::numeric_limits<uint64_t>::max();
  uint64_t file_bytes = std::numeric_limits<uint64_t>::max();  // read and written
  double processor_seconds = std::numeric_limits<double>::infinity();
};

struct Measured {
  std::function<void()> work;
  std::function<void()> before = nullptr;  // what it needs each time, and does not count; may be null
  FailingFileSystem* files = nullptr;      // whose calls count; null: none do
  // The least of so many runs counts. This leaves out the work of other programs, and of threads in the background.
  int runs = 5;
};

inline double ProcessorSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

inline Cost CostOf(const Measured& measured) {
  Cost least;
  for (int i = 0; i < measured.runs; ++i) {
    if (measured.before != nullptr) measured.before();
    if (measured.files != nullptr) measured.files->Reset();
    const uint64_t allocated = fuzz::AllocatedBytes();
    const double begin = ProcessorSeconds();
    measured.work();
    least.processor_seconds = std::min(least.processor_seconds, ProcessorSeconds() - begin);
    least.allocated_bytes = std::min(least.allocated_bytes, fuzz::AllocatedBytes() - allocated);
    uint64_t calls = 0;
    uint64_t bytes = 0;
    if (measured.files != nullptr) {
      for (const FailingFileSystem::Call& call : measured.files->calls()) {
        ++calls;
        bytes += call.bytes;
      }
    }
    least.file_calls = std::min(least.file_calls, calls);
    least.file_bytes = std::min(least.file_bytes, bytes);
  }
  return least;
}

// What grows too much where a count is doubled twice; empty: nothing does. Two things are compared with kGrowthMax: a
// cost with that of half the count, and what the second doubling adds with what the first one adds. The latter leaves
// out all that does not depend on the count. It is 2 for work that grows as the count, 2.2 for n log n from 1,000 on, 4
// for a product of two counts. Less than a floor is not compared: tables that are made once, the files of a database.
inline constexpr double kGrowthMax = 2.5;

inline std::string Growth(const Cost& once, const Cost& twice, const Cost& four_times) {
  constexpr uint64_t kBytesFloor = 1 << 20;
  constexpr uint64_t kCallsFloor = 100;
  std::string growth;
  const auto compare = [&](std::string_view does, uint64_t Cost::*cost, uint64_t floor, std::string_view unit) {
    const auto grows = [floor](uint64_t less, uint64_t more) {
      return static_cast<double>(more) > kGrowthMax * static_cast<double>(std::max(less, floor));
    };
    const auto added = [](uint64_t less, uint64_t more) { return more - std::min(less, more); };
    const uint64_t first = added(once.*cost, twice.*cost);
    const uint64_t second = added(twice.*cost, four_times.*cost);
    if (!grows(once.*cost, twice.*cost) && !grows(twice.*cost, four_times.*cost) && !grows(first, second)) return;
    growth += fmt::format("{} {}, then {}, then {} {}; ", does, once.*cost, twice.*cost, four_times.*cost, unit);
  };
  compare("allocates", &Cost::allocated_bytes, kBytesFloor, "bytes");
  compare("makes", &Cost::file_calls, kCallsFloor, "calls of the file system");
  compare("reads and writes", &Cost::file_bytes, kBytesFloor, "bytes of files");
  return growth;
}

// How much more each byte takes of a processor where so many are allocated, not fewer, for work that grows as the
// count: a hash table. Caches are larger than the one and smaller than the other; what else the machine does is in it,
// too.
inline double MachineGrowth(uint64_t fewer_bytes, uint64_t more_bytes) {
  constexpr uint64_t kElementBytes = 128;  // about
  constexpr int kRuns = 5;
  const auto fill = [](uint64_t count) {
    std::unordered_set<std::string> table;
    for (uint64_t i = 0; i < count; ++i) table.insert(fmt::format("{:040x}", i * 0x9E3779B97F4A7C15u));
  };
  const auto seconds_each = [&](uint64_t bytes) {
    const uint64_t count = std::max<uint64_t>(bytes / kElementBytes, 100);
    double least = std::numeric_limits<double>::infinity();
    for (int i = 0; i < kRuns; ++i) {
      const double begin = ProcessorSeconds();
      fill(count);
      least = std::min(least, ProcessorSeconds() - begin);
    }
    return least / static_cast<double>(count);
  };
  return std::max(1.0, seconds_each(more_bytes) / seconds_each(fewer_bytes));
}

// The same for the time of a processor, in one comparison over both doublings: work that is a product has a factor of
// 16. Where it grows by more than kGrowthMax twice, the machine's own growth is measured, and is no fault of the work.
inline std::string TimeGrowth(const Cost& once, const Cost& four_times) {
  constexpr double kSecondsFloor = 0.001;
  const double growth = four_times.processor_seconds / std::max(once.processor_seconds, kSecondsFloor);
  constexpr double kMax = kGrowthMax * kGrowthMax;
  if (growth <= kMax) return "";
  const double machine = MachineGrowth(once.allocated_bytes, four_times.allocated_bytes);
  if (growth <= kMax * machine) return "";
  return fmt::format("takes {:.6f} and then {:.6f} s of a processor, the machine alone accounting for {:.2f} times; ",
                     once.processor_seconds, four_times.processor_seconds, machine);
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_FUZZ_COST_GROWTH_H_
