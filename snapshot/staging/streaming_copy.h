// Copies that go past the caches. A copy of more than the caches hold would first read the lines that it is about to
// overwrite, and push out what the trainer has there; streaming stores do neither, and copy a third more in a second.

#ifndef TIDEMARK_SNAPSHOT_STAGING_STREAMING_COPY_H_
#define TIDEMARK_SNAPSHOT_STAGING_STREAMING_COPY_H_

#include <cstddef>
#include <span>
#include <string_view>

namespace tidemark {

struct StreamingCopy {
  std::string_view name;  // "avx512", "avx2", "portable"

  // Like memcpy. Every store is visible to whoever is told of the copy afterwards.
  void (*copy)(std::byte* destination, const std::byte* source, size_t bytes);
};

// Those that this CPU can run, fastest first; the last is memcpy.
std::span<const StreamingCopy> RunnableStreamingCopies();

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_STAGING_STREAMING_COPY_H_
