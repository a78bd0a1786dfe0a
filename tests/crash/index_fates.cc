#include "tests/crash/index_fates.h"

#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "storage/io/check.h"
#include "storage/io/file_system.h"
#include "storage/store/store_layout.h"
#include "tests/crash/stage.h"
#include "tests/storage/io/simulated_disk.h"

namespace tidemark::crash {
namespace {

using storage::FileSystem;
using storage::SimulatedDisk;

constexpr uint64_t kFlipsMax = 3;

void Succeed(const absl::Status& status) {
  storage::Check(status.ok(), "an index could not be made what a crash's name says");
}

std::string IndexPath() { return storage::StoreLayout(kStore).index(); }

// Copies the folder, which `to` does not have.
void CopyTree(FileSystem& from, FileSystem& to, const std::string& folder) {
  Succeed(to.CreateDirectory(folder));
  const auto entries = from.ListDirectory(folder);
  Succeed(entries.status());
  for (const storage::DirectoryEntry& entry : *entries) {
    const std::string path = folder + "/" + entry.name;
    if (entry.type == storage::FileType::kDirectory) {
      CopyTree(from, to, path);
      continue;
    }
    const auto source = from.OpenForRead(path, /*direct=*/false);
    Succeed(source.status());
    const auto size = (*source)->Size();
    Succeed(size.status());
    std::vector<std::byte> bytes(*size);
    Succeed((*source)->ReadAt(0, bytes));
    const auto copy = to.Create(path, /*direct=*/false);
    Succeed(copy.status());
    Succeed((*copy)->WriteAt(0, bytes));
    Succeed((*copy)->Close());
  }
}

void FlipBytes(FileSystem& files, uint64_t draw) {
  std::mt19937_64 random(draw);
  const auto entries = files.ListDirectory(IndexPath());
  Succeed(entries.status());
  for (uint64_t flips = 1 + random() % kFlipsMax; flips > 0 && !entries->empty(); --flips) {
    const storage::DirectoryEntry& entry = (*entries)[random() % entries->size()];
    if (entry.type != storage::FileType::kRegular) continue;
    const auto file = files.OpenForRewrite(IndexPath() + "/" + entry.name, /*direct=*/false);
    Succeed(file.status());
    const auto size = (*file)->Size();
    Succeed(size.status());
    if (*size == 0) continue;
    const uint64_t offset = random() % *size;
    std::byte byte{};
    Succeed((*file)->ReadAt(offset, {&byte, 1}));
    byte ^= static_cast<std::byte>(1 + random() % 255);
    Succeed((*file)->WriteAt(offset, {&byte, 1}));
  }
}

// A disk with a store that has nothing to do with any other one.
const storage::DiskImage& AnotherStore() {
  static const storage::DiskImage& image = *new storage::DiskImage([] {
    SimulatedDisk disk;
    Stage stage(disk, disk);
    stage.Open();
    for (const int64_t step : {1, 2, 3}) stage.Save(step, 9);
    stage.Pin(2, true);
    stage.Close();
    return disk.image();
  }());
  return image;
}

void TakeIndexFrom(const storage::DiskImage& image, FileSystem& files) {
  SimulatedDisk other(image);
  if (other.TypeOf(IndexPath()).ok()) CopyTree(other, files, IndexPath());
}

}  // namespace

storage::DiskImage WithIndexOf(const Disaster& disaster, const storage::DiskImage& image, const storage::DiskLog& log) {
  if (disaster.index == IndexFate::kKept || disaster.index == IndexFate::kOpen) return image;
  SimulatedDisk disk(image);
  const bool is_there = disk.TypeOf(IndexPath()).ok();
  if (disaster.index == IndexFate::kFlipped) {
    if (is_there) FlipBytes(disk, disaster.draw);
    return disk.image();
  }
  // Before the store's folder is made there is nowhere to put one.
  if (!disk.TypeOf(kStore).ok()) return image;
  Succeed(RemoveTree(disk, IndexPath()));
  if (disaster.index == IndexFate::kOld) TakeIndexFrom(log.StateAfter(disaster.draw), disk);
  if (disaster.index == IndexFate::kForeign && is_there) TakeIndexFrom(AnotherStore(), disk);
  return disk.image();
}

}  // namespace tidemark::crash
