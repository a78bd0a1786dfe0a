// Holds the bound on memory that docs/checkpoint-inspect.md states, with a step of twice its size.

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"
#include "tests/tools/checkpoint_inspect/test_store.h"
#include "tools/checkpoint_inspect/safetensors_header.h"

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

// One test, for the store takes longer to make than most of the commands to run.
TEST(Memory, StaysWithinTheBoundWhateverTheSizeOfAStep) {
  if (storage::kAddressSanitizer || storage::kThreadSanitizer) GTEST_SKIP() << "the sanitizer takes memory itself";
  const TestStore store;
  const TestStore files;  // a folder that is removed afterwards
  const std::string model = files.directory() + "/model.safetensors";
  const std::string out = files.directory() + "/out";
  const auto holds = [&](std::vector<std::string> arguments, int exit_code = 0) {
    SCOPED_TRACE(testing::PrintToString(arguments));
    arguments.insert(arguments.begin(), {"--store", store.directory()});
    const Finished finished = RunInspect(arguments);
    EXPECT_EQ(finished.exit_code, exit_code) << finished.out << finished.err;
    EXPECT_GT(finished.resident_kib_max, 0);
    EXPECT_LT(finished.resident_kib_max, kResidentKibMax);
    fs::remove_all(out);
  };
  WriteModel(model);
  holds({"import", model, "--step", "1", "--create"});
  ASSERT_GT(fs::file_size(store.ShardPath(1)), kBytes / 100 * 95) << "it compresses";
  ChangeModel(model);
  holds({"diff", "1", model}, 1);
  holds({"import", model, "--step", "2"});
  fs::remove(model);
  holds({"verify", "1"});
  holds({"verify", "--read-data=10%"});
  holds({"tensors", "1", "--stats"});
  holds({"report", "-o", out});
  holds({"repair"});
  for (const char* format : {"npz", "raw", "safetensors"}) holds({"export", "1", "-o", out, "--format", format});
}

}  // namespace
}  // namespace tidemark::inspect
