// Exporting a step: what `export` does once its command line is read.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_EXPORT_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_EXPORT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "snapshot/exchange/export_metadata.h"
#include "snapshot/exchange/export_plan.h"
#include "snapshot/exchange/export_sink.h"
#include "tools/checkpoint_inspect/tensors/tensor_source.h"

namespace tidemark::inspect {

struct Exported {
  std::vector<ExportedFile> files;
  ExportPlan plan;
};

// Writes the tensors of `source` to `out`. `provenance`: what the files say of where they come from. `progress` is told
// of the bytes read, on this thread. kCancelled: Ctrl-C; whatever the error, nothing is left behind. Else the errors of
// PlanExport, of the sinks and of reading.
absl::StatusOr<Exported> ExportTensors(const TensorSource& source, const ExportPlanOptions& options,
                                       const std::string& out, bool replace, const ExportMetadata& provenance,
                                       const std::function<void(uint64_t bytes_read, uint64_t bytes_total)>& progress);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_COMMANDS_EXPORT_H_
