#include "tests/storage/io/disk_image.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/disk_log.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

using testing::Pair;
using testing::UnorderedElementsAre;

DiskOperation Write(uint64_t offset, std::string bytes) {
  return {.kind = DiskOperation::Kind::kWrite,
          .offset = offset,
          .bytes = std::make_shared<const std::string>(std::move(bytes))};
}
DiskOperation Truncate(uint64_t size) { return {.kind = DiskOperation::Kind::kTruncate, .offset = size}; }

DiskImage::Node FileOf(std::string bytes) {
  return {.type = FileType::kRegular, .bytes = std::make_shared<const FileContents>(std::move(bytes))};
}

// "/d/x" with these bytes, and an empty file "/y"; the nodes have numbers from `first` on.
DiskImage ImageOf(std::string bytes, uint64_t first = 2) {
  DiskImage image;
  image.nodes[DiskImage::kRoot].names = {{"d", first}, {"y", first + 2}};
  image.nodes[first].names = {{"x", first + 1}};
  image.nodes[first + 1] = FileOf(std::move(bytes));
  image.nodes[first + 2] = {.type = FileType::kRegular};
  return image;
}

TEST(FileContents, ZerosAtTheEndTakeNoMemory) {
  FileContents contents("ab");
  contents.Apply({.kind = DiskOperation::Kind::kAllocate, .offset = uint64_t{1} << 29});
  EXPECT_EQ(contents.size(), uint64_t{1} << 29);
  EXPECT_EQ(contents.data(), "ab");
  std::vector<std::byte> read(4, std::byte{7});
  EXPECT_EQ(contents.Read(1, read), 4u);
  EXPECT_EQ(std::memcmp(read.data(), "b\0\0\0", 4), 0);
  EXPECT_EQ(contents.Read((uint64_t{1} << 29) - 3, read), 3u);
  EXPECT_EQ(contents.Read(uint64_t{1} << 29, read), 0u);
}

TEST(FileContents, WhatWasCutOffIsGoneWhenTheFileGrowsAgain) {
  FileContents contents("abcd");
  contents.Apply(Truncate(1));
  contents.Apply(Truncate(3));
  EXPECT_EQ(contents.ToString(), std::string("a\0\0", 3));
  contents.Apply(Write(5, "x"));
  EXPECT_EQ(contents.ToString(), std::string("a\0\0\0\0x", 6));
}

TEST(FileContents, HashIsThatOfTheBytesHoweverTheyCameAbout) {
  FileContents grown("a");
  grown.Apply(Truncate(3));
  const FileContents written(std::string("a\0\0", 3));
  EXPECT_EQ(grown.Hash(), written.Hash());
  EXPECT_NE(grown.Hash(), FileContents(std::string("a\0", 2)).Hash()) << "the size counts";
  const uint64_t before = grown.Hash();
  grown.Apply(Write(1, "b"));
  EXPECT_NE(grown.Hash(), before);
  EXPECT_EQ(FileContents(grown).Hash(), grown.Hash());
}

TEST(DiskImage, FingerprintIsOfPathsAndContents) {
  const uint64_t fingerprint = ImageOf("1").Fingerprint();
  EXPECT_EQ(ImageOf("1", 20).Fingerprint(), fingerprint) << "numbers of nodes do not count";
  EXPECT_NE(ImageOf("2").Fingerprint(), fingerprint);
  DiskImage changed = ImageOf("1");
  changed.time = 17;
  changed.nodes[99] = FileOf("an orphan");
  EXPECT_EQ(changed.Fingerprint(), fingerprint) << "neither do the time, nor what no path leads to";
  changed.RemoveOrphans();
  EXPECT_EQ(changed.nodes.size(), 4u);
  DiskImage renamed = ImageOf("1");
  renamed.nodes[2].names = {{"z", 3}};
  EXPECT_NE(renamed.Fingerprint(), fingerprint);
  DiskImage emptied = ImageOf("1");
  emptied.nodes[4].type = FileType::kDirectory;
  EXPECT_NE(emptied.Fingerprint(), fingerprint) << "types count";
  // "/d/x", "/y" against "/d", "/x", "/y": the order of names is the same.
  DiskImage flat = ImageOf("1");
  flat.nodes[2].names = {};
  flat.nodes[DiskImage::kRoot].names.Edit()["x"] = 3;
  EXPECT_NE(flat.Fingerprint(), fingerprint);
}

