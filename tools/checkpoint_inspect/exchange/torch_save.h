// Files of PyTorch's torch.save (.pt, .pth, pytorch_model.bin) as a source of tensors.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_EXCHANGE_TORCH_SAVE_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_EXCHANGE_TORCH_SAVE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tools/checkpoint_inspect/exchange/file_metadata.h"
#include "tools/checkpoint_inspect/tensors/tensor_source.h"

namespace tidemark::inspect {

// Of the pickle, which is held while the file is opened.
inline constexpr uint64_t kTorchPickleBytesMax = uint64_t{32} << 20;

// A tensor that is not contiguous is gathered in memory where its part of the file has at most so many bytes; else it
// is read in as many pieces as it has.
inline constexpr uint64_t kGatheredBytesMax = uint64_t{64} << 20;

// Whether the file begins as one of PyTorch does, old formats included. Errors as of OpenTorchSave.
absl::StatusOr<bool> IsTorchSave(const std::string& path);

// Runs nothing that the file contains. Entries are in the order of the pickle, named as FindTorchContents names them,
// row-major whatever their strides, and have no digest; a tensor that is tied to one before it is no entry, but a tie
// of `metadata`. That takes in the values as strings, too. `left_out`: what is neither, as a sentence for people; empty
// where there is nothing. Either may be null. Opening reads the file once, and checks the checksums of its records.
//
// Links are followed; what is no regular file is not opened. Messages begin with the path. kInvalidArgument: the file
// is not one of torch.save, or of PyTorch before 1.6, or what FindTorchContents and FileMetadata::Add say.
// kUnimplemented: it has what is not read. kDataLoss: it is damaged. kNotFound: there is no such file. A file that
// shrinks while it is read is kDataLoss.
absl::StatusOr<std::unique_ptr<TensorSource>> OpenTorchSave(const std::string& path, FileMetadata* metadata = nullptr,
                                                            std::string* left_out = nullptr);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_EXCHANGE_TORCH_SAVE_H_
