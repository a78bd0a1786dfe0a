// The header of a .npy file, which each member of a .npz archive is. Pure functions.

#ifndef TIDEMARK_SNAPSHOT_EXCHANGE_NPY_FORMAT_H_
#define TIDEMARK_SNAPSHOT_EXCHANGE_NPY_FORMAT_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tidemark/entry.h"

namespace tidemark {

// "<f4"; empty: numpy has no such dtype.
std::string_view NumpyDtype(Dtype dtype);

// What comes before the row-major elements; its length is a multiple of 64. Precondition: numpy has the dtype.
std::string EncodeNpyHeader(Dtype dtype, std::span<const int64_t> shape);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EXCHANGE_NPY_FORMAT_H_
