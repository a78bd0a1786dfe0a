// RocksDB's files through FileSystem, so that the manifest goes to the disk by the same door as everything else, and a
// test can put another disk behind it.

#ifndef TIDEMARK_STORAGE_MANIFEST_ROCKS_ENV_H_
#define TIDEMARK_STORAGE_MANIFEST_ROCKS_ENV_H_

#include <memory>

#include "rocksdb/env.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// An Env with the files of `files`, not owned, and with the threads and the clock of rocksdb::Env::Default(). Has what
// a database of MakeOptions() in database.cc uses: no memory maps, no direct I/O, no files that are opened to be
// written on. Its errors have FileSystem's words; what FileSystem calls kNotFound, kResourceExhausted, kUnavailable,
// kInvalidArgument and kUnimplemented have RocksDB's codes for that, the others are I/O errors.
std::unique_ptr<rocksdb::Env> NewRocksEnv(FileSystem& files);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_ROCKS_ENV_H_
