#include "snapshot/housekeeping/store_upkeep.h"

#include <string_view>

#include "absl/status/status.h"
#include "snapshot/guarded.h"

namespace tidemark {

void StoreUpkeep::Run(bool last) {
  if (!swept_) {
    sweep_warnings_.BeginRun();
    const auto warn = [this](std::string_view line) {
      if (sweep_warnings_.IsNew(line)) host_.listeners.Warn(line);
    };
    const absl::Status swept = Guarded("the sweep", [&] { return host_.store.SweepUncommitted({}, warn); });
    swept_ = swept.ok();
    warnings_.Note("files of unfinished saves cannot be removed", swept);
  }
  const absl::Status maintained = host_.store.Maintain();
  // The next process may find a full disk. Then its deletions have what this one leaves.
  if (!last) warnings_.Note("the journal cannot be maintained", maintained);
}

}  // namespace tidemark
