// Tiles: the boxes in which a shard holds a large box. A box lies row by row, and is cut into chunks, which are read as
// wholes. So every chunk has some of all of its columns. A reader that wants some columns of the box would read all of
// it. Each tile has a part of the columns and chunks of its own.

#ifndef TIDEMARK_STORAGE_SHARD_WRITE_TILES_H_
#define TIDEMARK_STORAGE_SHARD_WRITE_TILES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidemark/entry.h"

namespace tidemark::storage {

// A dimension along which a box is split is cut into so many tiles, or fewer. If W ranks have saved equal columns of a
// matrix and V others restore equal columns, each of the V - 1 borders between these lies in one tile, which both sides
// read. So they read 1 + (V - 1) / (W * this) of the matrix: at most 1.25 for up to as many ranks.
inline constexpr int64_t kTilesOfDimensionMax = 4;

// A tile has at least about so many bytes. A disk of 2 GB/s reads them in about the time in which it finds the first
// one, 0.1 ms. So smaller tiles would save no time, and each needs an entry and a chunk in the index.
inline constexpr uint64_t kTileBytesMin = 256 << 10;

// And its rows, which are copied one by one, have at least so many.
inline constexpr uint64_t kTileRowBytesMin = 512;

// The tiles of one name in a shard. Boxes may lie in any way up to this number: EntryNames.
inline constexpr size_t kTilesOfNameMax = 32;

// The tiles that make up the entry's box, or none: it is stored as it is. A box is cut along each dimension in which it
// is a part of the tensor, but for the first one that has more than one index in the box: chunks are ranges of that.
// `boxes_of_name`: boxes of the tensor in this shard. Precondition: the entry is valid.
std::vector<EntrySpec> TilesOf(const EntrySpec& entry, size_t boxes_of_name);

// Where the bytes of a tile are in those of its box. Immutable.
class TileBytes {
 public:
  // Precondition: the tile lies in the box and has an element.
  TileBytes(const EntrySpec& box, const EntrySpec& tile);

  // Calls `visit` with the runs of the box's bytes that make up the tile's bytes [begin, end), in their order.
  // Precondition: the tile has these bytes.
  void ForEachRun(uint64_t begin, uint64_t end, absl::FunctionRef<void(uint64_t offset, uint64_t bytes)> visit) const;

  // Where the tile's bytes [0, end) end in the box. Precondition: the tile has them, and `end` is not 0.
  uint64_t EndInBox(uint64_t end) const;

 private:
  struct Dimension {
    uint64_t extent = 0;  // of the tile
    uint64_t stride = 0;  // bytes of the box from one index to the next
  };

  // Where a row begins in the box. Rows are contiguous there, and are counted in the order of their elements.
  uint64_t RowInBox(uint64_t row) const;

  uint64_t row_bytes_ = 0;
  uint64_t first_ = 0;            // where the tile begins in the box
  std::vector<Dimension> outer_;  // those whose indices number the rows, from the innermost one on
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_WRITE_TILES_H_
