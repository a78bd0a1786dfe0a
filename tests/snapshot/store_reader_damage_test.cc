// Readers of a store whose manifest is damaged in any byte of a log, of the list of files or of CURRENT, or has garbage
// behind them: they end, and show no step that was not committed. RocksDB's reader of a follower can wait for ever, so
// a watchdog ends the process where a call takes too long.
//
// The cases are drawn; make faults-long takes all.

#include <signal.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/manifest/log_blocks.h"
#include "storage/manifest/store_layout.h"
#include "tests/snapshot/observers.h"
#include "tests/snapshot/test_trainer.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/file_tree.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::OneOf;
using storage::TestDirectory;

// Ends the process with the name of the case where it takes longer than anything that ends. One at a time.
class Watchdog {
 public:
  explicit Watchdog(std::string name) {
    current_name = std::move(name) + "\n";
    signal(SIGALRM, [](int) {
      constexpr char kText[] = "\nA READER HANGS: ";
      if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0 ||
          write(STDERR_FILENO, current_name.data(), current_name.size()) < 0) {
        _exit(2);
      }
      _exit(1);
    });
    alarm(kSeconds);
  }
  ~Watchdog() { alarm(0); }
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  static constexpr unsigned kSeconds = 120;  // for a machine that has much else to do
  static inline std::string current_name;
};

class StoreReaderDamageTest : public testing::Test {
 protected:
  static constexpr int kSteps = 4;

