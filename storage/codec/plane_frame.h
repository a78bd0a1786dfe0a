// Byte planes as one ordinary zstd frame (RFC 8878) that is written block by block: planes that do not shrink lie in it
// as they are, the others are Huffman-coded. Any zstd decoder reads it.

#ifndef TIDEMARK_STORAGE_CODEC_PLANE_FRAME_H_
#define TIDEMARK_STORAGE_CODEC_PLANE_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "storage/codec/codec_backend.h"

namespace tidemark::storage {

// What a sample of a chunk says of its planes.
struct PlaneOutlook {
  uint8_t coded = 0;            // bit k: plane k is worth a Huffman code
  bool mostly_repeats = false;  // most numbers are the same: a match finder does far better
};

// Precondition: CanSplitPlanes(raw.size(), float_bytes). Looks at the same few numbers of chunks of the same size.
PlaneOutlook SamplePlanes(std::span<const std::byte> raw, uint8_t float_bytes, const CodecBackend& backend);

// Room that WritePlaneFrame asks for.
size_t PlaneFrameBytesMax(size_t raw_bytes, uint8_t float_bytes);

// Splits `raw` and writes the frame of its planes to the front of `out`, of at least PlaneFrameBytesMax bytes. Planes
// that are not in `coded` are put into their place at once; the first that is and those behind it pass through
// `*scratch`, which is grown as needed. Returns the length of the frame, which may be more than that of `raw`.
// Preconditions: CanSplitPlanes(raw.size(), float_bytes), raw.size() > 0.
size_t WritePlaneFrame(std::span<const std::byte> raw, uint8_t float_bytes, uint8_t coded, const CodecBackend& backend,
                       std::vector<std::byte>* scratch, std::span<std::byte> out);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_CODEC_PLANE_FRAME_H_
