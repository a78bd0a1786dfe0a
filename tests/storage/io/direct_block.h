// Memory of the alignment that files opened without the page cache ask for.

#ifndef TIDEMARK_TESTS_STORAGE_IO_DIRECT_BLOCK_H_
#define TIDEMARK_TESTS_STORAGE_IO_DIRECT_BLOCK_H_

#include <cstddef>

#include "storage/io/file_system.h"

namespace tidemark::storage {

struct alignas(kDirectAlignment) Block {
  std::byte bytes[kDirectAlignment] = {};
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_DIRECT_BLOCK_H_
