// Listings of a file server.

#ifndef TIDEMARK_STORAGE_IO_FRESH_LOOK_H_
#define TIDEMARK_STORAGE_IO_FRESH_LOOK_H_

#include <string>

#include "storage/io/file_system.h"

namespace tidemark::storage {

// Looks at the directory show what the file server has by now, at least. A client of NFS may show the directory as it
// was a minute ago, and answer that a name is not there, until it changes a name there itself. So a new file is made
// and removed; `path` is its name in the directory. To be called before something that lasts follows from a name's
// absence. Best effort: where no file can be made, looks may stay old.
void LookAfresh(FileSystem& files, const std::string& path);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_FRESH_LOOK_H_
