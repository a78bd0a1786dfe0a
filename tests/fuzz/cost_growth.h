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
#include <utility>

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

// What grows too much from a count to its double, and from there to the double of that; empty: nothing does. Work that
// is a product of two counts has factors of 4 and 4. A factor of 3 is too much: below it, a table that the database
// writes in the background is in one count's cost and not in the other's. Less than a floor is not compared: tables
// that are made once, the files of a database.
inline std::string Growth(const Cost& once, const Cost& twice, const Cost& four_times) {
  constexpr uint64_t kBytesFloor = 1 << 20;
  constexpr uint64_t kCallsFloor = 100;
  std::string growth;
  const auto compare = [&growth](std::string_view does, uint64_t less, uint64_t more, uint64_t floor,
                                 std::string_view unit) {
    if (static_cast<double>(more) <= 3 * static_cast<double>(std::max(less, floor))) return;
    growth += fmt::format("{} {} and then {} {}; ", does, less, more, unit);
  };
  for (const auto& [less, more] : {std::pair(once, twice), std::pair(twice, four_times)}) {
    compare("allocates", less.allocated_bytes, more.allocated_bytes, kBytesFloor, "bytes");
    compare("makes", less.file_calls, more.file_calls, kCallsFloor, "calls of the file system");
    compare("reads and writes", less.file_bytes, more.file_bytes, kBytesFloor, "bytes of files");
  }
  return growth;
}

// The same for the time of a processor, from a count to four times that count. Work that is a product of two counts has
// a factor of 16. For work on one thread alone: the time of a call with threads behind it depends on the machine.
inline std::string TimeGrowth(const Cost& once, const Cost& four_times) {
  constexpr double kSecondsFloor = 0.004;
  if (four_times.processor_seconds <= 10 * std::max(once.processor_seconds, kSecondsFloor)) return "";
  return fmt::format("takes {:.6f} and then {:.6f} s of a processor; ", once.processor_seconds,
                     four_times.processor_seconds);
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_FUZZ_COST_GROWTH_H_
