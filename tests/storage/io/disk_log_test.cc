// What power loss leaves of what was done to a simulated disk. Longer than 500 lines, because each kind of operation
// has tests of its own beside a model of all of them.

#include "tests/storage/io/disk_log.h"

#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Pair;
using testing::UnorderedElementsAre;

using Files = DiskImage::Files;

class DiskLogTest : public testing::Test {
 protected:
  void Put(const std::string& path, std::string_view bytes) {
    auto file = disk_.Create(path, /*direct=*/false);
    ASSERT_THAT(file, IsOk());
    ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span(bytes))), IsOk());
    ASSERT_THAT((*file)->SyncData(), IsOk());
  }
  void MakeDirectory(const std::string& path) { ASSERT_THAT(disk_.CreateDirectory(path), IsOk()); }
  void Rename(const std::string& from, const std::string& to) { ASSERT_THAT(disk_.Rename(from, to), IsOk()); }
  void Remove(const std::string& path) { ASSERT_THAT(disk_.RemoveFile(path), IsOk()); }
  void Sync(const std::string& path) { ASSERT_THAT(disk_.SyncDirectory(path), IsOk()); }

  // What a crash now would leave, with any subset of what is not synced lost.
  std::set<Files> States() {
    const DiskLog log = disk_.log();
    const std::vector<size_t> unsynced = log.Unsynced(log.operations.size());
    std::set<Files> states;
    for (uint64_t subset = 0; subset < uint64_t{1} << unsynced.size(); ++subset) {
      std::vector<LostOperation> lost;
      for (size_t i = 0; i < unsynced.size(); ++i) {
        if ((subset >> i & 1) != 0) lost.push_back({.index = unsynced[i]});
      }
      states.insert(log.StateAfter(log.operations.size(), lost).Contents());
    }
    return states;
  }
  std::vector<std::string> Unsynced() {
    const DiskLog log = disk_.log();
    std::vector<std::string> lines;
    for (const size_t i : log.Unsynced(log.operations.size())) lines.push_back(log.operations[i].ToString());
    return lines;
  }
  // The last state without the operation that reads like this.
  Files Without(const std::string& line, uint64_t sectors = kAllSectors) {
    const DiskLog log = disk_.log();
    for (const size_t i : log.Unsynced(log.operations.size())) {
      if (log.operations[i].ToString() != line) continue;
      return log.StateAfter(log.operations.size(), {{.index = i, .sector_mask = sectors}}).Contents();
    }
    ADD_FAILURE() << line << " cannot be lost";
    return {};
  }

  SimulatedDisk disk_;
};

TEST_F(DiskLogTest, FileNeedsTheSyncOfItsBytesAndOfItsDirectory) {
  auto file = disk_.Create("/x", false);
  ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span("ab", 2))), IsOk());
  EXPECT_THAT(States(), ElementsAre(Files{}, Files{{"/x", ""}}, Files{{"/x", "ab"}}));
  ASSERT_THAT((*file)->SyncData(), IsOk());
  EXPECT_THAT(States(), ElementsAre(Files{}, Files{{"/x", "ab"}}));
  Sync("/");
  EXPECT_THAT(States(), ElementsAre(Files{{"/x", "ab"}}));
}

TEST_F(DiskLogTest, SyncOfTheDirectoryAloneLeavesTheBytesToChance) {
  auto file = disk_.Create("/x", false);
  ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span("ab", 2))), IsOk());
  Sync("/");
  EXPECT_THAT(States(), ElementsAre(Files{{"/x", ""}}, Files{{"/x", "ab"}}));
}

