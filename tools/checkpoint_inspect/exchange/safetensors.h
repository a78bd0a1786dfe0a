// Safetensors files as a source of tensors.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_EXCHANGE_SAFETENSORS_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_EXCHANGE_SAFETENSORS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/checkpoint_inspect/exchange/file_metadata.h"
#include "tools/checkpoint_inspect/tensors/tensor_source.h"

namespace tidemark::inspect {

// Opens one file, or, where the name ends in ".index.json", the files beside it that the index names. Entries are in
// the order of the files' names and of their bytes, and have no digest. Links are followed; what is no regular file is
// not opened. kDataLoss: it is not what the format says; the message begins with the path. kInvalidArgument: it has a
// type that Tidemark has none for. kNotFound: a file is not there. A file that shrinks while it is read is kDataLoss.
// `metadata`, unless it is null, takes in that of each file; its errors are this function's.
absl::StatusOr<std::unique_ptr<TensorSource>> OpenSafetensors(const std::string& path,
                                                              FileMetadata* metadata = nullptr);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_EXCHANGE_SAFETENSORS_H_
