// A library with a RocksDB of its own, as other packages have, whose names all of the process can see. Whoever calls these
// instead of the functions that were meant ends here.

#include <cstdlib>
#include <iostream>

#include "rocksdb/db.h"

namespace rocksdb {
namespace {

[[noreturn]] void Taken(const char* name) {
  std::cerr << "the rival library was called: " << name << std::endl;
  std::abort();
}

}  // namespace

Status DB::Open(const Options&, const std::string&, DB**) { Taken("DB::Open"); }
Status DB::Open(const DBOptions&, const std::string&, const std::vector<ColumnFamilyDescriptor>&,
                std::vector<ColumnFamilyHandle*>*, DB**) {
  Taken("DB::Open of column families");
}
Status DB::OpenForReadOnly(const Options&, const std::string&, DB**, bool) { Taken("DB::OpenForReadOnly"); }
Status DB::OpenAsSecondary(const Options&, const std::string&, const std::string&, DB**) { Taken("DB::OpenAsSecondary"); }

}  // namespace rocksdb
