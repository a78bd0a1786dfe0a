#include "storage/shard/write/compression_governor.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <optional>
#include <vector>

#include "gtest/gtest.h"

namespace tidemark::storage {
namespace {

using Time = CompressionGovernor::Time;
using Duration = CompressionGovernor::Duration;
using std::chrono::duration_cast;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr uint64_t kChunk = 1 << 20;
constexpr uint64_t kReserve = 4 << 20;

Duration Takes(uint64_t bytes, double bytes_per_second) {
  return duration_cast<Duration>(std::chrono::duration<double>(static_cast<double>(bytes) / bytes_per_second));
}

// A writer in virtual time: threads that take chunks in order and may be a few ahead of the first one that is not
// written, and a disk that serves one write after the other.
class Simulation {
 public:
  struct Machine {
    double disk_rate = 0;    // bytes per second
    double hash_rate = 0;    // of a thread that does not compress
    double encode_rate = 0;  // of one that does
    double ratio = 0.5;
    size_t threads = 2;
    uint64_t cap = 0;
  };
  struct Outcome {
    double compressed = 0;  // share of the chunks
    double seconds = 0;
    double disk_idle = 0;  // share of the time
  };

  explicit Simulation(const Machine& machine)
      : machine_(machine),
        governor_({.saturating_bytes = kReserve, .bytes_per_second_max = machine.cap}),
        workers_(machine.threads) {
    if (machine_.cap > 0) machine_.disk_rate = std::min<double>(machine_.disk_rate, machine_.cap);
  }

  Outcome Write(size_t chunks) {
    chunks_.assign(chunks, {});
    taken_ = 0;
    written_ = 0;
    compressed_ = 0;
    in_flight_.clear();
    Duration busy = {};
    const Time start = now_;
    governor_.Begin();
    while (true) {
      TakeChunks();
      Submit();
      if (in_flight_.empty() && written_ == chunks) break;
      const Time next = NextEvent();
      if (!in_flight_.empty()) busy += next - now_;
      now_ = next;
      FinishChunks();
      Complete();
    }
    const double seconds = std::chrono::duration<double>(now_ - start).count();
    return {static_cast<double>(compressed_) / static_cast<double>(chunks), seconds,
            1 - std::chrono::duration<double>(busy).count() / seconds};
  }

 private:
  static constexpr size_t kDepth = 16;

  struct Worker {
    std::optional<size_t> chunk;
    bool compress = false;
    Time start;
    Time end;
  };
  struct Chunk {
    bool encoded = false;
    uint64_t stored = 0;
  };
  struct Flight {
    uint64_t bytes;
    Time end;
  };

  void TakeChunks() {
    for (Worker& worker : workers_) {
      if (worker.chunk || taken_ == chunks_.size() || taken_ >= written_ + 3 * workers_.size()) continue;
      worker.chunk = taken_++;
      worker.compress = governor_.Take(kChunk, now_);
      if (worker.compress) ++compressed_;
      worker.start = now_;
      worker.end = now_ + Takes(kChunk, worker.compress ? machine_.encode_rate : machine_.hash_rate);
    }
  }
  void Submit() {
    while (in_flight_.size() < kDepth && written_ < taken_ && chunks_[written_].encoded) {
      const uint64_t bytes = chunks_[written_++].stored;
      governor_.HandedOut(bytes);
      governor_.Submitted(bytes, now_);
      const Time begin = in_flight_.empty() ? now_ : in_flight_.back().end;
      in_flight_.push_back({bytes, begin + Takes(bytes, machine_.disk_rate)});
    }
  }
  Time NextEvent() const {
    Time next = in_flight_.empty() ? Time::max() : in_flight_.front().end;
    for (const Worker& worker : workers_) {
      if (worker.chunk) next = std::min(next, worker.end);
    }
    return next;
  }
  void FinishChunks() {
    for (Worker& worker : workers_) {
      if (!worker.chunk || worker.end > now_) continue;
      const auto stored = static_cast<uint64_t>(kChunk * (worker.compress ? machine_.ratio : 1.0));
      chunks_[*worker.chunk] = {true, stored};
      governor_.Encoded(kChunk, stored, worker.compress ? kChunk : 0, now_ - worker.start);
      worker.chunk.reset();
    }
  }
  void Complete() {
    while (!in_flight_.empty() && in_flight_.front().end <= now_) {
      governor_.Completed(in_flight_.front().bytes, now_);
      in_flight_.pop_front();
    }
  }

