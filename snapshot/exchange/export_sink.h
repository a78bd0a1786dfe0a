// ExportSink: takes in tensors one after the other and makes files of them, in one of the formats.

#ifndef TIDEMARK_SNAPSHOT_EXCHANGE_EXPORT_SINK_H_
#define TIDEMARK_SNAPSHOT_EXCHANGE_EXPORT_SINK_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "snapshot/exchange/export_metadata.h"
#include "snapshot/exchange/export_plan.h"

namespace tidemark {

struct ExportedFile {
  std::string path;
  uint64_t bytes = 0;
  size_t tensors = 0;
};

// Thread-compatible. Nothing that it writes has its name before Commit; where it is destroyed without that, nothing
// stays.
class ExportSink {
 public:
  virtual ~ExportSink() = default;

  // The tensors of the plan that are not tied come in its order, each begun and then written from its first byte to its
  // last. Preconditions: that order; the one before has all of its bytes.
  virtual absl::Status Begin(const ExportItem& item) = 0;
  virtual absl::Status Write(std::span<const std::byte> bytes) = 0;

  // Gives everything its name: what leads to the others comes last. Where that fails half way, the names that were new
  // are taken back.
  virtual absl::StatusOr<std::vector<ExportedFile>> Commit() = 0;
};

// Writes elements of the begun item, which are stored as `stored`; converts them to `exported` if that is another
// dtype. Precondition: CanConvertFloats, or the same dtype.
absl::Status WriteElements(ExportSink& sink, Dtype stored, Dtype exported, std::span<const std::byte> bytes);

// `out` as the user named it; `plan` outlives the sink. kAlreadyExists: there is something of one of the names, and it
// is not to be replaced. Other errors: the files cannot be made there.

// `out`, or where the plan has several files, these beside it, with an index: x-00001-of-00002.safetensors and
// x.safetensors.index.json. `metadata` goes into each, but for the user metadata, which goes into the first,
// as do `values`, which are those of the plan, and the names of tied tensors. kInvalidArgument: a key of the metadata
// comes twice, or the header gets too long.
absl::StatusOr<std::unique_ptr<ExportSink>> MakeSafetensorsSink(const ExportPlan& plan, const std::string& out,
                                                                bool replace, const ExportMetadata& metadata,
                                                                ExportMetadata values);

// The paths that a plan of several files has, in the order of the files, and of the index.
std::vector<std::string> ShardPaths(const std::string& out, size_t files);
std::string ShardIndexPath(const std::string& out);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EXCHANGE_EXPORT_SINK_H_
