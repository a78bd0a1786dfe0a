// SaveRequest: the options of one call of Save or Evaluate.

#ifndef TIDEMARK_SNAPSHOT_SAVES_SAVE_REQUEST_H_
#define TIDEMARK_SNAPSHOT_SAVES_SAVE_REQUEST_H_

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "snapshot/deadline.h"
#include "tidemark/save_handle.h"

namespace tidemark {

struct SaveRequest {
  static SaveRequest Of(SaveOptions options) {
    return {.metrics = std::move(options.metrics),
            .user_metadata = std::move(options.user_metadata),
            .overwrite = options.overwrite,
            .staging = options.staging,
            .cancelled = std::move(options.cancelled)};
  }
  static SaveRequest Of(EvaluateOptions options) {
    return {.metrics = std::move(options.metrics),
            .user_metadata = std::move(options.user_metadata),
            .staging = options.staging,
            .cancelled = std::move(options.cancelled),
            .persist = false};
  }

  // As in SaveOptions.
  Metrics metrics = {};
  std::string user_metadata = "{}";
  bool overwrite = false;
  std::optional<Staging> staging = {};
  std::function<bool()> cancelled = {};
  Deadline deadline = Deadline::Never();  // for the commit: CheckpointerOptions::save_timeout
  bool persist = true;                    // false: only evaluators and companions get the snapshot
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_SAVES_SAVE_REQUEST_H_
