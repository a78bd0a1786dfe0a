// What every decoder costs grows with each count of its input as the input does: tests/fuzz/cost_growth.h has the
// measure. Allocated bytes and time are compared. This file is longer than 500 lines because every decoder has its test
// here, so that one that is missing is seen.

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "snapshot/exchange/safetensors_header.h"
#include "snapshot/exchange/safetensors_index.h"
#include "snapshot/exchange/torch_contents.h"
#include "snapshot/exchange/torch_pickle.h"
#include "snapshot/exchange/zip_directory.h"
#include "snapshot/exchange/zip_format.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"
#include "storage/journal/entry.h"
#include "storage/journal/journal_view.h"
#include "storage/journal/segment.h"
#include "storage/records/best_modes.h"
#include "storage/records/fact.h"
#include "storage/records/manifest_records.h"
#include "storage/records/metric_report.h"
#include "storage/records/phases_record.h"
#include "storage/shard/format/chunk_codec.h"
#include "storage/shard/read/shard_verify.h"
#include "storage/store/first_format/folder_note.h"
#include "storage/store/first_format/store_request.h"
#include "storage/store/lease.h"
#include "storage/store/memory_catalog.h"
#include "storage/store/store_identity.h"
#include "tests/fuzz/cost_growth.h"
#include "tests/snapshot/exchange/torch_pickle_testing.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tests/storage/records/step_record_json.h"
#include "tests/storage/shard/shard_testing.h"
#include "tests/storage/store/first_format/written_files.h"

namespace tidemark::storage {
namespace {

// One that is run with an input of that count; whether it was taken or refused makes no difference.
using Work = std::function<void()>;
using WorkOf = std::function<Work(uint64_t count)>;

// Whether the cost grows too much from `count` on; empty: it does not.
std::string Growth(const WorkOf& work_of, uint64_t count) {
  const auto cost = [&](uint64_t n) { return CostOf({.work = work_of(n)}); };
  std::string growth;
  // A machine that was slow for a while is another matter.
  for (int tries = 3; tries > 0; --tries) {
    const Cost once = cost(count);
    const Cost four_times = cost(4 * count);
    growth = Growth(once, cost(2 * count), four_times) + TimeGrowth(once, four_times);
    if (growth.empty()) break;
  }
  return growth;
}

std::string NameOf(uint64_t i) { return fmt::format("{:016x}", i); }

// An index whose digest is right.
Work Decoding(const ShardIndex& index, bool repeats_names = false, absl::StatusCode code = absl::StatusCode::kOk) {
  return [encoded = EncodeShardIndex(index), repeats_names, code] {
    const ShardHeader header{TestIdentity(), kChunkBytesMin, repeats_names};
    const ShardFooter footer{
        .index_offset = uint64_t{1} << 40, .index_bytes = encoded.size(), .index_digest = DigestOf(AsBytes(encoded))};
    EXPECT_EQ(DecodeShardIndex(AsBytes(encoded), header, footer).status().code(), code);
  };
}

ShardEntry Entry(uint64_t number, uint64_t first, uint64_t count) {
  return {Tensor(NameOf(number), Dtype::kUint8, {static_cast<int64_t>(count * kChunkBytesMin)}), first, count};
}

// An entry of so many chunks, each of one byte that is none of it, and so many entries that are tied to it.
ShardIndex Tied(uint64_t chunks, uint64_t ties) {
  ShardIndex index;
  for (uint64_t i = 0; i < chunks; ++i) {
    index.chunks.push_back(
        {.codec = Codec::kZstd, .raw_bytes = kChunkBytesMin, .stored_bytes = 1, .offset = kShardBlockBytes + i});
  }
  for (uint64_t i = 0; i <= ties; ++i) index.entries.push_back(Entry(i, 0, chunks));
  return index;
}

// So many entries of one chunk each, in another file where `files` says so.
ShardIndex Single(uint64_t entries, uint64_t files) {
  ShardIndex index = Tied(entries, 0);
  index.entries.clear();
  for (uint64_t i = 0; i < entries; ++i) {
    index.entries.push_back(Entry(i, i, 1));
    if (files > 0) index.chunks[i].file = static_cast<uint16_t>(1 + i % files);
  }
  for (uint64_t i = 0; i < files; ++i) {
    index.files.push_back({.step = 7, .rank = static_cast<uint32_t>(i), .world_size = static_cast<uint32_t>(files)});
  }
  return index;
}

// An index like `base`, stored as a delta to it that has every record, or none.
Work DecodingDelta(const ShardIndex& base, bool changed) {
  ShardIndex index = base;
  index.files.push_back(ReferenceTo(TestIdentity(950)));
  const auto base_file = static_cast<uint16_t>(index.files.size());
  for (ChunkRecord& chunk : index.chunks) {
    if (chunk.file == 0) chunk.file = base_file;
  }
  IndexBase delta = {.file = base_file};
  delta.changed_chunks.assign(index.chunks.size(), changed);
  delta.changed_entries.assign(index.entries.size(), changed);
  return [base, encoded = EncodeShardIndex(index, delta)] {
    const ShardHeader header{TestIdentity(), kChunkBytesMin};
    const ShardFooter footer{.index_offset = uint64_t{1} << 40,
                             .index_bytes = encoded.size(),
                             .index_digest = DigestOf(AsBytes(encoded)),
                             .index_is_delta = true};
    const auto read_base = [&](const FileReference&, const Digest128&) { return base; };
    IndexBase found;
    EXPECT_THAT(DecodeShardIndexDelta(AsBytes(encoded), header, footer, read_base, &found), IsOk());
  };
}

class DecoderCost : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kAddressSanitizer) GTEST_SKIP() << "allocations are not counted under AddressSanitizer";
  }

  // The verification of a shard whose chunks are all damaged.
  Work Verifying(const ShardIndex& index) {
    const std::string path = directory_ / fmt::format("{}.tmk", ++files_);
    WriteWhole(path, BuildShard({TestIdentity(), kChunkBytesMin}, std::string(index.chunks.size(), 'x'), index));
    return [this, path] {
      const auto verified = VerifyShard(PosixFileSystem(), path, directory_.path(), nullptr,
                                        {.codec_threads = 1, .io = IoQueueKind::kThreads});
      ASSERT_THAT(verified, IsOk());
      EXPECT_FALSE(verified->damage.empty());
    };
  }

  const TestDirectory directory_;
  int files_ = 0;
};

