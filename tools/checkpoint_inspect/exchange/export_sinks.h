// The sinks of formats that only the command `export` writes.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_EXCHANGE_EXPORT_SINKS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_EXCHANGE_EXPORT_SINKS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "snapshot/exchange/export_metadata.h"
#include "snapshot/exchange/export_plan.h"
#include "snapshot/exchange/export_sink.h"

namespace tidemark::inspect {

// Arguments and errors are those of MakeSafetensorsSink.

// One archive, with a member NAME.npy for each entry.
absl::StatusOr<std::unique_ptr<ExportSink>> MakeNpzSink(const ExportPlan& plan, const std::string& out, bool replace);

// A folder with a file for each entry and an index.json. A folder is never replaced.
absl::StatusOr<std::unique_ptr<ExportSink>> MakeRawSink(const ExportPlan& plan, const std::string& out,
                                                        const ExportMetadata& metadata);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_EXCHANGE_EXPORT_SINKS_H_
