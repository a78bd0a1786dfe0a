// Files of PyTorch's torch.save and LibTorch's torch::save, as snapshots.
//
//   auto file = tidemark::ReadTorchFile("pretrained.pt", "model");
//   if (!file.ok()) return file.status();
//   absl::Status loaded = tidemark::LoadModule(**file, "model", *model);  // tidemark/torch.h; strict
//
// Reading a file runs nothing that it contains: no Python, no TorchScript. It is the counterpart of torch.load with
// weights_only=True, and knows fewer classes.

#ifndef TIDEMARK_TORCH_FILE_H_
#define TIDEMARK_TORCH_FILE_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tidemark/snapshot.h"

namespace tidemark {

// Reads all tensors of the file into host memory, as a snapshot of step 0 without metrics. The name of an entry is
// `prefix` and the path to the tensor, joined by dots: keys of dictionaries, indices of lists, fields of LibTorch's
// archives. An empty `prefix` adds nothing. So a state_dict read with "model" has the entry model.layer.weight, and so
// has {"model": state_dict} read with "". Equal tensors of one memory in the file (one offset, shape and strides) share
// their memory in the snapshot; other views of it become copies. Values, and objects of Python classes, are left out.
//
// torch.save compresses nothing. A file made by others may: a record then takes the memory that it unpacks to, which
// has no limit. Of strangers' files check the size first (`unzip -l`).
//
// Errors; the message begins with the path:
//   kNotFound          There is no such file.
//   kInvalidArgument   It is not a file of torch.save, it was saved by PyTorch before 1.6, or it has no tensors. Two
//                      tensors have the same name, or a name breaks a rule of EntrySpec.
//   kUnimplemented     It has sparse, quantised, expanded or subclassed tensors, a dtype that is not read, big-endian
//                      numbers, objects that refer to each other without end, more than 131,072 tensors, or views of
//                      more than 16 times the bytes of their storages.
//   kDataLoss          It is damaged.
//   kResourceExhausted There is not enough memory.
//   kInternal          LibTorch failed to read it.
//
// Thread-safe.
absl::StatusOr<std::shared_ptr<const Snapshot>> ReadTorchFile(const std::string& path, std::string_view prefix);

}  // namespace tidemark

#endif  // TIDEMARK_TORCH_FILE_H_
