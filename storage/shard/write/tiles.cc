#include "storage/shard/write/tiles.h"

#include <algorithm>
#include <utility>

namespace tidemark::storage {
namespace {

// Bytes of the box from one index of each dimension to the next.
std::vector<uint64_t> StridesOf(const EntrySpec& box) {
  const std::vector<int64_t>& extent = box.held_shape();
  std::vector<uint64_t> strides(extent.size());
  uint64_t stride = GetDtypeInfo(box.dtype).element_bytes;
  for (size_t d = extent.size(); d-- > 0;) {
    strides[d] = stride;
    stride *= static_cast<uint64_t>(extent[d]);
  }
  return strides;
}

int64_t DivideUp(uint64_t dividend, uint64_t divisor) {
  return static_cast<int64_t>(dividend / divisor + (dividend % divisor == 0 ? 0 : 1));
}

// How many tiles a box has along each dimension.
std::vector<int64_t> GridOf(const EntrySpec& entry, size_t boxes_of_name) {
  const std::vector<uint64_t> strides = StridesOf(entry);
  std::vector<int64_t> grid(entry.box_extent.size(), 1);
  uint64_t bytes = strides.front() * static_cast<uint64_t>(entry.box_extent.front());  // of a tile
  auto tiles_max = static_cast<int64_t>(kTilesOfNameMax / std::max<size_t>(boxes_of_name, 1));
  bool is_first = true;  // of the dimensions with more than one index
  for (size_t d = 0; d < grid.size(); ++d) {
    const int64_t extent = entry.box_extent[d];
    if (extent <= 1 || std::exchange(is_first, false) || extent == entry.shape[d]) continue;
    const int64_t tiles = std::min({kTilesOfDimensionMax, tiles_max, extent / DivideUp(kTileRowBytesMin, strides[d]),
                                    static_cast<int64_t>(bytes / kTileBytesMin)});
    if (tiles < 2) continue;
    grid[d] = tiles;
    bytes /= static_cast<uint64_t>(tiles);
    tiles_max /= tiles;
  }
  return grid;
}

// Appends the tiles that have the offset and extent of `tile` in the dimensions before `d`.
void AddTiles(const EntrySpec& box, const std::vector<int64_t>& grid, size_t d, EntrySpec& tile,
              std::vector<EntrySpec>& tiles) {
  if (d == grid.size()) return tiles.push_back(tile);
  // Tiles of a dimension differ by one index at most.
  const int64_t least = box.box_extent[d] / grid[d];
  const int64_t larger = box.box_extent[d] % grid[d];
  int64_t offset = box.box_offset[d];
  for (int64_t i = 0; i < grid[d]; ++i) {
    tile.box_offset[d] = offset;
    tile.box_extent[d] = least + (i < larger ? 1 : 0);
    offset += tile.box_extent[d];
    AddTiles(box, grid, d + 1, tile, tiles);
  }
}

}  // namespace

std::vector<EntrySpec> TilesOf(const EntrySpec& entry, size_t boxes_of_name) {
  if (entry.kind != EntryKind::kTensor || entry.whole()) return {};
  if (std::ranges::find(entry.box_extent, 0) != entry.box_extent.end()) return {};
  const std::vector<int64_t> grid = GridOf(entry, boxes_of_name);
  if (std::ranges::all_of(grid, [](int64_t tiles) { return tiles == 1; })) return {};
  std::vector<EntrySpec> tiles;
  EntrySpec tile = entry;
  AddTiles(entry, grid, 0, tile, tiles);
  return tiles;
}

TileBytes::TileBytes(const EntrySpec& box, const EntrySpec& tile) {
  const std::vector<uint64_t> strides = StridesOf(box);
  // A row has all that the tile has of this dimension, and of those behind it.
  size_t inner = strides.size() - 1;
  while (inner > 0 && tile.box_extent[inner] == box.box_extent[inner]) --inner;
  row_bytes_ = strides[inner] * static_cast<uint64_t>(tile.box_extent[inner]);
  for (size_t d = 0; d < strides.size(); ++d) {
    first_ += strides[d] * static_cast<uint64_t>(tile.box_offset[d] - box.box_offset[d]);
  }
  for (size_t d = inner; d-- > 0;) outer_.push_back({static_cast<uint64_t>(tile.box_extent[d]), strides[d]});
}

void TileBytes::ForEachRun(uint64_t begin, uint64_t end,
                           absl::FunctionRef<void(uint64_t offset, uint64_t bytes)> visit) const {
  while (begin < end) {
    const uint64_t skip = begin % row_bytes_;
    const uint64_t bytes = std::min(row_bytes_ - skip, end - begin);
    visit(RowInBox(begin / row_bytes_) + skip, bytes);
    begin += bytes;
  }
}

uint64_t TileBytes::EndInBox(uint64_t end) const {
  const uint64_t last = end - 1;
  return RowInBox(last / row_bytes_) + last % row_bytes_ + 1;
}

uint64_t TileBytes::RowInBox(uint64_t row) const {
  uint64_t offset = first_;
  for (const Dimension& dimension : outer_) {
    offset += row % dimension.extent * dimension.stride;
    row /= dimension.extent;
  }
  return offset;
}

}  // namespace tidemark::storage
