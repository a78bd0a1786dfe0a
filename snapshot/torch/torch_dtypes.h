// LibTorch's dtypes and ours.
//
// The LibTorch edge is the files snapshot/torch_*, built as the target tidemark_torch; nothing else of the library
// includes LibTorch. This header's functions are thread-safe.

#ifndef TIDEMARK_SNAPSHOT_TORCH_TORCH_DTYPES_H_
#define TIDEMARK_SNAPSHOT_TORCH_TORCH_DTYPES_H_

#include <optional>

#include "c10/core/ScalarType.h"
#include "tidemark/entry.h"

namespace tidemark {

// Nothing for quantised types and for types that this version of Tidemark does not know.
std::optional<Dtype> ToDtype(c10::ScalarType type);

// Nothing where this LibTorch lacks the dtype.
std::optional<c10::ScalarType> ToScalarType(Dtype dtype);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_TORCH_TORCH_DTYPES_H_
