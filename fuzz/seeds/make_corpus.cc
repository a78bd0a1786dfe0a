// Writes the seeds of the fuzz targets, which are in the tree as corpus/TARGET/NAME: inputs that the library accepts,
// so that a fuzzer begins behind the first checks.
//
//   fuzz_make_corpus FOLDER

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "fuzz/fuzzing.h"
#include "fuzz/journal_image.h"
#include "fuzz/seeds/seed_contents.h"
#include "fuzz/seeds/seed_lists.h"
#include "fuzz/store_image.h"
#include "snapshot/exchange/safetensors_header.h"
#include "snapshot/exchange/safetensors_index.h"
#include "storage/bytes/byte_writer.h"
#include "storage/journal/entry.h"
#include "storage/journal/segment.h"
#include "storage/records/best_modes.h"
#include "storage/records/fact.h"
#include "storage/records/manifest_records.h"
#include "storage/records/metric_report.h"
#include "storage/records/phases_record.h"
#include "storage/shard/format/chunk_codec.h"
#include "storage/store/first_format/folder_note.h"
#include "storage/store/first_format/store_request.h"
#include "storage/store/lease.h"
#include "storage/store/store_identity.h"
#include "tests/storage/records/step_record_json.h"
#include "tests/storage/store/first_format/written_files.h"

