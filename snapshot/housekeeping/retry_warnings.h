// RetryWarnings: what is said of work that is tried again until it works.

#ifndef TIDEMARK_SNAPSHOT_HOUSEKEEPING_RETRY_WARNINGS_H_
#define TIDEMARK_SNAPSHOT_HOUSEKEEPING_RETRY_WARNINGS_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "snapshot/listeners.h"
#include "storage/io/exception_status.h"
#include "storage/io/warn_once.h"

namespace tidemark {

// Thread-compatible. `listeners` outlives it.
class RetryWarnings {
 public:
  explicit RetryWarnings(const Listeners& listeners) : listeners_(listeners) {}

  // Tells the result of a try. Warns at the first failure after a success. `kind` says what cannot be done: "old steps
  // cannot be deleted".
  void Note(std::string_view kind, const absl::Status& status) {
    if (status.ok()) return failing_.Ended(kind);
    storage::BestEffort([&] {
      if (!failing_.IsNew(kind)) return;
      listeners_.Warn(fmt::format("{}, which is tried again until it works: {}", kind, std::string(status.message())));
    });
  }

 private:
  const Listeners& listeners_;
  storage::WarnOnce failing_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_HOUSEKEEPING_RETRY_WARNINGS_H_
