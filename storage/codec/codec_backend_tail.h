// What vector loops leave behind their last whole vectors, for the portable back end to do.

#ifndef TIDEMARK_STORAGE_CODEC_CODEC_BACKEND_TAIL_H_
#define TIDEMARK_STORAGE_CODEC_CODEC_BACKEND_TAIL_H_

#include "storage/codec/codec_backend.h"

namespace tidemark::storage {

// CodecBackend::split and join for the numbers from `done` on.
inline void SplitTail(uint8_t width, size_t done, const std::byte* raw, size_t count, std::byte* const* planes) {
  std::byte* tails[8];
  for (size_t k = 0; k < width; ++k) tails[k] = planes[k] + done;
  PortableCodecBackend().split[WidthIndex(width)](raw + done * width, count - done, tails);
}
inline void JoinTail(uint8_t width, size_t done, const std::byte* const* planes, size_t count, std::byte* raw) {
  const std::byte* tails[8];
  for (size_t k = 0; k < width; ++k) tails[k] = planes[k] + done;
  PortableCodecBackend().join[WidthIndex(width)](tails, count - done, raw + done * width);
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_CODEC_CODEC_BACKEND_TAIL_H_