TEST(DiskImage, CopiesShareContentsUntilTheyAreChanged) {
  const DiskImage image = ImageOf("1");
  ImageEditor editor(image);
  EXPECT_EQ(editor.image().nodes.at(3).bytes, image.nodes.at(3).bytes);
  DiskOperation write = Write(1, "2");
  write.node = 3;
  editor.Apply(write);
  const DiskImage changed = editor.image();
  editor.Apply(write);
  EXPECT_EQ(changed.Contents().at("/d/x"), "12");
  EXPECT_NE(editor.image().nodes.at(3).bytes, changed.nodes.at(3).bytes);
  EXPECT_EQ(image.Contents().at("/d/x"), "1");
}

TEST(DiskImage, CopiesShareTheNamesOfAFolderUntilTheyAreEdited) {
  const DiskImage image = ImageOf("1");
  DiskImage copy = image;
  EXPECT_EQ(&*copy.nodes.at(2).names, &*image.nodes.at(2).names);
  ImageEditor editor(copy);
  editor.Apply({.kind = DiskOperation::Kind::kRemove, .node = 3, .parent = 2, .name = "x"});
  EXPECT_TRUE(editor.image().nodes.at(2).names->empty());
  copy.nodes.at(2).names.Edit()["z"] = 4;
  EXPECT_EQ(copy.nodes.at(2).names->size(), 2u);
  EXPECT_EQ(image.nodes.at(2).names->size(), 1u);
  EXPECT_EQ(DirectoryNames()->size(), 0u);
}

TEST(DiskNodes, AreInTheOrderOfTheirNumbersHoweverTheyCome) {
  DiskNodes nodes = {{1, DiskNode{}}};
  for (const uint64_t number : {9, 3, 5, 3}) nodes[number].type = FileType::kRegular;
  std::vector<uint64_t> numbers;
  for (const auto& [number, node] : nodes) numbers.push_back(number);
  EXPECT_THAT(numbers, testing::ElementsAre(1, 3, 5, 9));
  EXPECT_EQ(nodes.Find(4), nullptr);
  EXPECT_EQ(nodes.Find(10), nullptr);
  EXPECT_EQ(nodes.Find(5), &nodes.at(5));
  nodes.RemoveIf([](uint64_t number) { return number > 4; });
  EXPECT_EQ(nodes.size(), 2u);
  EXPECT_EQ(nodes.back().first, 3u);
}

TEST(DiskImage, IsExportedForAPersonToLookAt) {
  const TestDirectory directory;
  DiskImage image = ImageOf(std::string("a\0b", 3));
  image.nodes[2].names.Edit()["z"] = 9;
  image.nodes[9] = {.type = FileType::kOther};
  EXPECT_THAT(image.Contents(), UnorderedElementsAre(Pair("/d/", ""), Pair("/d/x", std::string("a\0b", 3)),
                                                     Pair("/d/z", ""), Pair("/y", "")));
  ASSERT_THAT(image.ExportTo(directory.path()), IsOk());
  std::ifstream in(directory / "d/x");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), std::string("a\0b", 3));
  EXPECT_EQ(std::filesystem::file_size(directory / "y"), 0u);
  EXPECT_TRUE(std::filesystem::is_symlink(directory / "d/z"));
  EXPECT_THAT(image.ExportTo(directory / "none"),
              StatusIs(absl::StatusCode::kInternal, testing::HasSubstr("export " + directory.path() + "/none/d: ")));
}

}  // namespace
}  // namespace tidemark::storage
