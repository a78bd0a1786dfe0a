#include "storage/index/record_batch.h"

#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"
#include "storage/bytes/checked_encoding.h"
#include "storage/index/index_keys.h"
#include "storage/index/key_iteration.h"

namespace tidemark::storage {
namespace {

template <typename Record>
absl::Status Put(rocksdb::WriteBatch& batch, std::string_view what, std::string_view key, const Record& record,
                 std::string (*encode)(const Record&), absl::StatusOr<Record> (*decode)(std::string_view)) {
  const absl::StatusOr<CheckedEncoding<Record>> encoded = EncodeAndCheck(what, record, encode, decode);
  if (!encoded.ok()) return encoded.status();
  batch.Put(Slice(key), encoded->bytes);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<StepInfo> PutStep(rocksdb::WriteBatch& batch, const std::optional<StepRecord>& old,
                                 const StepRecord& record) {
  const absl::StatusOr<std::string> bytes = EncodeFact(StepFact{record});
  if (!bytes.ok()) {
    return absl::Status(bytes.status().code(), fmt::format("the record of step {}: {}", record.info.step,
                                                           std::string(bytes.status().message())));
  }
  absl::StatusOr<StepRecord> as_read = DecodeStepValue(*bytes);
  if (!as_read.ok()) return as_read.status();
  batch.Put(StepKey(record.info.step), *bytes);
  const std::set<std::string> keys = IndexKeys(*as_read);
  const std::set<std::string> old_keys = old ? IndexKeys(*old) : std::set<std::string>();
  for (const std::string& key : old_keys) {
    if (!keys.contains(key)) batch.Delete(key);
  }
  for (const std::string& key : keys) {
    if (!old_keys.contains(key)) batch.Put(key, "");
  }
  return std::move(as_read->info);
}

std::string EncodePlace(const JournalPlace& place) {
  ByteWriter out;
  out.Put<uint64_t>(place.number);
  out.PutBytes16(place.digest.bytes);
  out.Put<uint64_t>(place.epoch);
  return std::move(out).Take();
}

absl::StatusOr<JournalPlace> DecodePlace(std::string_view bytes) {
  ByteReader in(AsBytes(bytes), "place in a journal");
  JournalPlace place;
  place.number = in.Get<uint64_t>("number");
  place.digest.bytes = in.GetBytes16("digest");
  place.epoch = in.Get<uint64_t>("epoch");
  in.ExpectEnd();
  if (!in.ok()) return in.status();
  return place;
}

void PutApplied(rocksdb::WriteBatch& batch, const JournalPlace& place) {
  batch.Put(Slice(kJournalKey), EncodePlace(place));
}

absl::Status PutRequest(rocksdb::WriteBatch& batch, const DeletionRequestFact& request) {
  const absl::StatusOr<std::string> bytes = EncodeFact(request);
  if (!bytes.ok()) return bytes.status();
  batch.Put(fmt::format("{}{}", kRequestKeyPrefix, request.id), *bytes);
  return absl::OkStatus();
}

void RemoveRequest(rocksdb::WriteBatch& batch, std::string_view id) {
  batch.Delete(fmt::format("{}{}", kRequestKeyPrefix, id));
}

absl::Status PutStore(rocksdb::WriteBatch& batch, const StoreRecord& record) {
  return Put(batch, "the store's record", kStoreKey, record, EncodeStoreRecord, DecodeStoreRecord);
}

absl::Status PutPhases(rocksdb::WriteBatch& batch, const PhasesRecord& record) {
  return Put(batch, fmt::format("the record of the phases of step {}", record.step), PhasesKey(record.step), record,
             EncodePhasesRecord, DecodePhasesRecord);
}

absl::Status PutDeletion(rocksdb::WriteBatch& batch, const DeletionRecord& record) {
  return Put(batch, fmt::format("the record of step {}'s deletion", record.step), DeletionKey(record.attempt), record,
             EncodeDeletionRecord, DecodeDeletionRecord);
}

absl::Status PutBestModes(rocksdb::WriteBatch& batch, const BestModes& modes) {
  return Put(batch, "the record of which values are the best", kBestModesKey, modes, EncodeBestModes, DecodeBestModes);
}

}  // namespace tidemark::storage
