// The binary form of records and of their parts, as facts have them: little-endian numbers, and texts behind their size
// of 4 bytes. Pure; no I/O.

#ifndef TIDEMARK_STORAGE_RECORDS_RECORD_BYTES_H_
#define TIDEMARK_STORAGE_RECORDS_RECORD_BYTES_H_

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"
#include "storage/records/best_modes.h"
#include "storage/records/manifest_records.h"
#include "storage/records/phases_record.h"
#include "tidemark/step_info.h"

namespace tidemark::storage {

// The number of a value on disk is its place in the list, from 1. The lists are frozen; new values go to their ends.
inline constexpr StepState kStateNumbers[] = {StepState::kCommitted, StepState::kDamaged, StepState::kLost,
                                              StepState::kFailed,    StepState::kDeleted, StepState::kUnsaved};
inline constexpr Evaluation::Outcome kOutcomeNumbers[] = {Evaluation::Outcome::kDone, Evaluation::Outcome::kSkipped,
                                                          Evaluation::Outcome::kFailed};
inline constexpr BestMode kModeNumbers[] = {BestMode::kLowest, BestMode::kHighest};

// Of what PutStep writes. 1: with a list of the shards in place of their digest.
inline constexpr uint16_t kStepBytesVersion = 2;

// Writes everything as it is, also what RecordReader refuses. status() says what has no form at all. Thread-compatible.
class RecordWriter {
 public:
  RecordWriter() { out_.Reserve(512); }

  template <std::integral T>
  void Put(std::type_identity_t<T> value) {
    out_.Put<T>(value);
  }
  void PutBool(bool value) { out_.Put<uint8_t>(value ? 1 : 0); }
  template <typename Enum, size_t kCount>
  void PutNumber(const Enum (&numbers)[kCount], Enum value) {
    const auto* const found = std::find(numbers, numbers + kCount, value);
    out_.Put<uint8_t>(static_cast<uint8_t>(found == numbers + kCount ? 0 : found - numbers + 1));
  }
  void PutTime(absl::Time time) { out_.Put<int64_t>(absl::ToUnixNanos(time)); }
  void PutDuration(absl::Duration duration) { out_.Put<int64_t>(absl::ToInt64Nanoseconds(duration)); }

  void PutCount(size_t count);
  void PutName(std::string_view name);                      // any bytes
  void PutText(std::string_view text);                      // what is not UTF-8 is replaced, as DumpJson replaces it
  void PutId(std::string_view field, std::string_view id);  // 32 hexadecimal digits
  void PutAttempt(std::string_view field, std::string_view attempt);  // may be empty
  void PutTexts(const std::vector<std::string>& texts);

  void PutMetrics(const Metrics& metrics);  // their names are texts, in their order once they are replaced
  void PutEvaluation(const Evaluation& evaluation);
  void PutStep(const StepRecord& record);
  void PutPhases(const PhasesRecord& record);
  void PutModes(const BestModes& modes);  // as metrics

  // kInvalidArgument: an id that is not 32 hexadecimal digits, or a text or list of more than 4 GiB.
  const absl::Status& status() const { return status_; }
  std::string_view view() const { return out_.view(); }
  std::string Take() && { return std::move(out_).Take(); }

 private:
  void Fail(std::string_view field, std::string_view why);
  // The same map with its names replaced, where one is not UTF-8.
  template <typename Map>
  std::optional<Map> ReplaceNames(const Map& map);

  ByteWriter out_;
  absl::Status status_;
};

// Reads what RecordWriter has written. kDataLoss, as ByteReader has it, for all that the library never writes: texts
// that are not UTF-8, names that are not in ascending order, a negative step, tags that CheckTags refuses, and so on.
// Takes no more memory than a small multiple of the bytes. Thread-compatible.
class RecordReader {
 public:
  enum class Trust {
    kNone,
    kOwn,  // the process has made the bytes itself: texts are not looked at
  };

  // Neither `bytes` nor `what` is owned.
  RecordReader(std::string_view bytes, std::string_view what, Trust trust = Trust::kNone)
      : in_(AsBytes(bytes), what), trust_(trust) {}

  ByteReader& in() { return in_; }
  bool ok() const { return in_.ok(); }
  const absl::Status& status() const { return in_.status(); }

  bool GetBool(std::string_view field);
  template <typename Enum, size_t kCount>
  Enum GetNumber(const Enum (&numbers)[kCount], std::string_view field) {
    const auto number = in_.Get<uint8_t>(field);
    if (number >= 1 && number <= kCount) return numbers[number - 1];
    FailRange(field, sizeof(number), 1, kCount, number);
    return numbers[0];
  }
  absl::Time GetTime(std::string_view field) { return absl::FromUnixNanos(in_.Get<int64_t>(field)); }
  absl::Duration GetDuration(std::string_view field) { return absl::Nanoseconds(in_.Get<int64_t>(field)); }

  // A count of items of at least `item_bytes`; 0 after a failure.
  uint32_t GetCount(size_t item_bytes, std::string_view field);
  std::string_view GetText(std::string_view field, size_t bytes_max = SIZE_MAX);
  int64_t GetStep(std::string_view field);
  std::string GetId(std::string_view field);
  std::string GetAttempt(std::string_view field);
  std::string GetAttempt(std::string_view field, StepState state);  // empty only where MayLackAttempt
  std::vector<std::string> GetTags(std::string_view field);

  Metrics GetMetrics(std::string_view field);
  Evaluation GetEvaluation();
  StepRecord GetStep(uint16_t version = kStepBytesVersion);
  PhasesRecord GetPhases();
  BestModes GetModes();

  // One metric of the step that GetStep would return; nullopt: it has none of that name.
  std::optional<double> FindMetricOfStep(std::string_view metric);

 private:
  // `item_bytes`: at least so many for each name and value.
  template <typename Map, typename GetValue>
  Map GetMap(size_t item_bytes, std::string_view field, const GetValue& get_value);
  // What stands before a step's metrics.
  void GetStepNumbers(StepInfo& info);
  ShardsDigest GetListedShards();
  void FailRange(std::string_view field, size_t field_bytes, uint64_t lowest, uint64_t highest, uint64_t found);
  absl::Duration GetMicroseconds(std::string_view field);

  ByteReader in_;
  const Trust trust_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RECORDS_RECORD_BYTES_H_
