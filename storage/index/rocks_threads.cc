#include "storage/index/rocks_threads.h"

#include <pthread.h>

#include <array>
#include <memory>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/time/clock.h"
#include "rocksdb/perf_context.h"

namespace tidemark::storage {
namespace {

constexpr absl::Duration kPoll = absl::Microseconds(50);  // about what the start of a thread takes
constexpr absl::Duration kPoolStart = absl::Seconds(1);   // they may have work of another database

bool PollUntil(absl::FunctionRef<bool()> done, absl::Duration time) {
  for (absl::Duration waited; !done(); waited += kPoll) {
    if (waited >= time) return false;
    absl::SleepFor(kPoll);
  }
  return true;
}

// RocksDB names the threads of its pools, and not the timer's.
bool IsInPool() {
  std::array<char, 16> name = {};
  return pthread_getname_np(pthread_self(), name.data(), name.size()) == 0 &&
         std::string_view(name.data()).starts_with("rocksdb:");
}

}  // namespace

void NullLogger::Flush() {
  if (std::this_thread::get_id() != opener_ && !IsInPool()) timer_ran_ = true;
}

bool NullLogger::AwaitTimer(absl::Duration time) const {
  return PollUntil([this] { return timer_ran_.load(); }, time);
}

void RunPoolThreads(rocksdb::Env& env) {
  using Runs = std::atomic<int>;
  const auto runs = std::make_shared<Runs>(0);
  constexpr std::array kPools = {rocksdb::Env::Priority::LOW, rocksdb::Env::Priority::HIGH};
  for (const rocksdb::Env::Priority pool : kPools) {
    auto held = std::make_unique<std::shared_ptr<Runs>>(runs);
    env.Schedule(
        [](void* argument) {
          const std::unique_ptr<std::shared_ptr<Runs>> run(static_cast<std::shared_ptr<Runs>*>(argument));
          rocksdb::get_perf_context();  // what RocksDB keeps for each thread
          ++**run;
        },
        held.get(), pool);
    static_cast<void>(held.release());  // the thread's
  }
  PollUntil([&] { return runs->load() == static_cast<int>(kPools.size()); }, kPoolStart);
}

}  // namespace tidemark::storage