TEST_F(DecoderCost, OfAnIndexGrowsAsItsChunks) {
  EXPECT_EQ(Growth([](uint64_t n) { return Decoding(Tied(n, 0)); }, 20'000), "");
}
TEST_F(DecoderCost, OfAnIndexGrowsAsItsEntries) {
  EXPECT_EQ(Growth([](uint64_t n) { return Decoding(Single(n, 0)); }, 10'000), "");
}
TEST_F(DecoderCost, OfAnIndexGrowsAsItsTies) {
  EXPECT_EQ(Growth([](uint64_t n) { return Decoding(Tied(10, n)); }, 10'000), "");
}
TEST_F(DecoderCost, OfAnIndexGrowsAsChunksAndTies) {
  EXPECT_EQ(Growth([](uint64_t n) { return Decoding(Tied(n, n)); }, 10'000), "");
}
TEST_F(DecoderCost, OfAnIndexGrowsAsItsReferences) {
  EXPECT_EQ(Growth([](uint64_t n) { return Decoding(Single(1, n)); }, 10'000), "");
}
TEST_F(DecoderCost, OfAnIndexGrowsAsItsBoxes) {
  const auto boxes = [](uint64_t n) {
    ShardIndex index;
    for (uint64_t i = 0; i < n; ++i) {
      index.entries.push_back({.spec = {.name = NameOf(i),
                                        .dtype = Dtype::kUint8,
                                        .shape = std::vector<int64_t>(16, 1),
                                        .box_offset = std::vector<int64_t>(16, 1),
                                        .box_extent = std::vector<int64_t>(16, 0)}});
    }
    return Decoding(index);
  };
  EXPECT_EQ(Growth(boxes, 2'000), "");
}
// Of one tensor: every second row, and a grid.
TEST_F(DecoderCost, OfAnIndexGrowsAsTheBoxesOfOneName) {
  const auto decoding = [](uint64_t n, int64_t columns) {
    ShardIndex index;
    const auto rows = static_cast<int64_t>(n) / columns;
    index.chunks.push_back({.raw_bytes = 1, .stored_bytes = 1, .offset = kShardBlockBytes});
    for (int64_t i = 0; i < rows * columns; ++i) {
      index.entries.push_back({.spec = {.name = "w",
                                        .dtype = Dtype::kUint8,
                                        .shape = {2 * rows, columns},
                                        .box_offset = {2 * (i / columns), i % columns},
                                        .box_extent = {1, 1}},
                               .first_chunk = 0,
                               .chunk_count = 1});
    }
    return Decoding(index, /*repeats_names=*/true);
  };
  EXPECT_EQ(Growth([&](uint64_t n) { return decoding(n, 1); }, 10'000), "");
  EXPECT_EQ(Growth([&](uint64_t n) { return decoding(n, 100); }, 10'000), "");
}
// Of 30,000 rods along three axes, which take too long to tell apart, and of more.
TEST_F(DecoderCost, OfAnIndexGrowsAsTheBoxesThatNoPlaneSeparates) {
  const auto rods = [](uint64_t n) {
    ShardIndex index;
    const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(n) / 3));
    index.chunks.push_back({.codec = Codec::kZstd,
                            .raw_bytes = static_cast<uint32_t>(2 * side),
                            .stored_bytes = 1,
                            .offset = kShardBlockBytes});
    const auto add = [&](std::vector<int64_t> offset, std::vector<int64_t> extent) {
      index.entries.push_back({.spec = {.name = "w",
                                        .dtype = Dtype::kUint8,
                                        .shape = {2 * side, 2 * side, 2 * side},
                                        .box_offset = std::move(offset),
                                        .box_extent = std::move(extent)},
                               .first_chunk = 0,
                               .chunk_count = 1});
    };
    for (int64_t i = 0; i < side; ++i) {
      for (int64_t j = 0; j < side; ++j) {
        add({0, 2 * i, 2 * j + 1}, {2 * side, 1, 1});
        add({2 * i + 1, 0, 2 * j}, {1, 2 * side, 1});
        add({2 * i, 2 * j + 1, 0}, {1, 1, 2 * side});
      }
    }
    return Decoding(index, /*repeats_names=*/true, absl::StatusCode::kDataLoss);
  };
  EXPECT_EQ(Growth(rods, 30'000), "");
}
TEST_F(DecoderCost, OfAnIndexGrowsAsItsNames) {
  const auto named = [](uint64_t n) {
    ShardIndex index;
    for (uint64_t i = 0; i < n; ++i) {
      index.entries.push_back({.spec = Tensor(NameOf(i) + std::string(1000, 'x'), Dtype::kUint8, {0})});
    }
    return Decoding(index);
  };
  EXPECT_EQ(Growth(named, 2'000), "");
}
TEST_F(DecoderCost, OfAnIndexGrowsAsItsTexts) {
  const auto texts = [](uint64_t n) {
    ShardIndex index;
    for (uint64_t i = 0; i < n; ++i) {
      index.metrics[NameOf(i)] = 1;
      index.properties[NameOf(i)] = NameOf(i);
    }
    return Decoding(index);
  };
  EXPECT_EQ(Growth(texts, 5'000), "");
}

TEST_F(DecoderCost, OfADeltaGrowsAsItsBase) {
  EXPECT_EQ(Growth([](uint64_t n) { return DecodingDelta(Single(n, 0), /*changed=*/false); }, 10'000), "");
}
TEST_F(DecoderCost, OfADeltaGrowsAsItsChunksAndEntries) {
  EXPECT_EQ(Growth([](uint64_t n) { return DecodingDelta(Single(n, 0), /*changed=*/true); }, 10'000), "");
}
TEST_F(DecoderCost, OfADeltaGrowsAsItsChunksAndTies) {
  EXPECT_EQ(Growth([](uint64_t n) { return DecodingDelta(Tied(n, n), /*changed=*/true); }, 10'000), "");
}
TEST_F(DecoderCost, OfADeltaGrowsAsItsReferencesAndThoseOfItsBase) {
  EXPECT_EQ(Growth([](uint64_t n) { return DecodingDelta(Single(n, n), /*changed=*/false); }, 10'000), "");
}
TEST_F(DecoderCost, OfAVerificationGrowsAsDamagedChunksAndTies) {
  EXPECT_EQ(Growth([&](uint64_t n) { return Verifying(Tied(n, n)); }, 2'000), "");
}
TEST_F(DecoderCost, OfAVerificationGrowsAsDamagedEntries) {
  EXPECT_EQ(Growth([&](uint64_t n) { return Verifying(Single(n, 0)); }, 2'000), "");
}
TEST_F(DecoderCost, OfAVerificationGrowsAsMissingFilesAndTheirEntries) {
  EXPECT_EQ(Growth([&](uint64_t n) { return Verifying(Single(2 * n, n)); }, 1'000), "");
}

// Takes what `encode` makes of a record with so many of something.
template <typename Decode>
Work Taking(const std::string& bytes, Decode decode) {
  return [bytes, decode] { EXPECT_THAT(decode(bytes), IsOk()); };
}

StepRecord Step() {
  StepRecord record;
  record.info.attempt = ToHex(TestIdentity().attempt.bytes);
  return record;
}

Metrics ManyMetrics(uint64_t n) {
  Metrics metrics;
  for (uint64_t i = 0; i < n; ++i) metrics[NameOf(i)] = static_cast<double>(i);
  return metrics;
}

TEST_F(DecoderCost, OfAStepRecordGrowsAsWhatItHas) {
  const std::map<std::string, std::function<void(StepRecord*, uint64_t)>> counts = {
      {"references",
       [](StepRecord* record, uint64_t n) {
         for (uint64_t i = 0; i < n; ++i)
           record->references.push_back(ReferenceTo(TestIdentity(static_cast<int64_t>(i))));
       }},
      {"metrics", [](StepRecord* record, uint64_t n) { record->info.metrics = ManyMetrics(n); }},
      {"evaluations",
       [](StepRecord* record, uint64_t n) {
         for (uint64_t i = 0; i < n; ++i) {
           record->info.evaluations.push_back({.evaluator = NameOf(i), .metrics = ManyMetrics(2)});
         }
       }},
      {"metadata", [](StepRecord* record,
                      uint64_t n) { record->info.user_metadata = "{\"a\":\"" + std::string(100 * n, 'x') + "\"}"; }},
  };
  for (const auto& [what, add] : counts) {
    SCOPED_TRACE(what);
    const auto work = [&add = add](uint64_t n) {
      StepRecord record = Step();
      add(&record, n);
      return Taking(EncodeStepRecord(record), DecodeStepRecord);
    };
    EXPECT_EQ(Growth(work, 1'000), "");
  }
}

TEST_F(DecoderCost, OfADeletionRecordGrowsAsItsReferences) {
  const auto work = [](uint64_t n) {
    DeletionRecord record{.attempt = TestIdentity().attempt};
    record.references.assign(n, TestIdentity().attempt);
    return Taking(EncodeDeletionRecord(record), DecodeDeletionRecord);
  };
  EXPECT_EQ(Growth(work, 2'000), "");
}

TEST_F(DecoderCost, OfAPhasesRecordGrowsAsItsPhases) {
  const auto work = [](uint64_t n) {
    PhasesRecord record{.attempt = ToHex(TestIdentity().attempt.bytes)};
    for (uint64_t i = 0; i < n; ++i) record.phases.push_back({.name = NameOf(i), .lane = NameOf(i)});
    return Taking(EncodePhasesRecord(record), DecodePhasesRecord);
  };
  EXPECT_EQ(Growth(work, 2'000), "");
}

Work DecodingEntry(const EntryFile& file, size_t bytes_min = 0) {
  const auto encoded = EncodeEntryFile(file);
  EXPECT_THAT(encoded, IsOk());
  return Taking(PadEntryFile(encoded.value_or(std::string(8, ' ')), bytes_min),
                [number = file.entry.number](std::string_view bytes) { return DecodeEntryFile(number, bytes); });
}

TEST_F(DecoderCost, OfAJournalEntryGrowsAsItsFacts) {
  const auto work = [](uint64_t n) {
    return DecodingEntry({.entry = {.number = 1, .facts = std::vector<std::string>(n, "fact")}});
  };
  EXPECT_EQ(Growth(work, 5'000), "");
}
TEST_F(DecoderCost, OfAJournalEntryGrowsAsTheBytesOfAFact) {
  const auto work = [](uint64_t n) {
    return DecodingEntry({.entry = {.number = 1, .facts = {std::string(1000 * n, 'f')}}});
  };
  EXPECT_EQ(Growth(work, 1'000), "");
}
TEST_F(DecoderCost, OfAJournalEntryGrowsAsWhatItCarries) {
  const auto work = [](uint64_t n) {
    EntryFile file{.entry = {.number = n + 1}};
    for (uint64_t i = 1; i <= n; ++i) file.carried.push_back({.number = i});
    return DecodingEntry(file);
  };
  EXPECT_EQ(Growth(work, 5'000), "");
}
TEST_F(DecoderCost, OfAJournalEntryGrowsAsTheFactsThatItCarries) {
  const auto work = [](uint64_t n) {
    EntryFile file{.entry = {.number = n + 1}};
    for (uint64_t i = 1; i <= n; ++i) file.carried.push_back({.number = i, .facts = {"fact", "fact"}});
    return DecodingEntry(file);
  };
  EXPECT_EQ(Growth(work, 2'000), "");
}
TEST_F(DecoderCost, OfAJournalEntryGrowsAsItsPadding) {
  EXPECT_EQ(Growth([](uint64_t n) { return DecodingEntry({.entry = {.number = 1}}, 1000 * n); }, 1'000), "");
}

Work DecodingSegment(uint64_t entries, uint64_t facts, uint64_t fact_bytes) {
  std::vector<DigestedEntry> all;
  Digest128 previous;
  for (uint64_t i = 1; i <= entries; ++i) {
    JournalEntry entry{.number = i,
                       .durable = i - 1,
                       .previous = previous,
                       .facts = std::vector<std::string>(facts, std::string(fact_bytes, 'f'))};
    previous = DigestOfEntry(entry);
    all.push_back({.entry = std::move(entry), .digest = previous});
  }
  const auto encoded = EncodeSegment(all);
  EXPECT_THAT(encoded, IsOk());
  return Taking(encoded.value_or(""), [](std::string_view bytes) { return DecodeSegment("segment", bytes); });
}

TEST_F(DecoderCost, OfAJournalSegmentGrowsAsItsEntries) {
  EXPECT_EQ(Growth([](uint64_t n) { return DecodingSegment(n, 1, 4); }, 2'000), "");
}
TEST_F(DecoderCost, OfAJournalSegmentGrowsAsTheFactsOfAnEntry) {
  EXPECT_EQ(Growth([](uint64_t n) { return DecodingSegment(2, n, 4); }, 5'000), "");
}
TEST_F(DecoderCost, OfAJournalSegmentGrowsAsTheBytesOfAFact) {
  EXPECT_EQ(Growth([](uint64_t n) { return DecodingSegment(2, 1, 1000 * n); }, 1'000), "");
}

TEST_F(DecoderCost, OfAReadingOfTheJournalGrowsAsItsEntries) {
  const auto work = [](uint64_t n) -> Work {
    std::vector<std::optional<std::string>> files;
    Digest128 previous;
    for (uint64_t i = 1; i <= n; ++i) {
      JournalEntry entry{.number = i, .durable = i - 1, .previous = previous, .facts = {"fact"}};
      std::memcpy(entry.id.bytes.data(), &i, sizeof(i));
      previous = DigestOfEntry(entry);
      files.emplace_back(EncodeEntryFile({.entry = std::move(entry)}).value());
    }
    return [files = std::move(files)] { EXPECT_THAT(JournalView().Learn(files), IsOk()); };
  };
  EXPECT_EQ(Growth(work, 2'000), "");
}

// Each file carries all before it, and only the last one is there.
TEST_F(DecoderCost, OfAReadingOfTheJournalGrowsAsWhatIsMissing) {
  const auto work = [](uint64_t n) -> Work {
    EntryFile last{.entry = {.number = n + 1, .id = {{1}}}};
    for (uint64_t i = 1; i <= n; ++i) {
      JournalEntry entry{.number = i, .previous = last.entry.previous};
      std::memcpy(entry.id.bytes.data(), &i, sizeof(i));
      last.entry.previous = DigestOfEntry(entry);
      last.carried.push_back(std::move(entry));
    }
    last.entry.id.bytes[15] = 1;
    std::vector<std::optional<std::string>> files(n);
    files.emplace_back(EncodeEntryFile(last).value());
    return [files = std::move(files)] { EXPECT_THAT(JournalView().Learn(files), IsOk()); };
  };
  EXPECT_EQ(Growth(work, 2'000), "");
}

// The fact of a step without references in the form of version 1, with so many shards.
std::string StepFactOfVersion1(uint64_t shards) {
  constexpr size_t kDigestBytes = 16, kCountBytes = 4;
  std::string bytes = EncodeFact(StepFact{Step()}).value();
  bytes[1] = 1;
  ByteWriter list;
  list.Put<uint32_t>(static_cast<uint32_t>(shards));
  for (uint64_t i = 0; i < shards; ++i) {
    list.Put<uint32_t>(static_cast<uint32_t>(i));
    list.Put<uint64_t>(i);
    list.PutBytes16({});
  }
  return bytes.replace(bytes.size() - kDigestBytes - kCountBytes, kDigestBytes, list.view());
}

TEST_F(DecoderCost, OfAFactGrowsAsWhatItHas) {
  const std::string attempt = ToHex(TestIdentity().attempt.bytes);
  const std::map<std::string, std::function<Fact(uint64_t)>> facts = {
      {"references",
       [](uint64_t n) {
         StepRecord record = Step();
         record.references.assign(n, {.attempt = TestIdentity().attempt});
         return StepFact{record};
       }},
      {"references and metrics",
       [](uint64_t n) {
         StepRecord record = Step();
         record.references.assign(n, {});
         record.info.metrics = ManyMetrics(n);
         return StepFact{record};
       }},
      {"evaluations",
       [](uint64_t n) {
         StepRecord record = Step();
         for (uint64_t i = 0; i < n; ++i) record.info.evaluations.push_back({.evaluator = NameOf(i)});
         return StepFact{record};
       }},
      {"metrics",
       [&](uint64_t n) {
         return EvaluationFact{.attempt = attempt, .evaluation = {.evaluator = "e", .metrics = ManyMetrics(n)}};
       }},
      {"phases",
       [&](uint64_t n) {
         PhasesRecord record{.attempt = attempt};
         for (uint64_t i = 0; i < n; ++i) record.phases.push_back({.name = NameOf(i), .lane = NameOf(i)});
         return PhasesFact{record};
       }},
      {"modes",
       [](uint64_t n) {
         BestModesFact fact;
         for (uint64_t i = 0; i < n; ++i) fact.modes[NameOf(i)] = BestMode::kLowest;
         return fact;
       }},
      {"text", [&](uint64_t n) { return KeptFact{.attempt = attempt, .reason = std::string(100 * n, '\x01')}; }},
  };
  for (const auto& [what, make] : facts) {
    SCOPED_TRACE(what);
    const auto work = [&make = make](uint64_t n) {
      const auto encoded = EncodeFact(make(n));
      EXPECT_THAT(encoded, IsOk());
      return Taking(encoded.value_or(""), DecodeFact);
    };
    EXPECT_EQ(Growth(work, 2'000), "");
  }
  const auto work = [](uint64_t n) { return Taking(StepFactOfVersion1(n), DecodeFact); };
  EXPECT_EQ(Growth(work, 2'000), "");
}

TEST_F(DecoderCost, OfACatalogInMemoryGrowsAsItsFacts) {
  const auto work = [](uint64_t n) -> Work {
    std::vector<Fact> facts;
    for (uint64_t i = 0; i < n; ++i) {
      StepRecord record = Step();
      record.info.step = static_cast<int64_t>(i);
      facts.push_back(StepFact{record});
      facts.push_back(
          EvaluationFact{.step = record.info.step, .attempt = record.info.attempt, .evaluation = {.evaluator = "e"}});
    }
    return [facts = std::move(facts)] {
      MemoryCatalog catalog;
      catalog.Apply(facts);
    };
  };
  EXPECT_EQ(Growth(work, 5'000), "");
}

TEST_F(DecoderCost, OfAReportGrowsAsItsMetrics) {
  const auto work = [](uint64_t n) {
    MetricReport report{.attempt = TestIdentity().attempt};
    report.evaluation.evaluator = "e";
    report.evaluation.metrics = ManyMetrics(n);
    return Taking(EncodeMetricReport(report), DecodeMetricReport);
  };
  EXPECT_EQ(Growth(work, 2'000), "");
}

TEST_F(DecoderCost, OfASafetensorsHeaderGrowsAsTensorsAndMetadata) {
  const auto work = [](uint64_t n) {
    SafetensorsHeader header;
    for (uint64_t i = 0; i < n; ++i) {
      header.tensors.push_back({.name = NameOf(i), .dtype = Dtype::kUint8, .shape = {1, 1}, .begin = i, .end = i + 1});
      header.metadata[NameOf(i)] = NameOf(i);
    }
    const auto encoded = EncodeSafetensorsHeader(header);
    EXPECT_THAT(encoded, IsOk());
    const std::string text = encoded->substr(kSafetensorsLengthBytes);
    return Taking(text, [n](const std::string& bytes) { return DecodeSafetensorsHeader(bytes, n); });
  };
  EXPECT_EQ(Growth(work, 2'000), "");
}

TEST_F(DecoderCost, OfAZipDirectoryGrowsAsItsRecords) {
  const auto work = [](uint64_t n) {
    std::string archive;
    std::vector<ZipMember> members;
    for (uint64_t i = 0; i < n; ++i) {
      members.push_back({.name = NameOf(i), .offset = archive.size()});
      archive += EncodeZipMemberHeader(members.back());
    }
    archive += EncodeZipDirectory(members, archive.size());
    return [archive] {
      EXPECT_THAT(ReadZipDirectory(archive.size(),
                                   [&](uint64_t offset, std::span<std::byte> destination) {
                                     std::memcpy(destination.data(), archive.data() + offset, destination.size());
                                     return absl::OkStatus();
                                   }),
                  IsOk());
    };
  };
  EXPECT_EQ(Growth(work, 2'000), "");
}

// So many tensors, of which every second is tied, in a dictionary with as many values.
TEST_F(DecoderCost, OfAFileOfTorchGrowsAsItsTensorsAndValues) {
  const auto work = [](uint64_t n) {
    std::vector<std::string> items;
    for (uint64_t i = 0; i < n; ++i) {
      items.push_back(pickled::Text(NameOf(i)));
      items.push_back(pickled::Tensor(fmt::format("{}", i / 2), 0, {2, 2}, {2, 1}));
      items.push_back(pickled::Text("v" + NameOf(i)));
      items.push_back(pickled::Tuple({pickled::Integer(1), pickled::Text(NameOf(i))}));
    }
    return [bytes = pickled::Whole(pickled::Dict(items))] {
      const auto pickle = ReadPickle(bytes);
      ASSERT_THAT(pickle, IsOk());
      EXPECT_THAT(FindTorchContents(*pickle, "", [](const std::string&) { return std::optional<uint64_t>(16); }),
                  IsOk());
    };
  };
  EXPECT_EQ(Growth(work, 1'000), "");
}

TEST_F(DecoderCost, OfBestModesGrowsAsTheirMetrics) {
  const auto work = [](uint64_t n) {
    BestModes modes;
    for (uint64_t i = 0; i < n; ++i) modes[NameOf(i)] = BestMode::kLowest;
    return Taking(EncodeBestModes(modes), DecodeBestModes);
  };
  EXPECT_EQ(Growth(work, 5'000), "");
}

TEST_F(DecoderCost, OfARequestGrowsAsItsText) {
  const auto work = [](uint64_t n) {
    StoreRequest request{.attempt = TestIdentity().attempt};
    request.text = std::string(n, '\x01');
    return Taking(EncodeStoreRequest(request), DecodeStoreRequest);
  };
  EXPECT_EQ(Growth(work, kRequestTextBytesMax / 4), "");
}

TEST_F(DecoderCost, OfALeaseGrowsAsItsNames) {
  const auto work = [](uint64_t n) {
    const LeaseNote note{.attempt = TestIdentity().attempt,
                         .evaluator = std::string(n, 'e'),
                         .holder = std::string(n, '\x01'),
                         .machine = std::string(n, 'm'),
                         .expiry = absl::Hours(1)};
    return [bytes = EncodeLeaseNote(note)] { DecodeLeaseNote(bytes).status().IgnoreError(); };
  };
  EXPECT_EQ(Growth(work, 50'000), "");
}

// pin.json and deleted.json
TEST_F(DecoderCost, OfANoteInAFolderGrowsAsItsTextAndTags) {
  const auto work = [](uint64_t n) {
    std::vector<std::string> tags;
    for (uint64_t i = 0; i < n; ++i) tags.push_back(NameOf(i));
    return [bytes = EncodeFolderNote(std::string(10 * n, '\x01'), tags)] {
      EXPECT_THAT(DecodeFolderNote(bytes).problem, IsOk());
    };
  };
  EXPECT_EQ(Growth(work, 1'000), "");
}

// In those that have no check of their bytes.
TEST_F(DecoderCost, OfARecordGrowsAsTheKeysThatItDoesNotKnow) {
  const auto any = [](auto decode) {
    return [decode](std::string_view bytes) { decode(bytes).status().IgnoreError(); };
  };
  const AttemptId attempt = TestIdentity().attempt;
  const std::map<std::string, std::pair<std::string, std::function<void(std::string_view)>>> decoders = {
      {"store.json", {EncodeStoreIdentity(StoreId()), any(DecodeStoreIdentity)}},
      {"store", {EncodeStoreRecord({}), any(DecodeStoreRecord)}},
      {"best", {EncodeBestModes({}), any(DecodeBestModes)}},
      {"deletion", {EncodeDeletionRecord({.attempt = attempt}), any(DecodeDeletionRecord)}},
      {"phases", {EncodePhasesRecord({.attempt = ToHex(attempt.bytes)}), any(DecodePhasesRecord)}},
      {"lease", {EncodeLeaseNote({.attempt = attempt, .expiry = absl::Hours(1)}), any(DecodeLeaseNote)}},
      {"note", {EncodeFolderNote("", {}), [](std::string_view bytes) { DecodeFolderNote(bytes); }}},
  };
  for (const auto& [what, decoder] : decoders) {
    SCOPED_TRACE(what);
    const auto work = [&decoder = decoder](uint64_t n) {
      std::string keys = "{";
      for (uint64_t i = 0; i < n; ++i) keys += fmt::format("\"{}\":[{}],", NameOf(i), i);
      return [bytes = keys + decoder.first.substr(1), decode = decoder.second] { decode(bytes); };
    };
    EXPECT_EQ(Growth(work, 2'000), "");
  }
}

TEST_F(DecoderCost, OfASafetensorsIndexGrowsAsTensorsAndFiles) {
  const auto work = [](uint64_t n) {
    SafetensorsFiles files;
    for (uint64_t i = 0; i < n; ++i) files[NameOf(i)] = NameOf(i) + ".safetensors";
    return Taking(EncodeSafetensorsIndex(files, n), DecodeSafetensorsIndex);
  };
  EXPECT_EQ(Growth(work, 5'000), "");
}

// In KiB.
TEST_F(DecoderCost, OfAChunkGrowsAsItsBytes) {
  constexpr uint64_t kKibibytes = 4 << 10;
  constexpr size_t kBytes = 4 * kKibibytes << 10;
  std::mt19937_64 random(20261128);
  std::vector<float> floats(kBytes / sizeof(float));
  for (float& value : floats) value = std::uniform_real_distribution<float>(-1, 1)(random);
  const std::vector<std::byte> noise = RandomBytes(kBytes, random);
  std::vector<std::byte> letters = noise;
  for (std::byte& letter : letters) letter &= std::byte{3};
  const std::map<Codec, std::span<const std::byte>> chunks = {
      {Codec::kRaw, noise}, {Codec::kZstd, letters}, {Codec::kPlanesZstd, std::as_bytes(std::span(floats))}};
  for (const auto& [codec, bytes] : chunks) {
    SCOPED_TRACE(static_cast<int>(codec));
    const auto work = [codec = codec, bytes = bytes](uint64_t n) {
      const std::span<const std::byte> raw = bytes.first(n << 10);
      std::vector<std::byte> buffer;
      ChunkRecord record{.digest = DigestOf(raw)};
      const uint8_t float_bytes = codec == Codec::kPlanesZstd ? sizeof(float) : 0;
      const auto stored = ChunkEncoder().Encode(raw, float_bytes, /*compress=*/true, &buffer, &record);
      EXPECT_EQ(record.codec, codec);
      return [record, stored = std::vector(stored.begin(), stored.end())] {
        std::vector<std::byte> decoded(record.raw_bytes);
        EXPECT_THAT(ChunkDecoder().Verify(record, stored, decoded), IsOk());
      };
    };
    EXPECT_EQ(Growth(work, kKibibytes), "");
  }
}

// The test's own: work that is a product is found.
TEST_F(DecoderCost, ThatIsAProductIsFound) {
  const auto allocating = [](uint64_t n) {
    return [n] {
      std::vector<std::string> names;
      for (uint64_t i = 0; i < n; ++i) names.emplace_back(n, 'x');
    };
  };
  EXPECT_THAT(Growth(allocating, 1'000), ::testing::HasSubstr("allocates"));
  const auto looping = [](uint64_t n) {
    return [n] {
      std::atomic<uint64_t> count = 0;
      while (count < n * n) ++count;
    };
  };
  EXPECT_THAT(Growth(looping, 1'000), ::testing::HasSubstr("takes"));
}

TEST_F(DecoderCost, ThatIsAProductBesideAFixedCostIsFound) {
  const auto cost = [](uint64_t bytes) {
    return Cost{.allocated_bytes = (100 << 20) + bytes, .file_calls = 0, .file_bytes = 0, .processor_seconds = 0};
  };
  constexpr uint64_t kMib = 1 << 20;
  EXPECT_EQ(storage::Growth(cost(kMib), cost(2 * kMib), cost(4 * kMib)), "");
  EXPECT_THAT(storage::Growth(cost(kMib), cost(4 * kMib), cost(16 * kMib)), ::testing::HasSubstr("allocates"));
}

}  // namespace
}  // namespace tidemark::storage