  Machine machine_;
  CompressionGovernor governor_;
  std::vector<Worker> workers_;
  std::vector<Chunk> chunks_;
  std::deque<Flight> in_flight_;
  Time now_;
  size_t taken_ = 0;
  size_t written_ = 0;  // handed to the disk
  size_t compressed_ = 0;
};

TEST(CompressionGovernor, CompressesEverythingForASlowDisk) {
  Simulation simulation({.disk_rate = 200e6, .hash_rate = 10e9, .encode_rate = 1e9});
  simulation.Write(200);
  EXPECT_GT(simulation.Write(1000).compressed, 0.98);
}

TEST(CompressionGovernor, CompressesNothingForADiskThatIsFasterThanHashing) {
  Simulation simulation({.disk_rate = 50e9, .hash_rate = 10e9, .encode_rate = 1e9});
  simulation.Write(200);
  EXPECT_EQ(simulation.Write(1000).compressed, 0);
}

TEST(CompressionGovernor, CompressesTheShareThatKeepsDiskAndCodecBusy) {
  for (const size_t threads : {1, 2, 4}) {
    for (const double disk_rate : {1.5e9, 2.5e9, 4e9}) {
      SCOPED_TRACE(testing::Message() << threads << " threads, disk of " << disk_rate);
      Simulation simulation(
          {.disk_rate = disk_rate, .hash_rate = 10e9, .encode_rate = 1e9, .ratio = 0.7, .threads = threads});
      simulation.Write(500);
      const Simulation::Outcome outcome = simulation.Write(4000);
      // With a share s: (1 - 0.3 s) / disk = (s / encode + (1 - s) / hash) / threads, if that is less than all.
      const double count = static_cast<double>(threads);
      const double share = (1 / disk_rate - 0.1e-9 / count) / (0.9e-9 / count + 0.3 / disk_rate);
      EXPECT_NEAR(outcome.compressed, std::min(share, 1.0), 0.1);
      if (share < 1) {
        EXPECT_LT(outcome.disk_idle, 0.02);
      }
    }
  }
}

TEST(CompressionGovernor, IsNeverSlowerThanTheDiskWithoutCompression) {
  for (const double disk_rate : {0.1e9, 0.5e9, 1e9, 2e9, 5e9, 9e9}) {
    SCOPED_TRACE(disk_rate);
    Simulation simulation({.disk_rate = disk_rate, .hash_rate = 10e9, .encode_rate = 1e9, .ratio = 0.8});
    simulation.Write(500);
    EXPECT_LT(simulation.Write(2000).seconds, 1.03 * 2000.0 * kChunk / disk_rate);
  }
}

TEST(CompressionGovernor, TakesACapForTheRateOfTheDisk) {
  Simulation simulation({.disk_rate = 3e9, .hash_rate = 10e9, .encode_rate = 1e9, .cap = 100'000'000});
  EXPECT_GT(simulation.Write(200).compressed, 0.95);
}

TEST(CompressionGovernor, CompressesNothingUntilItKnowsTheDisk) {
  CompressionGovernor governor({.saturating_bytes = kReserve});
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(governor.Take(kChunk, Time()));
}

// One write after the other, `deep` of them in flight.
Time Complete(CompressionGovernor* governor, Time now, size_t deep, size_t count, Duration each) {
  for (size_t i = 0; i < deep; ++i) governor->Submitted(kChunk, now);
  for (size_t i = 0; i < count; ++i) {
    now += each;
    governor->Completed(kChunk, now);
    if (i + deep < count) governor->Submitted(kChunk, now);
  }
  return now;
}

// Whether a chunk would be compressed with `bytes` between codec and disk.
bool WouldCompress(CompressionGovernor* governor, uint64_t bytes, Time now) {
  governor->Begin();
  governor->Take(bytes, now);
  return governor->Take(kChunk, now);
}

TEST(CompressionGovernor, NeedsAReserveAndTheTimeThatAChunkTakes) {
  CompressionGovernor governor({.saturating_bytes = kReserve});
  const Time now = Complete(&governor, Time(), 8, 100, milliseconds(1));  // 1 GiB/s, and 1 GB/s to compress
  EXPECT_FALSE(WouldCompress(&governor, kReserve, now));
  EXPECT_FALSE(WouldCompress(&governor, kReserve + kChunk, now));
  EXPECT_TRUE(WouldCompress(&governor, kReserve + 2 * kChunk, now));
  governor.Begin();
  governor.Encoded(0, 0, 64 << 20, milliseconds(6 * 64));
  EXPECT_FALSE(WouldCompress(&governor, kReserve + 5 * kChunk, now));
  EXPECT_TRUE(WouldCompress(&governor, kReserve + 7 * kChunk, now));
}

TEST(CompressionGovernor, FollowsADiskThatBecomesSlower) {
  CompressionGovernor governor({.saturating_bytes = kReserve});
  Time now = Complete(&governor, Time(), 8, 1000, microseconds(100));
  EXPECT_FALSE(WouldCompress(&governor, kReserve + 4 * kChunk, now));
  governor.Begin();
  now = Complete(&governor, now, 8, 1000, milliseconds(1));
  EXPECT_TRUE(WouldCompress(&governor, kReserve + 4 * kChunk, now));
}

TEST(CompressionGovernor, DoesNotTakeADiskForSlowThatGetsLittleToDo) {
  CompressionGovernor governor({.saturating_bytes = kReserve});
  Time now = Complete(&governor, Time(), 8, 1000, microseconds(100));
  governor.Begin();
  now = Complete(&governor, now, 1, 1000, milliseconds(1));
  EXPECT_FALSE(WouldCompress(&governor, kReserve + 4 * kChunk, now));
}

TEST(CompressionGovernor, DoesNotCountWhatMustHaveEndedSinceSomebodyLooked) {
  CompressionGovernor governor({.saturating_bytes = kReserve});
  const Time now = Complete(&governor, Time(), 8, 100, milliseconds(1));
  governor.Begin();
  governor.Submitted(16 * kChunk, now);
  EXPECT_TRUE(governor.Take(kChunk, now));
  EXPECT_TRUE(governor.Take(kChunk, now + milliseconds(5)));
  EXPECT_FALSE(governor.Take(kChunk, now + milliseconds(16)));
}

}  // namespace
}  // namespace tidemark::storage