namespace tidemark::fuzz {
namespace {

using storage::ByteWriter;

using Seeds = std::map<std::string, std::string>;  // by TARGET/NAME

constexpr uint32_t kChunkBytes = kSeedChunkBytes;
constexpr uint8_t kRepeatedNames = 128;  // a shape (SetShape): the smallest chunks
constexpr size_t kFieldsOffset = 16;     // of header and footer, behind magic, version and byte order

// As it refers to chunks in the shard of the step before.
storage::ShardIndex Referring(uint8_t place) {
  storage::ShardIndex index = MixedContents().index;
  const storage::ShardIdentity other = IdentityAt(place);
  index.files = {{.step = other.step, .attempt = other.attempt, .rank = other.rank, .world_size = other.world_size}};
  for (storage::ChunkRecord& chunk : index.chunks) chunk.file = 1;
  return index;
}

// A shard that refers to the one at that place. Its first chunk and its last entry differ from those of that shard.
std::string DeltaTo(uint8_t place, const storage::ShardIndex& base) {
  storage::ShardIndex index = base;
  const storage::ShardIdentity other = IdentityAt(place);
  index.files = {{.step = other.step, .attempt = other.attempt, .rank = other.rank, .world_size = other.world_size}};
  for (storage::ChunkRecord& chunk : index.chunks) chunk.file = 1;
  index.chunks[0].file = 0;
  index.entries.back().spec.name += "2";
  storage::IndexBase delta = {.file = 1, .digest = storage::DigestOf(AsBytes(EncodeShardIndex(base)))};
  delta.changed_chunks.resize(index.chunks.size());
  delta.changed_entries.resize(index.entries.size());
  delta.changed_chunks.front() = true;
  delta.changed_entries.back() = true;
  return EncodeShardIndex(index, delta);
}

void AddShardSeeds(Seeds& seeds) {
  const auto fields = [](const std::string& block, size_t size) { return block.substr(kFieldsOffset, size); };
  const storage::ShardHeader header{.identity = IdentityAt(1), .chunk_bytes = kChunkBytes};
  const storage::ShardHeader of_boxes{.identity = IdentityAt(1), .chunk_bytes = kChunkBytes, .repeats_names = true};
  seeds["shard_block/header_2"] = std::string(1, '\4') + fields(EncodeShardHeader(of_boxes), 60);
  seeds["shard_block/header"] = std::string(1, '\0') + fields(EncodeShardHeader(header), 60);
  const storage::ShardFooter footer{.file_bytes = 16384, .index_offset = 8192, .index_bytes = 100};
  ByteWriter out;
  out.Put<uint8_t>(1);
  out.Put<uint64_t>(footer.file_bytes);
  out.PutText(fields(EncodeShardFooter(footer), 40));
  seeds["shard_block/footer"] = std::move(out).Take();

  const auto index_seed = [](const std::string& index) {
    ByteWriter seed;
    seed.Put<uint8_t>(0);
    seed.Put<uint16_t>(15);
    return std::move(seed).Take() + index;
  };
  const std::string mixed = EncodeShardIndex(MixedContents().index);
  seeds["shard_index/delta"] = index_seed(DeltaTo(0, MixedContents().index) + mixed);
  std::string boxes = index_seed(EncodeShardIndex(BoxesContents().index));
  boxes[0] = static_cast<char>(kRepeatedNames);
  seeds["shard_index/boxes"] = boxes;
  seeds["shard_index/empty"] = index_seed(EncodeShardIndex(storage::ShardIndex()));
  seeds["shard_index/mixed"] = index_seed(mixed);
  seeds["shard_index/referring"] = index_seed(EncodeShardIndex(Referring(0)));
}

void AddChunkSeeds(Seeds& seeds) {
  const auto round_trip = [](uint8_t flags, uint16_t times, uint8_t change, std::string_view bytes) {
    ByteWriter seed;
    seed.Put<uint8_t>(flags);
    seed.Put<uint16_t>(times);
    seed.Put<uint8_t>(change);
    return std::move(seed).Take() + std::string(bytes);
  };
  seeds["chunk_round_trip/raw"] = round_trip(4, 0, 0, "abc");
  seeds["chunk_round_trip/text"] = round_trip(0, 2000, 0, "repeats");
  for (const uint8_t width : {1, 2, 3}) {
    seeds["chunk_round_trip/planes_" + std::to_string(2 << (width - 1))] = round_trip(width, 200, 3, Floats(40));
  }

  const auto decode = [](std::string_view raw, uint8_t float_bytes) {
    storage::ChunkRecord record{.digest = storage::DigestOf(AsBytes(raw))};
    std::vector<std::byte> buffer;
    const auto stored = storage::ChunkEncoder().Encode(AsBytes(raw), float_bytes, /*compress=*/true, &buffer, &record);
    ByteWriter seed;
    seed.Put<uint8_t>(static_cast<uint8_t>(record.codec));
    seed.Put<uint8_t>(record.float_bytes);
    seed.Put<uint32_t>(record.raw_bytes - 1);
    return std::move(seed).Take() + std::string(reinterpret_cast<const char*>(stored.data()), stored.size());
  };
  seeds["chunk_decode/raw"] = decode("abc", 0);
  seeds["chunk_decode/zeros"] = decode(std::string(100'000, '\0'), 0);
  std::string text;
  for (int i = 0; i < 200; ++i) text += "line " + std::to_string(i * i) + "\n";
  seeds["chunk_decode/text"] = decode(text, 0);
  for (const uint8_t width : {2, 4, 8})
    seeds["chunk_decode/planes_" + std::to_string(width)] = decode(Floats(1200), width);
}

storage::MetricReport Report(uint8_t place, Evaluation::Outcome outcome) {
  const storage::ShardIdentity identity = IdentityAt(place);
  storage::MetricReport report{.store = identity.store, .step = identity.step, .attempt = identity.attempt};
  report.evaluation = {.evaluator = "e", .worker = "pid 7 on node-3", .outcome = outcome};
  report.evaluation.reason = outcome == Evaluation::Outcome::kDone ? "" : "no time";
  report.evaluation.metrics = {{"loss", 0.5}, {"nan", std::numeric_limits<double>::quiet_NaN()}};
  report.evaluation.unhealthy = outcome == Evaluation::Outcome::kDone ? "the loss is not finite" : "";
  report.evaluation.reported = absl::FromUnixSeconds(1'700'000'000);
  report.evaluation.took = absl::Seconds(2);
  return report;
}

// Without the check, which the targets put behind it.
std::string ReportBody(const storage::MetricReport& report) {
  const std::string bytes = EncodeMetricReport(report);
  return bytes.substr(0, bytes.rfind(",\"check\""));
}

void AddRecordSeeds(Seeds& seeds) {
  const auto seed = [](uint8_t kind, const std::string& record) {
    return std::string(1, static_cast<char>(kind)) + record;
  };
  const storage::ShardIdentity identity = IdentityAt(1);
  storage::StepRecord step;
  step.info.step = 1;
  step.info.attempt = storage::ToHex(identity.attempt.bytes);
  step.info.metrics = {{"loss", 0.5}, {"inf", std::numeric_limits<double>::infinity()}};
  step.info.evaluations = {Report(1, Evaluation::Outcome::kDone).evaluation};
  step.info.pinned = true;
  step.info.pin_note = "the best";
  step.info.kept = "among the latest 3";
  step.shards.Add(0, 16384, {});
  step.references = {{.step = 0, .attempt = identity.attempt}};
  seeds["manifest_record/step"] = seed(0, EncodeStepRecord(step));
  step.info.tags = {"paper", "v1"};
  seeds["manifest_record/tagged_step"] = seed(0, EncodeStepRecord(step));
  seeds["manifest_record/store"] = seed(1, storage::EncodeStoreRecord({.store_id = identity.store, .sequence = 7}));
  seeds["manifest_record/deletion"] = seed(2, EncodeDeletionRecord(*DeletionOf(step)));
  MakeDeleted(step, "not among the best");
  seeds["manifest_record/deleted_step"] = seed(0, EncodeStepRecord(step));
  seeds["manifest_record/best"] = seed(3, storage::EncodeBestModes({{"loss", tidemark::BestMode::kLowest}}));
  storage::LeaseNote note;
  note.step = 1;
  note.attempt = identity.attempt;
  note.evaluator = "e";
  note.holder = "pid 7 on node-3";
  note.machine = "node-3";
  note.expiry = absl::Minutes(1);
  seeds["manifest_record/lease"] = seed(4, EncodeLeaseNote(note));
  seeds["manifest_record/identity"] = seed(5, EncodeStoreIdentity(identity.store));
  seeds["manifest_record/phases"] = seed(
      6, storage::EncodePhasesRecord({.attempt = std::string(32, 'a'),
                                      .phases = {{.name = "encode",
                                                  .lane = "codec 1",
                                                  .begin = absl::Microseconds(12),
                                                  .duration = absl::Microseconds(8),
                                                  .busy = absl::Microseconds(5),
                                                  .bytes = 4096},
                                                 {.name = "encode", .lane = "codec 2", .begin = absl::Seconds(3)}}}));

  seeds["manifest_record/note"] = seed(7, storage::EncodeFolderNote("the \"best\"", {}));
  seeds["manifest_record/tagged_note"] = seed(7, storage::EncodeFolderNote("the best", {"paper", "v1"}));
  seeds["manifest_record/tagged_note_without_check"] =
      seed(7, R"({"version": 1, "note": "the best", "tags": ["v1", "no tag", 1, "paper"]})");

  const auto report_seed = [](std::string_view name, const storage::MetricReport& report) {
    ByteWriter out;
    out.Put<uint8_t>(0);
    out.Put<uint8_t>(static_cast<uint8_t>(name.size()));
    out.PutText(name);
    return std::move(out).Take() + ReportBody(report);
  };
  const auto request_seed = [](const storage::StoreRequest& request) {
    const std::string bytes = EncodeStoreRequest(request);
    const std::string name = storage::RequestFileName({request.step, request.attempt}, bytes);
    ByteWriter out;
    out.Put<uint8_t>(3);  // a request, with the check that it has
    out.Put<uint8_t>(static_cast<uint8_t>(name.size()));
    out.PutText(name);
    return std::move(out).Take() + bytes;
  };
  storage::StoreRequest request{.kind = storage::StoreRequest::Kind::kDelete,
                                .store = identity.store,
                                .step = 1,
                                .attempt = identity.attempt,
                                .text = "not among the latest 3",
                                .asker = "pid 7 on node-3, user anna",
                                .asked = absl::FromUnixSeconds(1'700'000'000)};
  seeds["metric_report/request"] = request_seed(request);
  request.kind = storage::StoreRequest::Kind::kTag;
  request.text = "paper/figure-3";
  seeds["metric_report/tag_request"] = request_seed(request);
  seeds["metric_report/done"] =
      report_seed(storage::InboxFileName(1, identity.attempt, "e"), Report(1, Evaluation::Outcome::kDone));
  seeds["metric_report/skipped"] = report_seed(storage::MetricFileName("e"), Report(2, Evaluation::Outcome::kSkipped));
}

// One file of a store; see store_image.h.
std::string File(FileKind kind, uint8_t place, std::string_view bytes) {
  ByteWriter out;
  out.Put<uint8_t>(static_cast<uint8_t>(kind));
  out.Put<uint8_t>(place);
  out.Put<uint16_t>(static_cast<uint16_t>(bytes.size()));
  return std::move(out).Take() + std::string(bytes);
}

// `shape`: see SetShape.
std::string Shard(uint8_t place, std::string_view data, const std::string& index, uint8_t shape = 0) {
  ByteWriter out;
  out.Put<uint8_t>(shape);
  out.Put<uint16_t>(static_cast<uint16_t>(data.size()));
  out.PutText(data);
  return File(FileKind::kShard, place, std::move(out).Take() + index);
}

std::string Shard(uint8_t place, std::string_view data, const storage::ShardIndex& index) {
  return Shard(place, data, EncodeShardIndex(index));
}

std::string Named(FileKind kind, uint8_t place, std::string_view name, std::string_view rest) {
  return File(kind, place, std::string(1, static_cast<char>(name.size())) + std::string(name) + std::string(rest));
}

void AddStoreSeeds(const std::string& target, Seeds& seeds) {
  const SeedContents mixed = MixedContents();
  const std::string sound = Shard(0, mixed.data, mixed.index);
  seeds[target + "/one_step"] = sound;
  seeds[target + "/two_steps"] = sound + Shard(1, "", Referring(0));
  seeds[target + "/delta"] = sound + Shard(1, mixed.data, DeltaTo(0, mixed.index));
  const SeedContents boxes = BoxesContents();
  seeds[target + "/boxes"] = Shard(0, boxes.data, EncodeShardIndex(boxes.index), kRepeatedNames);
  seeds[target + "/two_ranks"] = Shard(64, mixed.data, mixed.index) + Shard(192, mixed.data, mixed.index);
  seeds[target + "/reports"] = sound + File(FileKind::kReport, 0, ReportBody(Report(0, Evaluation::Outcome::kDone))) +
                               File(FileKind::kInboxReport, 0, ReportBody(Report(0, Evaluation::Outcome::kFailed)));
  seeds[target + "/notes"] = sound + File(FileKind::kPin, 0, R"({"version": 1, "note": "the best"})") +
                             Shard(1, "", storage::ShardIndex()) +
                             File(FileKind::kDeletion, 1, R"({"version": 1, "note": "too old"})");
  seeds[target + "/tagged"] = sound + File(FileKind::kPin, 0, storage::EncodeFolderNote("the best", {"paper", "v1"})) +
                              Shard(1, "", storage::ShardIndex()) +
                              File(FileKind::kPin, 1, R"({"version": 1, "tags": ["v1", "v2"]})");
  seeds[target + "/named"] = sound + Named(FileKind::kAnything, 4, "0000000009-", "x") +
                             Named(FileKind::kLink, 0, "shard-00000-of-00002.tmk", "/etc/passwd") +
                             Named(FileKind::kFifo, 8, "report.json", "") +
                             File(FileKind::kIdentity, 0, EncodeStoreIdentity(IdentityAt(0).store));
}

std::string Entry(uint8_t what, const std::vector<storage::Fact>& facts) {
  ByteWriter out;
  for (const storage::Fact& fact : facts) {
    const std::string bytes = EncodeFact(fact).value();
    out.Put<uint16_t>(static_cast<uint16_t>(bytes.size()));
    out.PutText(bytes);
  }
  return File(FileKind::kEntry, static_cast<uint8_t>(what << 2), out.view());
}

// The fact that commits what Shard(place, data, index) makes.
storage::Fact Committed(uint8_t place, std::string_view data, const storage::ShardIndex& index) {
  const storage::ShardIdentity identity = IdentityAt(place);
  const std::string encoded = EncodeShardIndex(index);
  const std::string file = AssembleShard({.identity = identity, .chunk_bytes = storage::kChunkBytesMin}, data, encoded);
  storage::StepRecord record;
  record.info = {.step = identity.step,
                 .attempt = storage::ToHex(identity.attempt.bytes),
                 .sequence = identity.sequence,
                 .metrics = index.metrics,
                 .entry_count = index.entries.size(),
                 .stored_bytes = file.size()};
  record.shards.Add(0, file.size(), storage::DigestOf(AsBytes(encoded)));
  record.references = index.files;
  return storage::StepFact{record};
}

// Of a store with a journal.
void AddJournalStoreSeeds(const std::string& target, Seeds& seeds) {
  constexpr uint8_t kFirst = 32, kSecond = 33;
  const SeedContents mixed = MixedContents();
  const storage::ShardIndex referring = Referring(kFirst);
  const std::string attempt = storage::ToHex(IdentityAt(kFirst).attempt.bytes);
  const std::string id(32, 'c');
  const std::string begin = Entry(kBeginsEpoch, {});
  const std::string commit = Entry(kOfHolder, {Committed(kFirst, mixed.data, mixed.index)});
  const std::string shard = Shard(kFirst, mixed.data, mixed.index);
  const std::string sound = shard + begin + commit;
  seeds[target + "/journal"] = sound;
  seeds[target + "/journal_two_steps"] =
      sound + Shard(kSecond, "", referring) + Entry(kOfHolder, {Committed(kSecond, "", referring)});
  seeds[target + "/journal_unfinished"] = sound + Shard(kSecond, mixed.data, mixed.index) + Entry(kBeginsEpoch, {});
  seeds[target + "/journal_lost_end"] = shard + begin;
  seeds[target + "/journal_carried"] = shard + begin +
                                       Entry(kOfHolder | kMissing, {Committed(kFirst, mixed.data, mixed.index)}) +
                                       Entry(kCarriesLast, {});
  seeds[target + "/journal_missing"] =
      shard + begin + Entry(kOfHolder | kMissing, {Committed(kFirst, mixed.data, mixed.index)}) + Entry(0, {});
  seeds[target + "/journal_no_entry"] = sound + File(FileKind::kEntryFile, 0, "TMKENTRY") + Entry(0, {});
  seeds[target + "/journal_not_there"] = shard + begin + Entry(kOfHolder, {Committed(kSecond, "", referring)});
  const Evaluation evaluation{.evaluator = "e", .worker = "pid 7", .metrics = {{"accuracy", 0.5}}};
  seeds[target + "/journal_facts"] =
      sound +
      Entry(0, {storage::EvaluationFact{0, attempt, evaluation}, storage::PinFact{0, attempt, true, "", {"v1"}}}) +
      Entry(kOfHolder,
            {storage::KeptFact{0, attempt, "latest"}, storage::BestModesFact{{{"accuracy", BestMode::kHighest}}}}) +
      Entry(0, {storage::DeletionRequestFact{id, 0, attempt, "bad", "pid 8", absl::UnixEpoch()}}) +
      Entry(kOfHolder, {storage::AnswerFact{id, "it is pinned"}}) +
      Entry(kOfHolder, {storage::StateFact{0, attempt, StepState::kDamaged, "chunk 3"}});
}

void AddJournalSeeds(Seeds& seeds) {
  std::vector<storage::EntryFile> files;
  for (uint8_t number = 1; number <= 4; ++number) {
    storage::JournalEntry entry{.number = number, .id = {{number}}, .facts = {std::string(number, 'f'), ""}};
    if (number == 1) {
      entry.epoch = 1;
      entry.begins_epoch = true;
    } else {
      entry.previous = DigestOfEntry(files.back().entry);
      entry.epoch = number == 3 ? 1 : 0;
    }
    storage::EntryFile& file = files.emplace_back(storage::EntryFile{.entry = std::move(entry)});
    // The fourth knows that the first is durable, and carries the others.
    file.entry.durable = number == 4 ? 1 : number - 1;
    if (number == 4) file.carried = {files[1].entry, files[2].entry};
  }
  const auto seed = [&](const std::vector<uint8_t>& missing) {
    ByteWriter out;
    out.Put<uint8_t>(0);
    for (const storage::EntryFile& file : files) {
      std::string bytes = EncodeEntryFile(file).value();
      bytes.resize(bytes.size() - sizeof(uint64_t));  // the target adds the checksum
      if (std::find(missing.begin(), missing.end(), file.entry.number) != missing.end()) bytes.clear();
      out.Put<uint16_t>(static_cast<uint16_t>(bytes.size()));
      out.PutText(bytes);
    }
    return std::move(out).Take();
  };
  seeds["journal_entry/whole"] = seed({});
  seeds["journal_entry/one_carried"] = seed({3});
  seeds["journal_entry/two_carried"] = seed({2, 3});
  seeds["journal_entry/one_missing"] = seed({1});
  const auto segment = [&](size_t first, size_t count) {
    std::vector<storage::DigestedEntry> entries;
    for (size_t i = first; i < first + count; ++i) {
      entries.push_back({.entry = files[i].entry, .digest = DigestOfEntry(files[i].entry)});
    }
    std::string bytes = EncodeSegment(entries).value();
    bytes.resize(bytes.size() - sizeof(uint64_t));
    return std::string(1, '\0') + bytes;
  };
  seeds["journal_segment/all"] = segment(0, 4);
  seeds["journal_segment/last"] = segment(3, 1);
}

// The first byte says what the rest is.
void AddSafetensorsSeeds(Seeds& seeds) {
  const std::string file(1, '\0');
  const std::string header(1, '\1');
  const std::string index(1, '\2');
  SafetensorsHeader two;
  two.metadata = {{"format", "pt"}, {"\xc3\xa9", "\n"}};
  two.tensors = {{"none", Dtype::kInt64, {0, 3}, 0, 0},
                 {"w", Dtype::kFloat32, {2, 1}, 0, 8},
                 {"packed", Dtype::kFloat4E2M1FnX2, {3}, 8, 11}};
  const std::string encoded = EncodeSafetensorsHeader(two).value();
  seeds["safetensors/file"] = file + encoded + std::string(11, 'x');
  seeds["safetensors/empty_file"] = file + EncodeSafetensorsHeader({}).value();
  const SafetensorsHeader exported = {.tensors = {},
                                      .metadata = {{"epoch", "3"},
                                                   {"format", "pt"},
                                                   {"imported_from", "x"},
                                                   {"tidemark.kind.epoch", "int64"},
                                                   {"tidemark.kind.w.tied", "tied"},
                                                   {"tidemark.metrics", R"({"loss":0.5})"},
                                                   {"tidemark.step", "2"},
                                                   {"tidemark.store", "0123"},
                                                   {"tidemark.user_metadata", R"({"run":7})"},
                                                   {"w.tied", "w"}}};
  seeds["safetensors/export"] = file + EncodeSafetensorsHeader(exported).value();
  ByteWriter data_bytes;
  data_bytes.Put<uint64_t>(11);
  seeds["safetensors/header"] = header + std::move(data_bytes).Take() + encoded.substr(kSafetensorsLengthBytes);
  seeds["safetensors/index"] = index + EncodeSafetensorsIndex({{"v", "a"}, {"w", "b"}}, 16);
  seeds["safetensors/index_with_more"] =
      index + R"({"metadata":{"total_size":1.5,"x":[{},null]},"weight_map":{"w":"f"},"y":[true,-1,"z"]})";
}

bool Write(const Seeds& seeds, const std::filesystem::path& folder) {
  for (const auto& [name, bytes] : seeds) {
    std::filesystem::create_directories((folder / name).parent_path());
    std::ofstream out(folder / name, std::ios::binary | std::ios::trunc);
    out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!out.flush()) {
      std::fprintf(stderr, "%s cannot be written\n", (folder / name).c_str());
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace tidemark::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: fuzz_make_corpus FOLDER\n");
    return 2;
  }
  tidemark::fuzz::Seeds seeds;
  tidemark::fuzz::AddShardSeeds(seeds);
  tidemark::fuzz::AddChunkSeeds(seeds);
  tidemark::fuzz::AddRecordSeeds(seeds);
  for (const char* target : {"inspect", "repair"}) {
    tidemark::fuzz::AddStoreSeeds(target, seeds);
    tidemark::fuzz::AddJournalStoreSeeds(target, seeds);
  }
  tidemark::fuzz::AddJournalSeeds(seeds);
  seeds.merge(tidemark::fuzz::FactSeeds());
  seeds.merge(tidemark::fuzz::QueueSeeds());
  seeds.merge(tidemark::fuzz::RankSeeds());
  tidemark::fuzz::AddSafetensorsSeeds(seeds);
  return tidemark::fuzz::Write(seeds, argv[1]) ? 0 : 1;
}
