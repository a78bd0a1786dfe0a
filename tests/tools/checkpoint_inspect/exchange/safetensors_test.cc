#include "tools/checkpoint_inspect/exchange/safetensors.h"

#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "gmock/gmock.h"
#include "snapshot/exchange/safetensors_header.h"
#include "snapshot/exchange/safetensors_index.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class SafetensorsTest : public testing::Test {
 protected:
  SafetensorsTest() { fs::create_directories(folder_); }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  // A file with one tensor of these bytes, behind one of none.
  void WriteFile(const std::string& name, const std::string& tensor, std::string_view bytes) const {
    SafetensorsHeader header;
    header.tensors = {{tensor + ".none", Dtype::kFloat32, {0}, 0, 0},
                      {tensor, Dtype::kUint8, {static_cast<int64_t>(bytes.size())}, 0, bytes.size()}};
    WriteWhole(Path(name), EncodeSafetensorsHeader(header).value() + std::string(bytes));
  }

  static std::string Read(const TensorSource& source, size_t entry) {
    std::string bytes(source.entries()[entry].bytes, '\0');
    const StepReader::Window window{.entry = entry, .destination = std::as_writable_bytes(std::span(bytes))};
    EXPECT_EQ(source.Read({&window, 1}), absl::OkStatus());
    return bytes;
  }

  void ExpectRefused(const std::string& name, absl::StatusCode code, const std::string& message) const {
    const auto source = OpenSafetensors(Path(name));
    EXPECT_EQ(source.status().code(), code) << source.status();
    EXPECT_THAT(std::string(source.status().message()), HasSubstr(message));
  }

  TestStore store_;  // a folder that is removed afterwards
  const std::string folder_ = store_.directory() + "/files";
};

TEST_F(SafetensorsTest, AFileGivesItsTensors) {
  WriteFile("a", "w", "hello");
  const auto source = OpenSafetensors(Path("a"));
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_EQ((*source)->name(), Path("a"));
  EXPECT_EQ((*source)->chunk_bytes(), 1u);
  ASSERT_EQ((*source)->entries().size(), 2u);
  const StoredEntry& entry = (*source)->entries()[1];
  EXPECT_EQ(entry.spec, (EntrySpec{.name = "w", .dtype = Dtype::kUint8, .shape = {5}}));
  EXPECT_EQ(entry.bytes, 5u);
  EXPECT_EQ(entry.digest, "");
  EXPECT_EQ(Read(**source, 1), "hello");
}

TEST_F(SafetensorsTest, AWindowMustLieInItsEntry) {
  WriteFile("a", "w", "hello");
  const auto source = OpenSafetensors(Path("a"));
  ASSERT_TRUE(source.ok()) << source.status();
  char byte = 0;
  const std::span<std::byte> destination = std::as_writable_bytes(std::span(&byte, 1));
  StepReader::Window window{.entry = 1, .offset = 4, .destination = destination};
  EXPECT_EQ((*source)->Read({&window, 1}), absl::OkStatus());
  EXPECT_EQ(byte, 'o');
  window.offset = 5;
  EXPECT_TRUE(absl::IsOutOfRange((*source)->Read({&window, 1})));
  window = {.entry = 2, .destination = destination};
  EXPECT_TRUE(absl::IsInvalidArgument((*source)->Read({&window, 1})));
}

TEST_F(SafetensorsTest, AFileThatShrinksMeanwhileIsDamaged) {
  WriteFile("a", "w", "hello");
  const auto source = OpenSafetensors(Path("a"));
  ASSERT_TRUE(source.ok()) << source.status();
  fs::resize_file(Path("a"), fs::file_size(Path("a")) - 1);
  std::string bytes(5, '\0');
  const StepReader::Window window{.entry = 1, .destination = std::as_writable_bytes(std::span(bytes))};
  const absl::Status status = (*source)->Read({&window, 1});
  EXPECT_TRUE(absl::IsDataLoss(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("became shorter while it was read"));
}

TEST_F(SafetensorsTest, AnIndexGivesTheTensorsOfItsFiles) {
  WriteFile("1", "v", "one");
  WriteFile("2", "w", "two");
  const SafetensorsFiles files = {{"v", "1"}, {"v.none", "1"}, {"w", "2"}, {"w.none", "2"}};
  WriteWhole(Path("m.safetensors.index.json"), EncodeSafetensorsIndex(files, 6));
  const auto source = OpenSafetensors(Path("m.safetensors.index.json"));
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ((*source)->entries().size(), 4u);
  EXPECT_EQ((*source)->entries()[3].spec.name, "w");
  EXPECT_EQ(Read(**source, 1), "one");
  EXPECT_EQ(Read(**source, 3), "two");
}

TEST_F(SafetensorsTest, AnIndexAndItsFilesMustAgree) {
  using enum absl::StatusCode;
  const std::string name = "m.safetensors.index.json";
  WriteFile("1", "v", "one");
  WriteWhole(Path(name), EncodeSafetensorsIndex({{"v", "1"}}, 3));
  ExpectRefused(name, kDataLoss, "1: tensor 'v.none' is in the file, but the index has another file for it");
  WriteWhole(Path(name), EncodeSafetensorsIndex({{"v", "1"}, {"v.none", "1"}, {"w", "1"}}, 3));
  ExpectRefused(name, kDataLoss, "1: tensor 'w' is in the index but not in the file");
  WriteWhole(Path(name), EncodeSafetensorsIndex({{"v", "gone"}}, 3));
  ExpectRefused(name, kNotFound, "gone");
  WriteWhole(Path(name), EncodeSafetensorsIndex({{"v", "../1"}}, 3));
  ExpectRefused(name, kDataLoss, "which is not a plain file name");
  fs::resize_file(Path(name), kSafetensorsIndexBytesMax + 1);
  ExpectRefused(name, kDataLoss, "where at most 100000000 are expected");
}

TEST_F(SafetensorsTest, WhatIsNoSuchFileIsRefusedByName) {
  using enum absl::StatusCode;
  ExpectRefused("none", kNotFound, "none");
  WriteWhole(Path("short"), "1234567");
  ExpectRefused("short", kDataLoss, "short: 7 bytes are too short for a safetensors file");
  WriteWhole(Path("long"), std::string(8, '\xff') + "{}");
  ExpectRefused("long", kDataLoss,
                "long: not a safetensors file: length of the header at byte 0: expected 2 to 100000000 bytes");
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  ExpectRefused("fifo", kFailedPrecondition, "a fifo, not a regular file");
  ExpectRefused("", kFailedPrecondition, "a directory, not a regular file");
}

// Downloads of models are links to where they are cached.
TEST_F(SafetensorsTest, LinksAreFollowed) {
  WriteFile("a", "w", "hello");
  fs::create_symlink("a", Path("link"));
  EXPECT_TRUE(OpenSafetensors(Path("link")).ok());
  WriteWhole(Path("m.safetensors.index.json"), EncodeSafetensorsIndex({{"w", "link"}, {"w.none", "link"}}, 5));
  EXPECT_TRUE(OpenSafetensors(Path("m.safetensors.index.json")).ok());
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0600), 0);
  fs::create_symlink("fifo", Path("link to a fifo"));
  ExpectRefused("link to a fifo", absl::StatusCode::kFailedPrecondition, "a fifo, not a regular file");
}

}  // namespace
}  // namespace tidemark::inspect