  void SetUp() override {
    auto opened = AsyncCheckpointer::Open({.directory = store_, .observer = NoWarnings()});
    ASSERT_THAT(opened, IsOk());
    TestTrainer trainer(100);
    for (int step = 1; step <= kSteps; ++step) {
      // The last record of a step goes over the end of a block of the log.
      SaveOptions options;
      if (step == kSteps) options.user_metadata = "{\"x\":\"" + std::string(30'000, 'x') + "\"}";
      trainer.SetTo(step);
      auto save = (*opened)->Save(step, trainer.state, options);
      ASSERT_THAT(save, IsOk());
      ASSERT_THAT(save->committed().Wait(), IsOk());
    }
    ASSERT_THAT((*opened)->Close(), IsOk());
    const std::string manifest = storage::StoreLayout(store_).manifest();
    for (const auto& [name, bytes] : storage::ReadTree(storage::PosixFileSystem(), manifest).files) {
      const bool is_log = name.ends_with(".log") || name.starts_with("/MANIFEST-");
      if (is_log || name == "/CURRENT") files_.emplace(manifest + name, bytes);
    }
    ASSERT_EQ(files_.size(), 3u);
    auto reader = StoreReader::Open(store_);
    ASSERT_THAT(reader, IsOk());
    ASSERT_THAT((*reader)->manifest_problem(), IsOk());
    follower_ = *std::move(reader);
  }

  static void Write(const std::string& path, const std::string& bytes) {
    std::ofstream out(path, std::ios::binary);  // in place, as a disk rots
    out << bytes << std::flush;
    ASSERT_TRUE(out.good()) << path;
  }

  // Every step, whether the manifest or the shards know it, or, of a log that looks as if it had been cut, fewer.
  void Judge(const absl::Status& status, const StoreReader& reader) {
    ASSERT_THAT(status, IsOk());
    const size_t steps = reader.Steps().size();
    ASSERT_LE(steps, size_t{kSteps});
    if (!reader.manifest_problem().ok()) {
      ++told_;
      EXPECT_EQ(steps, size_t{kSteps}) << reader.manifest_problem();
    } else if (steps == kSteps) {
      ++unseen_;
    } else {
      ++fewer_;
    }
  }

  // What a reader says that has read the store before, and one that opens it now.
  void LookAt(const std::string& path, const std::string& damaged, const std::string& name) {
    SCOPED_TRACE(name);
    const Watchdog watchdog(name);
    Write(path, damaged);
    const absl::Status refreshed = follower_->Refresh();
    Judge(refreshed, *follower_);
    auto opened = StoreReader::Open(store_);
    ASSERT_THAT(opened, IsOk());
    Judge(absl::OkStatus(), **opened);
    Write(path, files_.at(path));
    ++cases_;
  }

  // Every byte outside of the logs; in a log every byte of a header and the first of its value, and some other bytes of
  // the values, where every change breaks the checksum.
  static std::vector<size_t> BytesToChange(const std::string& path, const std::string& bytes) {
    constexpr size_t kHeader = 7;
    std::vector<size_t> chosen;
    size_t header = path.ends_with("/CURRENT") ? bytes.size() : 0;
    size_t end = header;  // of the record
    for (size_t at = 0; at < bytes.size(); ++at) {
      if (at == end && header < bytes.size()) {
        if (storage::kLogBlockBytes - at % storage::kLogBlockBytes < kHeader) {
          end = at + storage::kLogBlockBytes - at % storage::kLogBlockBytes;  // filled up
        } else {
          header = at;
          end = at + kHeader + static_cast<unsigned char>(bytes[at + 4]) +
                256 * static_cast<unsigned char>(bytes[at + 5]);
        }
      }
      if (header == bytes.size() || at < header + kHeader + 4 || at % 67 == 0) chosen.push_back(at);
    }
    return chosen;
  }

  void Print(const char* what) const {
    std::printf("%s: %d cases; %d looks told of damage, %d showed every step, %d showed fewer\n", what, cases_, told_,
                unseen_, fewer_);
  }

  const TestDirectory directory_ = TestDirectory::InMemory();
  const std::string store_ = directory_ / "store";
  std::map<std::string, std::string> files_;  // by path
  std::unique_ptr<StoreReader> follower_;
  const uint32_t seed_ = storage::SeedOfCases();
  std::mt19937_64 random_{seed_};
  int cases_ = 0;
  int told_ = 0;
  int unseen_ = 0;
  int fewer_ = 0;
};

TEST_F(StoreReaderDamageTest, EndsWhicheverByteOfTheManifestChanges) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  const size_t one_of = OneOf(19, 197);
  for (const auto& [path, bytes] : files_) {
    for (const size_t at : BytesToChange(path, bytes)) {
      for (const int value : {0, 1, 2, 3, 4, 5, 6, 7, 8, 0xff, -1}) {
        if (random_() % one_of != 0) continue;
        std::string damaged = bytes;
        damaged[at] = value >= 0 ? static_cast<char>(value) : static_cast<char>(bytes[at] ^ 1 << random_() % 8);
        if (damaged == bytes) continue;
        LookAt(path, damaged,
               path + " byte " + std::to_string(at) + " is " + std::to_string(static_cast<unsigned char>(damaged[at])));
        if (HasFailure()) return;
      }
    }
  }
  Print("bytes changed");
  EXPECT_GT(told_, 0);
  EXPECT_LE(fewer_ * 10, told_) << "damage must not look like a log that was cut";
  ASSERT_THAT(follower_->Refresh(), IsOk());
  EXPECT_THAT(follower_->manifest_problem(), IsOk());
  EXPECT_EQ(follower_->Steps().size(), size_t{kSteps});
}

// The seventh byte of a record is its type. At the types of recycled logs RocksDB would wait for ever.
TEST_F(StoreReaderDamageTest, EndsWhateverGarbageIsBehindALog) {
  SCOPED_TRACE(testing::Message() << "seed " << seed_);
  const size_t one_of = OneOf(31, 149);
  for (const auto& [path, bytes] : files_) {
    for (int type = 0; type < 256; ++type) {
      for (const size_t size : {1, 7, 11, 12, 300, 70'000}) {
        if ((type > 9 || type % 4 != 1) && random_() % one_of != 0) continue;
        std::string garbage(size, static_cast<char>(type));
        for (char& byte : garbage) byte = type < 10 ? byte : static_cast<char>(random_() % 9);
        LookAt(path, bytes + garbage,
               path + " with " + std::to_string(size) + " bytes behind it, of " + std::to_string(type));
        if (HasFailure()) return;
      }
    }
  }
  Print("garbage behind them");
  EXPECT_EQ(fewer_, 0);
  EXPECT_GT(told_, 0);
}

}  // namespace
}  // namespace tidemark