TEST_F(DiskLogTest, SyncCoversSizesAndOnlyWhatCameBefore) {
  Put("/x", "abcd");
  Sync("/");
  auto file = disk_.OpenForRewrite("/x", false);
  ASSERT_THAT((*file)->Truncate(2), IsOk());
  ASSERT_THAT((*file)->Allocate(6), IsOk());
  EXPECT_THAT(States(), ElementsAre(Files{{"/x", "ab"}}, Files{{"/x", {"ab\0\0\0\0", 6}}}, Files{{"/x", "abcd"}},
                                    Files{{"/x", {"abcd\0\0", 6}}}));
  ASSERT_THAT((*file)->SyncData(), IsOk());
  EXPECT_THAT(Unsynced(), IsEmpty());
  ASSERT_THAT((*file)->WriteAt(1, std::as_bytes(std::span("X", 1))), IsOk());
  EXPECT_THAT(Unsynced(), ElementsAre("write /x [1, 2)"));
}

TEST_F(DiskLogTest, CrashBeforeTheSyncIsNotCoveredByIt) {
  Put("/x", "ab");
  Sync("/");
  const DiskLog log = disk_.log();
  ASSERT_EQ(log.operations.size(), 4u);
  EXPECT_THAT(log.Unsynced(2), ElementsAre(0, 1));
  EXPECT_THAT(log.Unsynced(3), ElementsAre(0));
  EXPECT_THAT(log.Unsynced(4), IsEmpty());
  EXPECT_EQ(log.operations[0].durable_from, 3u);
  EXPECT_EQ(log.operations[1].durable_from, 2u);
  EXPECT_EQ(log.operations[2].durable_from, 2u) << "a sync has its own";
}

TEST_F(DiskLogTest, RenameIsWholeOrNotAtAll) {
  Put("/a", "1");
  Sync("/");
  Rename("/a", "/b");
  EXPECT_THAT(States(), ElementsAre(Files{{"/a", "1"}}, Files{{"/b", "1"}}));
}

TEST_F(DiskLogTest, RenameOverAFileLeavesTheOldOrTheNew) {
  Put("/x", "old");
  Sync("/");
  Put("/x.tmp", "new");
  Rename("/x.tmp", "/x");
  // The temporary file's creation may be lost, and the rename kept: then the name stands for the new file all the same.
  EXPECT_EQ(Without("create /x.tmp"), (Files{{"/x", "new"}}));
  EXPECT_THAT(States(),
              ElementsAre(Files{{"/x", "new"}}, Files{{"/x", "old"}}, Files{{"/x", "old"}, {"/x.tmp", "new"}}));
  Sync("/");
  EXPECT_THAT(States(), ElementsAre(Files{{"/x", "new"}}));
}

TEST_F(DiskLogTest, RenameWithoutTheBytesSyncedMayLoseBothContents) {
  Put("/x", "old");
  Sync("/");
  auto file = disk_.Create("/x.tmp", false);
  ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span("new", 3))), IsOk());
  Rename("/x.tmp", "/x");
  Sync("/");
  EXPECT_THAT(States(), ElementsAre(Files{{"/x", ""}}, Files{{"/x", "new"}}));
}

TEST_F(DiskLogTest, NameThatIsMadeAgainStandsForTheOldOrTheNewOrNothing) {
  Put("/x", "old");
  Sync("/");
  Remove("/x");
  Put("/x", "new");
  EXPECT_THAT(States(), ElementsAre(Files{}, Files{{"/x", "new"}}, Files{{"/x", "old"}}));
  EXPECT_EQ(Without("remove /x"), (Files{{"/x", "new"}}));
}

TEST_F(DiskLogTest, NodeThatIsRenamedTwiceHasOneName) {
  Put("/a", "1");
  Sync("/");
  Rename("/a", "/b");
  Rename("/b", "/c");
  EXPECT_THAT(States(), ElementsAre(Files{{"/a", "1"}}, Files{{"/b", "1"}}, Files{{"/c", "1"}}));
}

