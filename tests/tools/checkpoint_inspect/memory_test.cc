// Holds the bound on memory that docs/checkpoint-inspect.md states, with a step of twice its size and with one of many
// entries.

#include <filesystem>
#include <fstream>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "snapshot/exchange/safetensors_header.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kResidentKibMax = 256 << 10;

// The larger tensor alone is more than the bound, so who holds a tensor is found, and not only who holds a step.
constexpr uint64_t kLargeBytes = uint64_t{384} << 20;
constexpr uint64_t kBytes = uint64_t{512} << 20;

// Floats that do not compress: all of their bits but one, which keeps them finite, are random. Written a piece at a
// time, since what this process holds when it forks counts as the child's.
void WriteModel(const std::string& path) {
  const SafetensorsHeader header{
      .tensors = {{"large", Dtype::kFloat32, {int64_t{kLargeBytes / 4}}, 0, kLargeBytes},
                  {"small", Dtype::kFloat32, {int64_t{(kBytes - kLargeBytes) / 4}}, kLargeBytes, kBytes}}};
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << EncodeSafetensorsHeader(header).value();
  constexpr size_t kPieceBytes = 1 << 20;
  std::vector<uint64_t> piece(kPieceBytes / sizeof(uint64_t));
  uint64_t random = 1;  // Xorshift
  for (uint64_t written = 0; written < kBytes; written += kPieceBytes) {
    for (uint64_t& number : piece) {
      random ^= random << 13;
      random ^= random >> 7;
      random ^= random << 17;
      number = random & 0xbfffffffbfffffff;
    }
    file.write(reinterpret_cast<const char*>(piece.data()), kPieceBytes);
  }
  EXPECT_TRUE(file.flush()) << path;
}

// Other numbers at the end of both tensors.
void ChangeModel(const std::string& path) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  for (const uint64_t from_end : {kBytes - kLargeBytes + 4, uint64_t{4}}) {
    file.seekp(-static_cast<std::streamoff>(from_end), std::ios::end);
    file.write("\0\0\0", 4);
  }
  EXPECT_TRUE(file.flush()) << path;
}

