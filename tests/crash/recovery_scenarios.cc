// Of the scenarios those in which who opens a store, or repairs it, has something to put right.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "storage/io/check.h"
#include "storage/manifest/store_layout.h"
#include "storage/shard/shard_reader.h"
#include "tests/crash/disordered_disk.h"
#include "tests/crash/scenarios.h"

namespace tidemark::crash {
namespace {

using storage::FileSystem;

void Require(const absl::Status& status) {
  storage::Check(status.ok(), "a scenario's disk could not be brought into the state that it begins with");
}

// Steps that refer to others, were overwritten, deleted, reported on and pinned.
void LiveLong(Stage& stage) {
  stage.Open({.retention = {.max_to_keep = 3}});
  stage.Save(1, 1);
  stage.Save(2, 1);
  stage.Pin(2, true);
  stage.Save(3, 1);
  stage.Save(3, 2);
  stage.Report(3, "bench", 0.25);
  stage.Save(4, 3, {1});
  stage.Save(5, 4);
  stage.Close();
}

// The one file of the attempt at a step.
std::string ShardOf(FileSystem& files, int64_t step) {
  const storage::StoreLayout layout(kStore);
  auto folders = files.ListDirectory(layout.steps());
  Require(folders.status());
  for (const storage::DirectoryEntry& folder : *folders) {
    const auto parsed = storage::ParseStepFolderName(folder.name);
    if (parsed && parsed->step == step) return layout.shard(step, parsed->attempt, 0, 1);
  }
  return "";
}

void FlipByte(FileSystem& files, const std::string& path, uint64_t offset) {
  auto file = files.OpenForRewrite(path, /*direct=*/false);
  Require(file.status());
  std::byte byte{};
  Require((*file)->ReadAt(offset, {&byte, 1}));
  byte ^= std::byte{1};
  Require((*file)->WriteAt(offset, {&byte, 1}));
}

// Of the entry's first chunk, which lies in this shard.
uint64_t ChunkOffset(FileSystem& files, const std::string& path, std::string_view name) {
  const auto shard = storage::ShardReader::Open(files, path, storage::StoreLayout(kStore).steps());
  Require(shard.status());
  const storage::ShardIndex& index = (*shard)->index();
  const auto entry = std::find_if(index.entries.begin(), index.entries.end(),
                                  [&](const storage::ShardEntry& other) { return other.spec.name == name; });
  storage::Check(entry != index.entries.end(), "a shard has no entry of that name");
  const storage::ChunkRecord& chunk = index.chunks[entry->first_chunk];
  storage::Check(chunk.file == 0, "a chunk lies in another shard");
  return chunk.offset;
}

void DamageEntry(FileSystem& files, int64_t step, std::string_view name) {
  const std::string path = ShardOf(files, step);
  const uint64_t offset = ChunkOffset(files, path, name);  // a file that somebody reads is not written over
  FlipByte(files, path, offset);
}

void MakeEmptyFile(FileSystem& files, const std::string& path) {
  auto file = files.Create(path, /*direct=*/false);
  Require(file.status());
  Require((*file)->Close());
}

}  // namespace

Scenario RebuildMissing() {
  return {.name = "RebuildMissing",
          .manifest_is_sound = false,
          .prepare = LiveLong,
          .damage = [](FileSystem& files) { Require(RemoveTree(files, storage::StoreLayout(kStore).manifest())); },
          .drive =
              [](Stage& stage) {
                stage.Open();
                stage.Mark(std::string(kManifestIsSound));
                stage.Save(6, 1);
                stage.Close();
              }};
}

Scenario RebuildDamaged() {
  return {.name = "RebuildDamaged",
          .manifest_is_sound = false,
          .prepare =
              [](Stage& stage) {
                LiveLong(stage);
                stage.Mark(Deleting(4));
              },
          .damage =
              [](FileSystem& files) {
                FlipByte(files, storage::StoreLayout(kStore).manifest() + "/CURRENT", 3);
                FlipByte(files, ShardOf(files, 4), 0);  // its header, so that it goes to quarantine
              },
          .drive =
              [](Stage& stage) {
                stage.Open();
                stage.Mark(std::string(kManifestIsSound));
                stage.Save(6, 1);
                stage.Close();
              }};
}

Scenario Recover() {
  return {.name = "Recover",
          .prepare =
              [](Stage& stage) {
                stage.Open();
                stage.Save(1, 1);
                stage.Save(2, 1);
                stage.Close();
                // Of what follows no record gets to the disk: a crash has come before each commit.
                DisorderedDisk forgetful(stage.files());
                forgetful.Drop([](DisorderedDisk::Operation operation, const std::string& path) {
                  return operation != DisorderedDisk::Operation::kRemove &&
                         path.find("/manifest/") != std::string::npos && path.ends_with(".log");
                });
                Stage killed(stage.disk(), forgetful);
                killed.Open({.reuse = false});
                killed.Save(3, 1);
                killed.Save(4, 1);
                killed.Save(5, 1);
                stage.Mark(Deleting(4));
                stage.Mark(Deleting(5));
              },
          .damage =
              [](FileSystem& files) {
                FlipByte(files, ShardOf(files, 4), 0);  // its header: it counts as incomplete
                // A chunk. Attempts follow each other, so power loss can damage only the last one.
                FlipByte(files, ShardOf(files, 5), 4096);
              },
          .drive =
              [](Stage& stage) {
                stage.Open();
                stage.Save(6, 1);
              }};
}

Scenario Repair() {
  return {.name = "Repair",
          .manifest_is_sound = false,
          .prepare =
              [](Stage& stage) {
                stage.Open();
                for (const int64_t step : {1, 2, 3, 4, 5}) stage.Save(step, 1);  // each refers to the first
                stage.Pin(3, true);
                stage.Lease(3);  // by a process that is dead when the repair comes
                stage.Close();
                for (const int64_t step : {1, 2, 4, 5}) stage.Mark(Damaged(step));
              },
          .damage =
              [](FileSystem& files) {
                const storage::StoreLayout layout(kStore);
                FlipByte(files, layout.manifest() + "/CURRENT", 3);
                DamageEntry(files, 1, "model.weight");  // which nobody shares, unlike other chunks there: it stays
                DamageEntry(files, 2, "model.weight");  // it goes to quarantine
                FlipByte(files, ShardOf(files, 4), 0);  // its header: the rebuild finds that
                DamageEntry(files, 5, "model.weight");  // so it does this, in the newest
                const std::string shard = ShardOf(files, 3);
                MakeEmptyFile(files, shard.substr(0, shard.rfind('/')) + "/pin.json.tmp");
                MakeEmptyFile(files, layout.identity() + ".tmp");
                MakeEmptyFile(files, layout.retired());
              },
          .drive =
              [](Stage& stage) {
                stage.Repair({1, 2});
                stage.Open();
                stage.Save(6, 1);
                stage.Close();
              }};
}

}  // namespace tidemark::crash
