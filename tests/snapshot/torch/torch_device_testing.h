// What the tests of copies from and to the pretend accelerator share.

#ifndef TIDEMARK_TESTS_SNAPSHOT_TORCH_TORCH_DEVICE_TESTING_H_
#define TIDEMARK_TESTS_SNAPSHOT_TORCH_TORCH_DEVICE_TESTING_H_

#include <cstddef>
#include <cstdint>

#include "tests/snapshot/pretend_accelerator.h"
#include "tests/snapshot/torch/torch_test_headers.h"

namespace tidemark {

inline constexpr int64_t kTensorBytes = 4096;
inline constexpr std::byte kUntouched{0xee};  // in host memory that no copy has come to

inline PretendAccelerator& Accelerator() { return PretendAccelerator::Get(); }

inline void MustBegin(TorchState& state) {
  ASSERT_TRUE(state.Refresh().ok());
  const absl::Status begun = state.BeginStaging();
  ASSERT_TRUE(begun.ok()) << begun;
}

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_TORCH_TORCH_DEVICE_TESTING_H_