TEST_F(DiskLogTest, LinkIsLostOrNotWhateverBecomesOfTheOtherName) {
  Put("/a", "1");
  MakeDirectory("/d");
  Put("/d/x", "old");
  Sync("/d");
  Sync("/");
  ASSERT_THAT(disk_.HardLink("/a", "/d/y"), IsOk());
  EXPECT_THAT(Unsynced(), ElementsAre("link /a to /d/y"));
  Rename("/d/y", "/d/x");
  const Files before = {{"/a", "1"}, {"/d/", ""}, {"/d/x", "old"}};
  const Files linked = {{"/a", "1"}, {"/d/", ""}, {"/d/x", "old"}, {"/d/y", "1"}};
  const Files after = {{"/a", "1"}, {"/d/", ""}, {"/d/x", "1"}};
  // A rename that is kept without the link before it leaves the file's other names alone.
  EXPECT_THAT(States(), UnorderedElementsAre(before, linked, after));
  Remove("/a");
  Sync("/d");
  Sync("/");
  EXPECT_THAT(States(), ElementsAre(Files{{"/d/", ""}, {"/d/x", "1"}}));
}

TEST_F(DiskLogTest, DirectoryWhoseNameIsLostIsGoneWithWhatIsInIt) {
  MakeDirectory("/d");
  Put("/d/x", "1");
  Sync("/d");
  EXPECT_THAT(States(), ElementsAre(Files{}, Files{{"/d/", ""}, {"/d/x", "1"}}));
  Rename("/d", "/e");
  EXPECT_EQ(Without("create directory /d"), (Files{{"/e/", ""}, {"/e/x", "1"}}));
}

TEST_F(DiskLogTest, RenameAcrossDirectoriesTakesTheSyncsOfBoth) {
  MakeDirectory("/d");
  Put("/x", "1");
  Sync("/");
  Rename("/x", "/d/y");
  const Files before = {{"/d/", ""}, {"/x", "1"}};
  const Files after = {{"/d/", ""}, {"/d/y", "1"}};
  EXPECT_THAT(States(), UnorderedElementsAre(before, after));
  Sync("/d");
  EXPECT_THAT(States(), UnorderedElementsAre(before, after));
  Sync("/");
  EXPECT_THAT(States(), UnorderedElementsAre(after));
}

TEST_F(DiskLogTest, DirectoryMovedIntoOneThatItOnceHeldIsGoneIfThatMoveIsLost) {
  MakeDirectory("/a");
  MakeDirectory("/a/b");
  Sync("/");
  Sync("/a");
  Rename("/a/b", "/b");
  Rename("/a", "/b/a");
  EXPECT_EQ(Without("rename /a/b to /b"), Files{}) << "each is in the other, and neither in the root";
  const DiskLog log = disk_.log();
  const size_t lost = log.Unsynced(log.operations.size()).front();
  SimulatedDisk booted(log.StateAfter(log.operations.size(), {{.index = lost}}));
  EXPECT_EQ(booted.log().boot.nodes.size(), 1u);
}

TEST_F(DiskLogTest, RemovedTreeMayComeBackInPart) {
  MakeDirectory("/d");
  Put("/d/x", "1");
  Sync("/d");
  Sync("/");
  ASSERT_THAT(RemoveTree(disk_, "/d"), IsOk());
  EXPECT_THAT(States(), ElementsAre(Files{}, Files{{"/d/", ""}}, Files{{"/d/", ""}, {"/d/x", "1"}}));
  // Once it is gone for good, nobody can tell what was in it.
  Sync("/");
  EXPECT_THAT(Unsynced(), IsEmpty());
}

TEST_F(DiskLogTest, WhatIsWrittenToAFileThatIsGoneForGoodMakesNoDifference) {
  auto file = disk_.Create("/x", false);
  ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span("1", 1))), IsOk());
  Remove("/x");
  EXPECT_THAT(Unsynced(), ElementsAre("create /x", "write /x [0, 1)", "remove /x"));
  Sync("/");
  EXPECT_THAT(Unsynced(), IsEmpty());
  ASSERT_THAT((*file)->WriteAt(1, std::as_bytes(std::span("2", 1))), IsOk());
  EXPECT_THAT(Unsynced(), IsEmpty());
}

