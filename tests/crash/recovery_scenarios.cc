// Of the scenarios those in which who opens a store, or repairs it, has something to put right.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "storage/io/check.h"
#include "storage/journal/entry.h"
#include "storage/journal/journal_files.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/store/store_layout.h"
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

storage::JournalFiles Entries(FileSystem& files) { return {files, storage::StoreLayout(kStore).journal()}; }

// Of the journal, all entries after that one.
void RemoveEntriesAfter(FileSystem& files, storage::EntryNumber number) {
  const storage::JournalFiles entries = Entries(files);
  const auto highest = entries.Highest();
  Require(highest.status());
  for (storage::EntryNumber last = *highest; last > number; --last) Require(files.RemoveFile(entries.PathOf(last)));
}

void RemoveIndex(FileSystem& files) { Require(RemoveTree(files, storage::StoreLayout(kStore).index())); }

// What a process that finds out about the journal on the way does then.
void OpenAndSave(Stage& stage) {
  stage.Open();
  stage.Mark(std::string(kJournalIsSound));
  stage.Save(6, 1);
  stage.Close();
}

}  // namespace

Scenario RebuildWithTheIndex() {
  return {.name = "RebuildWithTheIndex",
          .journal_is_sound = false,
          .prepare = LiveLong,
          .damage =
              [](FileSystem& files) {
                const auto highest = Entries(files).Highest();
                Require(highest.status());
                RemoveEntriesAfter(files, *highest - 3);
              },
          .drive = OpenAndSave};
}

Scenario RebuildWithoutJournal() {
  return {.name = "RebuildWithoutJournal",
          .journal_is_sound = false,
          .prepare = LiveLong,
          .damage = [](FileSystem& files) { Require(RemoveTree(files, storage::StoreLayout(kStore).journal())); },
          .drive = OpenAndSave};
}

Scenario RebuildFromShards() {
  return {.name = "RebuildFromShards",
          .journal_is_sound = false,
          .facts_are_lost = true,
          .prepare =
              [](Stage& stage) {
                LiveLong(stage);
                stage.Mark(Damaged(4));
              },
          .damage =
              [](FileSystem& files) {
                RemoveIndex(files);
                const auto highest = Entries(files).Highest();
                Require(highest.status());
                FlipByte(files, Entries(files).PathOf(*highest / 2), 100);
                FlipByte(files, ShardOf(files, 4), 0);  // its header, so that it goes to quarantine
              },
          .drive = OpenAndSave};
}

Scenario Sweep() {
  const auto last = std::make_shared<storage::EntryNumber>();  // that was there when the process was killed
  return {.name = "Sweep",
          .prepare =
              [last](Stage& stage) {
                stage.Open();
                stage.Save(1, 1);
                stage.Save(2, 1);
                stage.Close();
                stage.Open({.reuse = false});
                *last = stage.LastEntry();
                for (const int64_t step : {3, 4, 5}) stage.Save(step, 1);
                // The crash has come before each commit.
                for (const int64_t step : {3, 4, 5}) stage.Mark(LetGo(step));
              },
          .damage =
              [last](FileSystem& files) {
                RemoveIndex(files);
                FlipByte(files, ShardOf(files, 4), 0);     // its header: it counts as incomplete
                FlipByte(files, ShardOf(files, 5), 4096);  // a chunk
                RemoveEntriesAfter(files, *last);
              },
          .drive =
              [](Stage& stage) {
                stage.Open();
                stage.Save(6, 1);
              }};
}

Scenario Repair() {
  return {.name = "Repair",
          .journal_is_sound = false,
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
                const auto highest = Entries(files).Highest();
                Require(highest.status());
                RemoveEntriesAfter(files, *highest - 2);  // the index has them
                DamageEntry(files, 1, "model.weight");    // no other step shares it, unlike other chunks there: it stays
                DamageEntry(files, 2, "model.weight");    // it goes to quarantine
                FlipByte(files, ShardOf(files, 4), 0);    // its header
                DamageEntry(files, 5, "model.weight");
                MakeEmptyFile(files, layout.identity() + ".tmp");
                MakeEmptyFile(files, layout.retired());
              },
          .drive =
              [](Stage& stage) {
                stage.Repair({1, 2, 4, 5});
                stage.Open();
                stage.Save(6, 1);
                stage.Close();
              }};
}

}  // namespace tidemark::crash
