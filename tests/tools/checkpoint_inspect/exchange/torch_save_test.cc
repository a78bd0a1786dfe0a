#include "tools/checkpoint_inspect/exchange/torch_save.h"

#include <zlib.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "snapshot/exchange/zip_format.h"
#include "tests/snapshot/exchange/torch_pickle_testing.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tidemark/store_reader.h"

namespace tidemark::inspect {
namespace {

using testing::HasSubstr;

std::string ContentsOf(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string TorchFile(const std::string& name) { return std::string(TORCH_FILES) + "/" + name; }

std::string BytesOf(const TensorSource& source, size_t entry) {
  std::string bytes(source.entries()[entry].bytes, '\0');
  const StepReader::Window window{.entry = entry, .destination = std::as_writable_bytes(std::span(bytes))};
  EXPECT_EQ(source.Read({&window, 1}), absl::OkStatus());
  return bytes;
}

// Names, types, shapes and bytes of what a file has.
std::map<std::string, std::string> Everything(const TensorSource& source) {
  std::map<std::string, std::string> all;
  for (size_t i = 0; i < source.entries().size(); ++i) {
    const EntrySpec& spec = source.entries()[i].spec;
    all[spec.name] = DescribeEntry(spec) + BytesOf(source, i);
  }
  return all;
}

template <typename T>
std::vector<T> NumbersOf(const TensorSource& source, const std::string& name) {
  for (size_t i = 0; i < source.entries().size(); ++i) {
    if (source.entries()[i].spec.name != name) continue;
    const std::string bytes = BytesOf(source, i);
    std::vector<T> numbers(bytes.size() / sizeof(T));
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }
  ADD_FAILURE() << "no tensor " << name;
  return {};
}

class TorchSaveTest : public testing::Test {
 protected:
  TorchSaveTest() { std::filesystem::create_directories(folder_); }

  // A file as torch.save writes it, with the checksums of its records.
  void Write(const std::string& pickle, const std::map<std::string, std::string>& records = {},
             const std::string& pickle_name = "a/data.pkl") const {
    std::string archive;
    std::vector<ZipMember> members;
    const auto add = [&](const std::string& name, const std::string& bytes) {
      const auto crc = static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
      members.push_back({.name = name, .bytes = bytes.size(), .offset = archive.size(), .crc = crc});
      archive += EncodeZipMemberHeader(members.back()) + bytes;
    };
    add(pickle_name, pickle);
    for (const auto& [name, bytes] : records) add(name, bytes);
    WriteWhole(path_, archive + EncodeZipDirectory(members, archive.size()));
  }

  void ExpectRefused(absl::StatusCode code, const std::string& message) const {
    FileMetadata metadata(/*with_step=*/true);
    const auto source = OpenTorchSave(path_, &metadata);
    EXPECT_EQ(source.status().code(), code) << source.status();
    EXPECT_THAT(std::string(source.status().message()), testing::StartsWith(path_ + ": "));
    EXPECT_THAT(std::string(source.status().message()), HasSubstr(message));
  }

  TestStore store_;  // a folder that is removed afterwards
  const std::string folder_ = store_.directory() + "/files";
  const std::string path_ = folder_ + "/file.pt";
};

TEST_F(TorchSaveTest, AFileOfPyTorchGivesItsTensorsRowMajor) {
  FileMetadata metadata(/*with_step=*/true);
  std::string left_out;
  const auto opened = OpenTorchSave(TorchFile("nested.pt"), &metadata, &left_out);
  ASSERT_TRUE(opened.ok()) << opened.status();
  const TensorSource& source = **opened;
  EXPECT_EQ(source.entries().size(), 13u);
  EXPECT_THAT(NumbersOf<float>(source, "model.weight"), testing::ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(NumbersOf<float>(source, "model.turned"), testing::ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(NumbersOf<float>(source, "model.part"), testing::ElementsAre(4, 5));
  EXPECT_THAT(NumbersOf<uint16_t>(source, "model.brain"), testing::ElementsAre(0x3f80, 0xc000, 0x3f00));
  EXPECT_THAT(NumbersOf<uint16_t>(source, "model.half"), testing::ElementsAre(0x3e00));
  EXPECT_THAT(NumbersOf<uint8_t>(source, "model.flags"), testing::ElementsAre(1, 0));
  EXPECT_THAT(NumbersOf<int64_t>(source, "model.counts"), testing::ElementsAre(1, -1));
  EXPECT_THAT(NumbersOf<float>(source, "model.phases"), testing::ElementsAre(1, 2));
  EXPECT_THAT(NumbersOf<uint8_t>(source, "model.image"),
              testing::ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  EXPECT_TRUE(NumbersOf<float>(source, "model.empty").empty());
  EXPECT_THAT(NumbersOf<double>(source, "model.scalar"), testing::ElementsAre(2.5));
  EXPECT_THAT(NumbersOf<float>(source, "model.parameter"), testing::ElementsAre(7));
  EXPECT_THAT(NumbersOf<float>(source, "optimizer.state.0.exp_avg"), testing::ElementsAre(1, 1));
  EXPECT_EQ(Everything(source).at("model.brain").substr(0, 12), "bfloat16 [3]");

  ASSERT_EQ(metadata.ties().size(), 1u);
  EXPECT_EQ(metadata.ties()[0].name, "model.tied");
  EXPECT_EQ(metadata.ties()[0].tied_to, "model.weight");
  EXPECT_THAT(left_out, HasSubstr("left out 2 objects that are neither tensors nor plain values: 'arguments' of "
                                  "argparse.Namespace, ..."));
  const auto text = metadata.UserMetadata({"nested.pt"});
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_EQ(ParseJson(*text), nlohmann::json({{"imported_from", {"nested.pt"}},
                                              {"done", "true"},
                                              {"epoch", "3"},
                                              {"loss", "NaN"},
                                              {"name", "a \u00fc"},
                                              {"optimizer.groups.0.fused", "null"},
                                              {"optimizer.groups.0.lr", "0.1"},
                                              {"optimizer.groups.0.params", "[0,1]"}}));
}

TEST_F(TorchSaveTest, AnImportCommitsAStepWithTiesAndSaysWhatItLeftOut) {
  const std::string store = store_.directory() + "/store";
  const Finished finished = RunInspect(
      {"--store", store, "import", TorchFile("nested.pt"), "--step", "7", "--create", "--metric", "loss=0.5"});
  EXPECT_EQ(finished.exit_code, 0) << finished.err;
  EXPECT_THAT(finished.out, HasSubstr("step 7: 14 entries"));
  EXPECT_THAT(finished.err, HasSubstr("left out 2 objects"));
  const auto reader = StoreReader::Open(store);
  ASSERT_TRUE(reader.ok()) << reader.status();
  const auto turned = (*reader)->ReadEntry(7, "model.turned");
  ASSERT_TRUE(turned.ok()) << turned.status();
  EXPECT_EQ(turned->size(), 24u);
  const auto shown = RunInspectJson({"--store", store, "--json", "show", "7"});
  EXPECT_EQ(shown.at("step").at("user_metadata").at("epoch"), "3");
  bool is_tied = false;
  for (const auto& entry : shown.at("entries")) {
    if (entry.at("name") == "model.tied") is_tied = entry.at("tied_to") == "model.weight";
  }
  EXPECT_TRUE(is_tied);
  EXPECT_EQ(RunInspect({"--store", store, "verify"}).exit_code, 0);
}

TEST_F(TorchSaveTest, WindowsOfATurnedTensorAreItsParts) {
  const auto opened = OpenTorchSave(TorchFile("nested.pt"));
  ASSERT_TRUE(opened.ok()) << opened.status();
  size_t turned = 0;
  while ((*opened)->entries()[turned].spec.name != "model.turned") ++turned;
  const std::string whole = BytesOf(**opened, turned);
  for (size_t begin = 0; begin <= whole.size(); begin += 4) {
    for (size_t end = begin; end <= whole.size(); end += 4) {
      std::string part(end - begin, '\0');
      const StepReader::Window window{
          .entry = turned, .offset = begin, .destination = std::as_writable_bytes(std::span(part))};
      ASSERT_EQ((*opened)->Read({&window, 1}), absl::OkStatus());
      EXPECT_EQ(part, whole.substr(begin, end - begin));
    }
  }
  char byte = 0;
  StepReader::Window window{.entry = turned, .offset = 24, .destination = std::as_writable_bytes(std::span(&byte, 1))};
  EXPECT_TRUE(absl::IsOutOfRange((*opened)->Read({&window, 1})));
  window.offset = 2;
  EXPECT_TRUE(absl::IsInvalidArgument((*opened)->Read({&window, 1})));
  window.entry = 99;
  EXPECT_TRUE(absl::IsInvalidArgument((*opened)->Read({&window, 1})));
}

// More than kGatheredBytesMax between the first element and the last, in a file that is mostly a hole.
TEST_F(TorchSaveTest, ATensorThatIsTooLargeToGatherIsReadPieceByPiece) {
  using namespace pickled;  // NOLINT: its instructions are what these files consist of
  const int32_t stride = kGatheredBytesMax / 4;
  std::string record(kGatheredBytesMax + 4, '\0');
  record[0] = 1;
  record[record.size() - 4] = 2;
  Write(Whole(Dict({Text("t"), Tensor("0", 0, {2}, {stride}), Text("all"), Tensor("0", 0, {stride + 1}, {1})})),
        {{"a/data/0", record}});
  const auto opened = OpenTorchSave(path_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(BytesOf(**opened, 0), std::string("\1\0\0\0\2\0\0\0", 8));
}

// Either an error that begins with the path, or the same tensors: what is flipped may be the time of a record.
TEST_F(TorchSaveTest, EveryDamagedByteAndEveryTruncationIsFoundOrHarmless) {
  const std::string whole = ContentsOf(TorchFile("nested.pt"));
  const auto sound = OpenTorchSave(TorchFile("nested.pt"));
  ASSERT_TRUE(sound.ok()) << sound.status();
  const auto expected = Everything(**sound);
  size_t refused = 0;
  for (size_t at = 0; at < whole.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xff}) {
      std::string damaged = whole;
      damaged[at] = static_cast<char>(damaged[at] ^ flip);
      WriteWhole(path_, damaged);
      const auto opened = OpenTorchSave(path_);
      if (opened.ok()) {
        EXPECT_EQ(Everything(**opened), expected) << at;
        continue;
      }
      ++refused;
      EXPECT_THAT(std::string(opened.status().message()), testing::StartsWith(path_ + ": "));
      EXPECT_NE(opened.status().code(), absl::StatusCode::kInternal) << opened.status();
    }
    WriteWhole(path_, whole.substr(0, at));
    EXPECT_FALSE(OpenTorchSave(path_).ok()) << at;
  }
  EXPECT_GT(refused, whole.size());
}

TEST_F(TorchSaveTest, OldFormatsAreRefusedWithTheWayToConvertThem) {
  for (const std::string& bytes : {ContentsOf(TorchFile("legacy.pt")), std::string(257, '\0') + "ustar" + "000"}) {
    WriteWhole(path_, bytes);
    EXPECT_TRUE(IsTorchSave(path_).value());
    ExpectRefused(absl::StatusCode::kInvalidArgument,
                  "torch.save(torch.load('OLD', map_location='cpu', weights_only=True), 'NEW')");
  }
  const Finished finished =
      RunInspect({"--store", store_.directory() + "/store", "import", path_, "--step", "0", "--create"});
  EXPECT_EQ(finished.exit_code, 1);
  EXPECT_THAT(finished.err, HasSubstr("before PyTorch 1.6"));
  EXPECT_FALSE(std::filesystem::exists(store_.directory() + "/store"));
}

TEST_F(TorchSaveTest, OtherFilesAreTold) {
  using enum absl::StatusCode;
  using namespace pickled;  // NOLINT
  EXPECT_EQ(IsTorchSave(path_).status().code(), kNotFound);
  WriteWhole(path_, "");
  EXPECT_FALSE(IsTorchSave(path_).value());
  ExpectRefused(kInvalidArgument, "it is not a file of torch.save");
  WriteWhole(path_, std::string("\x80\x02\0\0\0\0\0\0{", 9));  // a safetensors file with a header of 640 bytes
  EXPECT_FALSE(IsTorchSave(path_).value());
  Write(Whole(Integer(1)), {}, "a/w.npy");
  ExpectRefused(kInvalidArgument, "without a record data.pkl");
  Write(Whole(Integer(1)), {{"b/data/0", "x"}});
  ExpectRefused(kInvalidArgument, "it has records in 'a' and 'b'");
  Write(Whole(Integer(1)));
  ExpectRefused(kInvalidArgument, "it has no tensors");
  Write("\x80\x02Y.");
  ExpectRefused(kUnimplemented, "0x59 at byte 2");
  Write(Whole(Tensor("0", 0, {1}, {1})), {{"a/byteorder", "big"}, {"a/data/0", "1234"}});
  ExpectRefused(kUnimplemented, "big-endian");
  Write(Whole(Dict({Text("t"), Tensor("9", 0, {1}, {1})})), {{"a/data/0", "1234"}});
  ExpectRefused(kDataLoss, "'t': the record data/9 is absent");
  Write(Whole(Dict({Text("v"), Integer(1), Text("v"), Integer(2), Text("t"), Tensor("0", 0, {1}, {1})})),
        {{"a/data/0", "1234"}});
  ExpectRefused(kInvalidArgument, "two values have the name 'v'; --metadata replaces them");
}

TEST_F(TorchSaveTest, AFileThatShrinksMeanwhileIsDamaged) {
  using namespace pickled;  // NOLINT
  Write(Whole(Dict({Text("t"), Tensor("0", 0, {1}, {1})})), {{"a/data/0", "1234"}});
  const auto opened = OpenTorchSave(path_);
  ASSERT_TRUE(opened.ok()) << opened.status();
  std::filesystem::resize_file(path_, 10);
  std::string bytes(4, '\0');
  const StepReader::Window window{.entry = 0, .destination = std::as_writable_bytes(std::span(bytes))};
  EXPECT_TRUE(absl::IsDataLoss((*opened)->Read({&window, 1})));
}

}  // namespace
}  // namespace tidemark::inspect
