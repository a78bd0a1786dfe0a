#ifndef TIDEMARK_TESTS_SNAPSHOT_GATED_STATE_H_
#define TIDEMARK_TESTS_SNAPSHOT_GATED_STATE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "absl/status/status.h"
#include "absl/synchronization/notification.h"
#include "tidemark/state.h"

namespace tidemark {

// One tensor, which arrives when the test lets it.
class GatedState final : public State {
 public:
  GatedState() { SetDerivedEntries({Entry{.spec = {.name = "late", .dtype = Dtype::kInt32}, .bytes = 4}}); }
  absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
    gate.WaitForNotification();
    std::memcpy(requests[0].destination, &late, 4);
    return copy_status;
  }
  absl::Status Receive(size_t, std::span<const std::byte> bytes) override {
    std::memcpy(&late, bytes.data(), 4);
    return absl::OkStatus();
  }
  absl::Notification gate;
  absl::Status copy_status;
  int32_t late = 7;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_GATED_STATE_H_