TEST_F(DiskLogTest, RemovedFileThatAnotherDirectoryMayStillHaveCounts) {
  MakeDirectory("/d");
  auto file = disk_.Create("/x", false);
  Sync("/");
  Rename("/x", "/d/x");
  Remove("/d/x");
  Sync("/d");
  ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span("1", 1))), IsOk());
  EXPECT_THAT(Unsynced(), ElementsAre("rename /x to /d/x", "write /x [0, 1)"));
  EXPECT_EQ(Without("rename /x to /d/x"), (Files{{"/d/", ""}, {"/x", "1"}}));
  Sync("/");
  EXPECT_THAT(Unsynced(), IsEmpty());
}

TEST_F(DiskLogTest, WhatAFailedSyncShouldHaveCoveredIsCoveredByNoOther) {
  Put("/x", "abcd");
  Sync("/");
  auto file = disk_.OpenForRewrite("/x", false);
  ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span("X", 1))), IsOk());
  disk_.FailSync("/x");
  ASSERT_THAT((*file)->WriteAt(2, std::as_bytes(std::span("Y", 1))), IsOk());
  ASSERT_THAT((*file)->SyncData(), IsOk());
  EXPECT_THAT(Unsynced(), ElementsAre("write /x [0, 1)"));
  EXPECT_THAT(States(), ElementsAre(Files{{"/x", "XbYd"}}, Files{{"/x", "abYd"}}));
  // What is written again is as good as any other write.
  ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span("X", 1))), IsOk());
  ASSERT_THAT((*file)->SyncData(), IsOk());
  EXPECT_THAT(States(), ElementsAre(Files{{"/x", "XbYd"}}));
}

TEST_F(DiskLogTest, NamesThatAFailedSyncShouldHaveCoveredAreCoveredByNoOther) {
  MakeDirectory("/d");
  Put("/x", "1");
  disk_.FailSync("/");
  Rename("/x", "/d/x");
  Sync("/");
  disk_.FailSync("/d");
  Sync("/d");
  EXPECT_THAT(Unsynced(), ElementsAre("create directory /d", "create /x", "rename /x to /d/x"));
  EXPECT_EQ(Without("rename /x to /d/x"), (Files{{"/d/", ""}, {"/x", "1"}}));
  EXPECT_EQ(Without("create directory /d"), Files{});
}

TEST_F(DiskLogTest, WhatIsGoneForGoodIsInNoDoubt) {
  MakeDirectory("/d");
  auto file = disk_.Create("/d/x", false);
  ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span("1", 1))), IsOk());
  disk_.FailSync("/d/x");
  disk_.FailSync("/d");
  disk_.FailSync("/");
  ASSERT_THAT(RemoveTree(disk_, "/d"), IsOk());
  EXPECT_THAT(Unsynced(), testing::SizeIs(5));
  Sync("/");
  EXPECT_THAT(Unsynced(), IsEmpty());
}

TEST_F(DiskLogTest, RemovalThatAFailedSyncShouldHaveCoveredLeavesTheFileInDoubt) {
  Put("/x", "1");
  Remove("/x");
  disk_.FailSync("/");
  Sync("/");
  EXPECT_THAT(States(), ElementsAre(Files{}, Files{{"/x", "1"}}));
}

TEST_F(DiskLogTest, WriteIsTornAtSectorsCountedFromTheBeginningOfTheFile) {
  Put("/x", std::string(2000, 'a'));
  Sync("/");
  auto file = disk_.OpenForRewrite("/x", false);
  const std::string bytes(2000, 'b');
  ASSERT_THAT((*file)->WriteAt(500, std::as_bytes(std::span(bytes))), IsOk());
  const std::string line = "write /x [500, 2500)";
  const auto expected = [](std::initializer_list<std::pair<size_t, char>> runs) {
    std::string contents;
    for (const auto& [end, byte] : runs) contents.append(end - contents.size(), byte);
    return Files{{"/x", contents}};
  };
  EXPECT_EQ(Without(line, 0b00001), expected({{512, 'a'}, {2500, 'b'}}));
  EXPECT_EQ(Without(line, 0b00110), expected({{500, 'a'}, {512, 'b'}, {1536, 'a'}, {2500, 'b'}}));
  EXPECT_EQ(Without(line, 0b11000), expected({{500, 'a'}, {1536, 'b'}, {2000, 'a'}, {2500, '\0'}}));
  EXPECT_EQ(Without(line, 0b11111), expected({{2000, 'a'}, {2500, '\0'}})) << "the length without the bytes";
  EXPECT_EQ(Without(line), expected({{2000, 'a'}}));
}

