// What lies where a file of a store should be: links, devices, fifos, sockets, folders, names and numbers of them. No
// reader follows, waits, or takes a path from any of it, nor much time or memory for it.

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <string>

#include "fmt/format.h"
#include "fuzz/hostile_case.h"
#include "fuzz/store_image.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/io/file_system.h"
#include "storage/io/printable_text.h"
#include "storage/journal/journal_files.h"
#include "storage/records/fact.h"
#include "storage/shard/read/shard_verify.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/store_identity.h"
#include "tests/fuzz/measured_child.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/shard/shard_testing.h"
#include "tidemark/store_reader.h"

namespace tidemark::fuzz {
namespace {

namespace fs = std::filesystem;

using absl::StatusCode;
using storage::IsOk;
using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::StartsWith;

using Maker = std::function<bool(const std::string& path)>;

bool MakeSocket(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {.sun_family = AF_UNIX};
  // Its path may have a hundred bytes and no more.
  const int folder = open(fs::path(path).parent_path().c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  const std::string name = fmt::format("/proc/self/fd/{}/{}", folder, fs::path(path).filename().string());
  name.copy(address.sun_path, sizeof(address.sun_path) - 1);
  const bool made = bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
  close(folder);
  close(fd);
  return made;
}

// Not everybody may, and neither may the root of a container or of a user namespace.
bool MakeDevice(const std::string& path) { return mknod(path.c_str(), S_IFCHR | 0600, makedev(1, 5)) == 0; }

bool DevicesCanBeMade() {
  const storage::TestDirectory directory;
  return MakeDevice(directory / "device");
}

// What is no regular file, and the words that say so.
struct Stranger {
  std::string what;
  std::string words;
  Maker make;
};

std::vector<Stranger> Strangers() {
  std::vector<Stranger> strangers = {
      {"link", "ELOOP", [](const std::string& path) { return symlink("/etc/passwd", path.c_str()) == 0; }},
      {"loop", "ELOOP", [](const std::string& path) { return symlink(path.c_str(), path.c_str()) == 0; }},
      {"dangling link", "ELOOP", [](const std::string& path) { return symlink("nowhere", path.c_str()) == 0; }},
      {"link to a device", "ELOOP", [](const std::string& path) { return symlink("/dev/zero", path.c_str()) == 0; }},
      {"fifo", "a fifo, not", [](const std::string& path) { return mkfifo(path.c_str(), 0600) == 0; }},
      {"socket", "a socket, not", MakeSocket},
      {"directory", "a directory, not", [](const std::string& path) { return mkdir(path.c_str(), 0700) == 0; }},
  };
  static const bool devices = DevicesCanBeMade();
  if (devices) strangers.push_back({"device", "a device, not", MakeDevice});
  return strangers;
}

// An answer that is an error.
testing::Matcher<std::string> Says(StatusCode code, const testing::Matcher<std::string>& words) {
  return AllOf(StartsWith(absl::StatusCodeToString(code) + ": "), words);
}

class HostilePlaceTest : public testing::Test {
 protected:
  HostilePlaceTest() : layout_(directory_.path() + "/store") {
    fs::create_directories(folder_);
    storage::WriteWhole(layout_.identity(), EncodeStoreIdentity(identity_.store));
    storage::WriteWhole(shard_, SoundShard());
  }

  static std::string SoundShard() {
    const storage::ShardHeader header{.identity = IdentityAt(1), .chunk_bytes = 4096};
    return AssembleShard(header, "", storage::EncodeShardIndex({}));
  }

  // One with a step that has no files, so that it is seen whether a reader asks it or the shards.
  void MakeJournal() const {
    storage::StepRecord record;
    record.info.step = 7;
    record.info.attempt = storage::ToHex(identity_.attempt.bytes);
    fs::create_directories(journal_.FolderOf(1));
    storage::WriteWhole(journal_.PathOf(1), EntryFileWith(EncodeFact(storage::StepFact{record}).value()));
  }

  // The steps that a reader finds, "{ 1, 2 }", or why it finds none.
  std::string Steps() const {
    return InMeasuredChild([&] {
      const auto reader = StoreReader::OpenUntrusted(layout_.directory());
      if (!reader.ok()) return reader.status().ToString();
      std::vector<int64_t> steps;
      for (const StepInfo& info : (*reader)->Steps()) steps.push_back(info.step);
      return testing::PrintToString(steps);
    });
  }

  std::string OpenShard() const {
    return InMeasuredChild([&] {
      return storage::ShardReader::Open(storage::PosixFileSystem(), shard_, layout_.steps()).status().ToString();
    });
  }

  // What has become of the attempt's record, as `tell` puts it, or why it cannot be read.
  std::string Attempt(const std::function<std::string(const storage::StepRecord&)>& tell) const {
    return InMeasuredChild([&] {
      const auto attempt = ReadAttempt(storage::PosixFileSystem(), layout_, identity_.store, {1, identity_.attempt});
      return attempt.ok() ? tell(attempt->record) : attempt.status().ToString();
    });
  }

  const storage::TestDirectory directory_;
  const storage::StoreLayout layout_;
  const storage::JournalFiles journal_{storage::PosixFileSystem(), layout_.journal()};
  const storage::ShardIdentity identity_ = IdentityAt(1);
  const std::string folder_ = layout_.attempt(identity_.step, identity_.attempt);
  const std::string shard_ = layout_.shard(identity_.step, identity_.attempt, 0, 1);
};

TEST_F(HostilePlaceTest, AShardThatIsNoRegularFileIsNotOpened) {
  for (const Stranger& stranger : Strangers()) {
    SCOPED_TRACE(stranger.what);
    fs::remove_all(shard_);
    ASSERT_TRUE(stranger.make(shard_));
    EXPECT_THAT(OpenShard(), Says(StatusCode::kFailedPrecondition, HasSubstr(stranger.words)));
    EXPECT_EQ(Steps(), "{}");
  }
}

TEST_F(HostilePlaceTest, AStoreJsonThatIsNoRegularFileMakesNoStore) {
  for (const Stranger& stranger : Strangers()) {
    SCOPED_TRACE(stranger.what);
    fs::remove_all(layout_.identity());
    ASSERT_TRUE(stranger.make(layout_.identity()));
    EXPECT_THAT(Steps(), Says(StatusCode::kNotFound, HasSubstr(stranger.words)));
  }
}

// Where a journal cannot be read, the shards say which steps there are.
TEST_F(HostilePlaceTest, AJournalThatIsNoFolderHidesNoStep) {
  for (const Stranger& stranger : Strangers()) {
    SCOPED_TRACE(stranger.what);
    fs::remove_all(layout_.journal());
    ASSERT_TRUE(stranger.make(layout_.journal()));
    EXPECT_EQ(Steps(), "{ 1 }");
  }
}

TEST_F(HostilePlaceTest, AnEntryThatIsNoRegularFileHidesNoStep) {
  MakeJournal();
  ASSERT_EQ(Steps(), "{ 7 }");
  for (const Stranger& stranger : Strangers()) {
    SCOPED_TRACE(stranger.what);
    fs::remove_all(journal_.PathOf(1));
    ASSERT_TRUE(stranger.make(journal_.PathOf(1)));
    EXPECT_EQ(Steps(), "{ 1 }");
  }
}

TEST_F(HostilePlaceTest, AJournalLeadsThroughNoLink) {
  MakeJournal();
  const std::string elsewhere = directory_ / "elsewhere";
  for (const std::string& folder : {journal_.FolderOf(1), journal_.UpperFolderOf(1), layout_.journal()}) {
    SCOPED_TRACE(folder);
    fs::rename(folder, elsewhere);
    fs::create_directory_symlink(elsewhere, folder);
    EXPECT_EQ(Steps(), "{ 1 }");
    fs::remove(folder);
    fs::rename(elsewhere, folder);
  }
  EXPECT_EQ(Steps(), "{ 7 }");
}

TEST_F(HostilePlaceTest, NamesThatNoJournalHasAreNotRead) {
  MakeJournal();
  for (const std::string& folder : {layout_.journal(), journal_.UpperFolderOf(1), journal_.FolderOf(1)}) {
    for (const std::string name :
         {"\x1b[2J", "00000000002", "+000000002", "0000000002x", "-000000001", "spare-", "new-x",
          "18446744073709551616", "99999999999999999999", "0x00000002", "0000000066"}) {
      storage::WriteWhole(folder + "/" + name, "x");
    }
    for (const std::string name : {"64", "4294967296", "18446744073709551615", "-1", "00000"}) {
      fs::create_directory(folder + "/" + name);
      storage::WriteWhole(folder + "/" + name + "/0000000002", "x");
    }
  }
  EXPECT_EQ(Steps(), "{ 7 }");
}

// Between it and the entries that are there, nothing has to be looked for.
TEST_F(HostilePlaceTest, AnEntryOfAHugeNumberIsMissedInLittleTime) {
  for (const storage::EntryNumber number : {storage::EntryNumber{1'000}, storage::EntryNumber{1'000'000},
                                            storage::EntryNumber{1} << 40, storage::EntryNumber{kUint64Max}}) {
    SCOPED_TRACE(number);
    fs::remove_all(layout_.journal());
    MakeJournal();
    fs::create_directories(journal_.FolderOf(number));
    storage::WriteWhole(journal_.PathOf(number), "x");
    EXPECT_EQ(Steps(), "{ 1 }");
  }
}

TEST_F(HostilePlaceTest, FoldersThatAreLinksAreNotEntered) {
  const std::string elsewhere = directory_ / "elsewhere";
  fs::rename(folder_, elsewhere);
  fs::create_directory_symlink(elsewhere, folder_);
  EXPECT_EQ(Steps(), "{}");
  EXPECT_THAT(OpenShard(), Says(StatusCode::kFailedPrecondition, HasSubstr("ELOOP")));
  fs::rename(layout_.steps(), directory_ / "steps");
  fs::create_directory_symlink(directory_ / "steps", layout_.steps());
  EXPECT_THAT(Steps(), Says(StatusCode::kFailedPrecondition, AnyOf(HasSubstr("ENOTDIR"), HasSubstr("ELOOP"))));
}

TEST_F(HostilePlaceTest, AReferenceLeadsThroughNoLink) {
  const storage::ShardIdentity other = IdentityAt(2);
  const std::string raw(100, 'x');
  storage::ShardIndex index;
  index.files = {{.step = other.step, .attempt = other.attempt}};
  index.chunks = {{.file = 1,
                   .raw_bytes = 100,
                   .stored_bytes = 100,
                   .offset = 4096,
                   .digest = storage::DigestOf(AsBytes(raw)),
                   .checksum = storage::ChecksumOf(AsBytes(raw))}};
  index.entries = {{.spec = {.name = "a", .dtype = Dtype::kUint8, .shape = {100}}, .chunk_count = 1}};
  storage::WriteWhole(shard_, AssembleShard({.identity = identity_, .chunk_bytes = 4096}, "", EncodeShardIndex(index)));
  const std::string elsewhere = directory_ / "elsewhere";
  fs::create_directory(elsewhere);
  storage::WriteWhole(elsewhere + "/shard-00000-of-00001.tmk",
                      AssembleShard({.identity = other, .chunk_bytes = 4096}, raw, storage::EncodeShardIndex({})));
  fs::create_directory_symlink(elsewhere, layout_.attempt(other.step, other.attempt));
  const std::string damage = InMeasuredChild([&] {
    const auto verified = VerifyShard(storage::PosixFileSystem(), shard_, layout_.steps(), &identity_, {});
    if (!verified.ok()) return verified.status().ToString();
    return fmt::format("{}: {}", verified->damage.size(), verified->damage.empty() ? "" : verified->damage[0].what);
  });
  EXPECT_THAT(damage, AllOf(StartsWith("1: "), HasSubstr("ELOOP")));
}

TEST_F(HostilePlaceTest, NamesThatNobodyWouldGiveAreNobodys) {
  const std::string sound = fs::path(folder_).filename();
  const std::vector<std::string> names = {"\x1b[2J",
                                          "\xff\xfe",
                                          "..\xc0\xaf",
                                          "a\nb",
                                          "-rf",
                                          "0",
                                          "~",
                                          "%s%n",
                                          std::string(255, 'x'),
                                          sound + ".",
                                          sound.substr(1),
                                          "+" + sound.substr(1),
                                          "99999999999999999999-" + sound.substr(11),
                                          "-000000001-" + sound.substr(11),
                                          sound.substr(0, 42) + "G",
                                          "0000000001-../../../../../etc/passwd0000"};
  for (const std::string& name : names) {
    if (name.find('/') != std::string::npos) continue;
    fs::create_directory(layout_.steps() + "/" + name);
    std::ofstream(folder_ + "/" + name) << "x";
  }
  EXPECT_EQ(Steps(), "{ 1 }");
  std::vector<std::string> strangers;
  ASSERT_THAT(ListAttempts(storage::PosixFileSystem(), layout_, &strangers), IsOk());
  EXPECT_EQ(strangers.size(), names.size() - 1);
}

TEST_F(HostilePlaceTest, AWorldOfBillionsIsOneThatLacksAShard) {
  fs::rename(shard_, folder_ + "/shard-00000-of-4294967295.tmk");
  EXPECT_EQ(Steps(), "{}");
  EXPECT_THAT(Attempt([](const storage::StepRecord&) { return "it is read"; }),
              Says(StatusCode::kDataLoss, HasSubstr("its header is that of step 1")));
}

TEST_F(HostilePlaceTest, HundredsOfFoldersHideNoStep) {
  for (int i = 0; i < 300; ++i) {
    storage::AttemptId attempt = identity_.attempt;
    attempt.bytes[0] = static_cast<uint8_t>(i);
    fs::create_directory(layout_.attempt(2 + i, attempt));
  }
  EXPECT_EQ(Steps(), "{ 1 }");
}

// One that is quadratic in the list takes seconds.
TEST_F(HostilePlaceTest, AListOfAllTheFilesThereCanBeIsReadInLittleTime) {
  storage::ShardIndex index;
  for (uint32_t i = 0; i < storage::kFileReferencesMax; ++i)
    index.files.push_back({.step = 7, .rank = i, .world_size = i + 1});
  storage::WriteWhole(shard_, AssembleShard({.identity = identity_, .chunk_bytes = 4096}, "", EncodeShardIndex(index)));
  EXPECT_EQ(Attempt([](const storage::StepRecord& record) { return std::to_string(record.references.size()); }),
            std::to_string(storage::kFileReferencesMax));
}

// The base has as many tied entries as the most expensive whole index. The delta changes each of them.
TEST_F(HostilePlaceTest, ADeltaToAnIndexOfManyTiesIsReadInLittleTimeAndMemory) {
  constexpr uint64_t kChunks = 40'000;
  const storage::ShardIdentity other = IdentityAt(2);
  storage::ShardIndex index;
  index.chunks.assign(kChunks, {.codec = storage::Codec::kZstd, .raw_bytes = 4096, .stored_bytes = 1});
  for (uint64_t i = 0; i < kChunks; ++i) index.chunks[i].offset = 4096 + i;
  for (uint64_t i = 0; i < kChunks; ++i) {
    const EntrySpec spec = {.name = fmt::format("{:x}", i), .dtype = Dtype::kUint8, .shape = {kChunks * 4096}};
    index.entries.push_back({.spec = spec, .chunk_count = kChunks});
  }
  const std::string base = storage::EncodeShardIndex(index);
  fs::create_directories(layout_.attempt(other.step, other.attempt));
  storage::WriteWhole(layout_.shard(other.step, other.attempt, 0, 1),
                      AssembleShard({.identity = other, .chunk_bytes = 4096}, std::string(kChunks, 'x'), base));
  index.files = {{.step = other.step, .attempt = other.attempt}};
  for (storage::ChunkRecord& chunk : index.chunks) chunk.file = 1;
  storage::IndexBase delta = {.file = 1, .digest = storage::DigestOf(AsBytes(base))};
  delta.changed_chunks.assign(kChunks, true);
  delta.changed_entries.assign(kChunks, true);
  storage::WriteWhole(
      shard_, AssembleShard({.identity = identity_, .chunk_bytes = 4096}, "", storage::EncodeShardIndex(index, delta)));
  EXPECT_EQ(OpenShard(), "OK");
  EXPECT_EQ(Steps(), "{ 1, 2 }");
  index.entries.back().spec.shape[0] -= 1;
  storage::WriteWhole(
      shard_, AssembleShard({.identity = identity_, .chunk_bytes = 4096}, "", storage::EncodeShardIndex(index, delta)));
  EXPECT_THAT(OpenShard(), Says(StatusCode::kDataLoss, HasSubstr("of entry 39999")));
}

TEST_F(HostilePlaceTest, ATimeBeyondAllRecordsIsTheLongestThereIs) {
  storage::ShardIndex index;
  index.blocked_ns = ~uint64_t{0};
  storage::WriteWhole(shard_, AssembleShard({.identity = identity_, .chunk_bytes = 4096}, "", EncodeShardIndex(index)));
  EXPECT_EQ(Attempt([](const storage::StepRecord& record) { return absl::FormatDuration(record.info.blocked); }),
            absl::FormatDuration(absl::Nanoseconds(std::numeric_limits<int64_t>::max())));
}

TEST_F(HostilePlaceTest, TriesDevicesToo) {
  if (!DevicesCanBeMade()) GTEST_SKIP() << "no device can be made here, so none is among the strangers";
  EXPECT_EQ(Strangers().back().what, "device");
}

}  // namespace
}  // namespace tidemark::fuzz
