// A trainer in miniature: a few tensors and values that change from step to step in a way that can be checked.

#ifndef TIDEMARK_TESTS_SNAPSHOT_TEST_TRAINER_H_
#define TIDEMARK_TESTS_SNAPSHOT_TEST_TRAINER_H_

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {

struct TestTrainer {
  explicit TestTrainer(int64_t weights = 300'000) : weight(static_cast<size_t>(weights)), bias(17) {
    state.AddTensor("model.weight", Dtype::kFloat32, {weights}, weight.data());
    state.AddTensor("model.bias", Dtype::kFloat64, {17}, bias.data());
    state.AddValue("epoch", &epoch);
    state.AddValue("note", &note);
    SetTo(0);
  }

  // Everything as it is after training `step`.
  void SetTo(int64_t step) {
    uint32_t bits = static_cast<uint32_t>(step) * 2654435761u + 1;
    for (float& value : weight) {
      bits = bits * 1664525u + 1013904223u;
      value = static_cast<float>(bits >> 8) / static_cast<float>(1 << 24) - 0.5F;
    }
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<double>(step) + static_cast<double>(i) / 100;
    epoch = step;
    note = "after step " + std::to_string(step);
  }

  bool IsAt(int64_t step) const {
    TestTrainer expected(static_cast<int64_t>(weight.size()));
    expected.SetTo(step);
    return weight == expected.weight && bias == expected.bias && epoch == step && note == expected.note;
  }

  std::vector<float> weight;
  std::vector<double> bias;
  int64_t epoch = 0;
  std::string note;
  State state;
};

// The one shard file of a step.
inline std::string ShardPath(const std::string& store, int64_t step) {
  char prefix[32];
  std::snprintf(prefix, sizeof(prefix), "%010lld-", static_cast<long long>(step));
  for (const auto& folder : std::filesystem::directory_iterator(store + "/steps")) {
    if (folder.path().filename().string().rfind(prefix, 0) == 0)
      return folder.path().string() + "/shard-00000-of-00001.tmk";
  }
  return "";
}

// Changes one bit of a file.
inline void FlipBit(const std::string& path, uint64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  char byte = 0;
  file.get(byte);
  file.seekp(static_cast<std::streamoff>(offset));
  file.put(static_cast<char>(byte ^ 1));
  ASSERT_TRUE(file.good()) << path;
}

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_TEST_TRAINER_H_