TEST_F(DiskLogTest, BytesBehindAWriteThatIsLostAreThere) {
  auto file = disk_.Create("/x", false);
  Sync("/");
  ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span("ab", 2))), IsOk());
  ASSERT_THAT((*file)->WriteAt(2, std::as_bytes(std::span("cd", 2))), IsOk());
  EXPECT_EQ(Without("write /x [0, 2)"), (Files{{"/x", {"\0\0cd", 4}}}));
}

TEST_F(DiskLogTest, LosingWhatWasSyncedEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Put("/x", "1");
  const DiskLog log = disk_.log();
  EXPECT_DEATH(log.StateAfter(4), "more operations");
  EXPECT_DEATH(log.StateAfter(1, {{.index = 1}}), "have not happened yet");
  EXPECT_DEATH(log.StateAfter(3, {{.index = 1}}), "was synced");
  EXPECT_DEATH(log.StateAfter(1, {{.index = 0, .sector_mask = 1}}), "of what is no write");
}

// Files and directories under random operations, with what of them was synced told apart by a model that knows nothing
// of logs: names as they were at the last sync of their directory, bytes as at the last sync of their file, without
// what a sync that failed should have covered.
class RandomDisk {
 public:
  explicit RandomDisk(uint64_t seed) : random_(seed) { objects_[""] = std::make_shared<Object>(); }

  void DoSomething() {
    switch (random_() % 10) {
      case 0:
      case 1:
        return Create();
      case 2:
        return Write();
      case 3:
        return Rename();
      case 4:
        return Remove();
      case 5:
      case 6:
        return SyncDirectory();
      case 7:
        return FailSync();
      default:
        return SyncFile();
    }
  }
  Files Synced() const {
    Files files;
    AddSynced("", *objects_.at(""), files);
    return files;
  }
  SimulatedDisk& disk() { return disk_; }

 private:
  struct Object;
  using Names = std::map<std::string, std::shared_ptr<Object>>;
  struct Object {
    bool directory = true;
    std::string bytes, synced_bytes;
    Names names, synced_names;
    // Without what a failed sync should have covered.
    std::string sure_bytes;
    Names sure_names;
  };

  static void AddSynced(const std::string& path, const Object& directory, Files& files) {
    for (const auto& [name, object] : directory.synced_names) {
      const std::string below = path + "/" + name;
      files[object->directory ? below + "/" : below] = object->synced_bytes;
      if (object->directory) AddSynced(below, *object, files);
    }
  }
  // A random object that is or is not a directory; its path in `path`. Null if there is none.
  std::shared_ptr<Object> Pick(bool directory, std::string& path) {
    std::vector<std::pair<std::string, std::shared_ptr<Object>>> found;
    for (const auto& entry : objects_) {
      if (entry.second->directory == directory) found.push_back(entry);
    }
    if (found.empty()) return nullptr;
    path = found[random_() % found.size()].first;
    return objects_[path];
  }
  std::string SomeName() { return std::string(1, static_cast<char>('a' + random_() % 4)); }