// As large models have them in all of their files, each a number of its own, so that none has the bytes of another.
void WriteManyTensors(const std::string& path, float first) {
  constexpr uint64_t kTensors = 100'000;
  SafetensorsHeader header;
  std::vector<float> numbers;
  for (uint64_t i = 0; i < kTensors; ++i) {
    header.tensors.push_back({fmt::format("layer.{}.w", i), Dtype::kFloat32, {1}, 4 * i, 4 * i + 4});
    numbers.push_back(first + static_cast<float>(i));
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << EncodeSafetensorsHeader(header).value();
  file.write(reinterpret_cast<const char*>(numbers.data()), 4 * kTensors);
  EXPECT_TRUE(file.flush()) << path;
}

// Those of a step that was exported: 20,000 numbers, more than are read at once, and 60 texts of a megabyte.
void WriteManyValues(const std::string& path) {
  SafetensorsHeader header{.metadata = {{"tidemark.step", "1"}, {"tidemark.store", std::string(32, '7')}}};
  const auto add = [&](const std::string& name, std::string text, const std::string& kind) {
    header.metadata[name] = std::move(text);
    header.metadata["tidemark.kind." + name] = kind;
  };
  for (int i = 0; i < 20'000; ++i) add(fmt::format("step.{}", i), fmt::format("{}", 7 * i), "int64");
  for (int i = 0; i < 60; ++i) {
    add(fmt::format("text.{}", i), std::string(1 << 20, static_cast<char>('a' + i % 26)), "string");
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << EncodeSafetensorsHeader(header).value();
  EXPECT_TRUE(file.flush()) << path;
}

class Memory : public testing::Test {
 protected:
  void SetUp() override {
    if (storage::kAddressSanitizer || storage::kThreadSanitizer) GTEST_SKIP() << "the sanitizer takes memory itself";
  }

  // What the command prints is dropped, for what this process keeps of it the next child would begin with.
  void Holds(std::vector<std::string> arguments, int exit_code = 0) const {
    SCOPED_TRACE(testing::PrintToString(arguments));
    arguments.insert(arguments.begin(), {"--store", store_.directory()});
    const Finished finished = RunInspect(arguments, {.out_path = "/dev/null"});
    EXPECT_EQ(finished.exit_code, exit_code) << finished.err;
    EXPECT_GT(finished.resident_kib_max, 0);
    EXPECT_LT(finished.resident_kib_max, kResidentKibMax);
    fs::remove_all(out_);
  }

  const TestStore store_;
  const TestStore files_;  // a folder that is removed afterwards
  const std::string model_ = files_.directory() + "/model.safetensors";
  const std::string out_ = files_.directory() + "/out";
};

// One test, for the store takes longer to make than most of the commands to run.
TEST_F(Memory, StaysWithinTheBoundWhateverTheSizeOfAStep) {
  WriteModel(model_);
  Holds({"import", model_, "--step", "1", "--create"});
  ASSERT_GT(fs::file_size(store_.ShardPath(1)), kBytes / 100 * 95) << "it compresses";
  ChangeModel(model_);
  Holds({"diff", "1", model_}, 1);
  Holds({"import", model_, "--step", "2"});
  fs::remove(model_);
  Holds({"verify", "1"});
  Holds({"verify", "--read-data=10%"});
  Holds({"tensors", "1", "--stats"});
  Holds({"report", "-o", out_});
  Holds({"repair"});
  for (const char* format : {"npz", "raw", "safetensors"}) Holds({"export", "1", "-o", out_, "--format", format});
}

TEST_F(Memory, StaysWithinTheBoundWithAHundredThousandEntries) {
  WriteManyTensors(model_, 0.25F);
  Holds({"import", model_, "--step", "1", "--create"});
  WriteManyTensors(model_, 0.5F);
  Holds({"import", model_, "--step", "2"});
  Holds({"diff", "1", "2", "--json"}, 1);
  Holds({"diff", "1", "2"}, 1);
  Holds({"tensors", "1"});
  Holds({"tensors", "1", "--tree"});
  Holds({"tensors", "1", "--tree", "--json"});
  Holds({"tensors", "1", "--stats"});
  Holds({"show", "1", "--json"});
  Holds({"report", "-o", out_});
  Holds({"verify", "1"});
  for (const char* format : {"npz", "safetensors"}) Holds({"export", "1", "-o", out_, "--format", format});
  // A file for each of them, and each is synced: some will do.
  Holds({"export", "1", "layer.12*", "-o", out_, "--format", "raw"});
}

TEST_F(Memory, StaysWithinTheBoundWhereUserMetadataHasManyValues) {
  // As large as it may be, of arrays that are as small as they may be; and nested deeply, as much as is shown.
  const auto nested = [](const std::string& value, size_t count, size_t depth) {
    std::string text = "{\"a\":" + std::string(depth, '[');
    for (size_t i = 0; i < count; ++i) text += value + ",";
    text.back() = ']';
    return text + std::string(depth - 1, ']') + "}";
  };
  store_.Save({1}, {.user_metadata = nested("[[[0]]]", 8'000, 250)});
  store_.Save({2}, {.user_metadata = nested("[]", 5'000'000, 1)});
  for (const char* step : {"1", "2"}) {
    Holds({"show", step});
    Holds({"show", step, "--json"});
  }
  Holds({"ls", "--json"});
  Holds({"report", "-o", out_});
  Holds({"export", "2", "-o", out_});
  // After all others, for what this process takes the next child would begin with.
  EXPECT_TRUE(RunInspectJson({"--store", store_.directory(), "show", "1"})["step"]["user_metadata"].is_object());
}

TEST_F(Memory, StaysWithinTheBoundWhereManyValuesAreExported) {
  WriteManyValues(model_);
  ASSERT_EQ(RunInspect({"--store", store_.directory(), "import", model_, "--step", "1", "--create"}).exit_code, 0);
  for (const char* format : {"npz", "safetensors"}) Holds({"export", "1", "-o", out_, "--format", format});
  ASSERT_EQ(RunInspect({"--store", store_.directory(), "export", "1", "-o", out_}).exit_code, 0);
  const auto metadata = [](const std::string& path) {
    std::string text(fs::file_size(path), '\0');
    std::ifstream(path, std::ios::binary).read(text.data(), static_cast<std::streamsize>(text.size()));
    const absl::StatusOr<SafetensorsHeader> header =
        DecodeSafetensorsHeader(std::string_view(text).substr(kSafetensorsLengthBytes), 0);
    EXPECT_TRUE(header.ok()) << header.status();
    return header.ok() ? header->metadata : decltype(header->metadata)();
  };
  const auto exported = metadata(out_);
  for (const auto& [key, value] : metadata(model_)) {
    if (key == "tidemark.store") continue;
    const auto found = exported.find(key);
    EXPECT_TRUE(found != exported.end() && found->second == value) << key;
  }
}

}  // namespace
}  // namespace tidemark::inspect