  void Create() {
    std::string path;
    const auto parent = Pick(true, path);
    const std::string name = SomeName();
    if (parent->names.contains(name)) return;
    auto object = std::make_shared<Object>();
    object->directory = random_() % 3 == 0;
    parent->names[name] = object;
    parent->sure_names[name] = object;
    objects_[path + "/" + name] = object;
    if (object->directory) {
      EXPECT_THAT(disk_.CreateDirectory(path + "/" + name), IsOk());
    } else {
      EXPECT_THAT(disk_.Create(path + "/" + name, false), IsOk());
    }
  }
  void Write() {
    std::string path;
    const auto object = Pick(false, path);
    if (object == nullptr) return;
    const std::string bytes(random_() % 1500, static_cast<char>('a' + random_() % 26));
    const size_t offset = random_() % 1500;
    auto file = disk_.OpenForRewrite(path, false);
    ASSERT_THAT((*file)->WriteAt(offset, std::as_bytes(std::span(bytes))), IsOk());
    if (bytes.empty()) return;
    for (std::string* const written : {&object->bytes, &object->sure_bytes}) {
      if (written->size() < offset + bytes.size()) written->resize(offset + bytes.size());
      written->replace(offset, bytes.size(), bytes);
    }
  }
  void SyncFile() {
    std::string path;
    const auto object = Pick(false, path);
    if (object == nullptr) return;
    ASSERT_THAT((*disk_.OpenForRead(path, false))->SyncData(), IsOk());
    object->synced_bytes = object->sure_bytes;
  }
  void SyncDirectory() {
    std::string path;
    const auto object = Pick(true, path);
    ASSERT_THAT(disk_.SyncDirectory(path + "/"), IsOk());
    object->synced_names = object->sure_names;
  }
  void FailSync() {
    std::string path;
    const auto object = Pick(random_() % 2 == 0, path);
    if (object == nullptr) return;
    disk_.FailSync(path.empty() ? "/" : path);
    object->sure_bytes = object->synced_bytes;
    object->sure_names = object->synced_names;
  }
  // Within a directory: of moves between two the model knows nothing.
  void Rename() {
    std::string path;
    const auto parent = Pick(true, path);
    const std::string from = SomeName();
    const std::string to = SomeName();
    if (!disk_.Rename(path + "/" + from, path + "/" + to).ok() || from == to) return;
    const auto object = parent->names[from];
    for (Names* const names : {&parent->names, &parent->sure_names}) {
      std::erase_if(*names, [&](const auto& entry) { return entry.first == from || entry.second == object; });
      (*names)[to] = object;
    }
    Index();
  }
  void Remove() {
    std::string path;
    const auto parent = Pick(true, path);
    const std::string name = SomeName();
    if (!disk_.RemoveFile(path + "/" + name).ok() && !disk_.RemoveDirectory(path + "/" + name).ok()) return;
    parent->names.erase(name);
    parent->sure_names.erase(name);
    Index();
  }
  void Index() {
    const auto root = objects_[""];
    objects_.clear();
    AddObject("", root);
  }
  void AddObject(const std::string& path, const std::shared_ptr<Object>& object) {
    objects_[path] = object;
    for (const auto& [name, child] : object->names) AddObject(path + "/" + name, child);
  }

  SimulatedDisk disk_;
  std::map<std::string, std::shared_ptr<Object>> objects_;  // by path
  std::mt19937_64 random_;
};

TEST_F(DiskLogTest, WithoutAllThatIsUnsyncedThereIsWhatAModelSaysWasSynced) {
  for (uint32_t run = 0; run < 50; ++run) {
    const uint32_t seed = SeedOfCases() + run;
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    RandomDisk random(seed);
    for (int i = 0; i < 60; ++i) {
      random.DoSomething();
      const DiskLog log = random.disk().log();
      std::vector<LostOperation> lost;
      for (const size_t index : log.Unsynced(log.operations.size())) lost.push_back({.index = index});
      ASSERT_EQ(log.StateAfter(log.operations.size(), lost).Contents(), random.Synced()) << "after " << i;
      ASSERT_EQ(log.StateAfter(log.operations.size()).Contents(), random.disk().image().Contents());
    }
  }
}

}  // namespace
}  // namespace tidemark::storage
