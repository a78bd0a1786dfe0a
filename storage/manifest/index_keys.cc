#include "storage/manifest/index_keys.h"

#include <bit>
#include <cmath>
#include <optional>

#include "fmt/format.h"
#include "storage/records/best_modes.h"
#include "storage/records/phases_record.h"

namespace tidemark::storage {
namespace {

constexpr std::string_view kMetricKeyPrefix = "metric/";
constexpr std::string_view kReferenceKeyPrefix = "reference/";
constexpr size_t kNumberBytes = sizeof(uint64_t);
constexpr char kLastByte = '\xff';

void AppendBigEndian(std::string& key, uint64_t number, size_t bytes = kNumberBytes) {
  for (size_t i = bytes; i-- > 0;) key.push_back(static_cast<char>(number >> (8 * i)));
}

uint64_t BigEndian(std::string_view bytes) {
  uint64_t number = 0;
  for (const char byte : bytes) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

int64_t LastNumber(std::string_view key) {
  return static_cast<int64_t>(BigEndian(key.substr(key.size() - kNumberBytes)));
}

// Unsigned numbers that sort like the finite doubles they are made of: positive ones behind negative ones, and of those
// the larger magnitude first.
uint64_t OrderedBits(double value) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  const auto bits = std::bit_cast<uint64_t>(value == 0 ? 0.0 : value);
  return (bits & kSign) != 0 ? ~bits : bits | kSign;
}

double ValueOfOrderedBits(uint64_t bits) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  return std::bit_cast<double>((bits & kSign) != 0 ? bits & ~kSign : ~bits);
}

// A step of 8 bytes, and nothing else; nullopt: it is none.
std::optional<int64_t> AsStep(std::string_view bytes) {
  const auto step = static_cast<int64_t>(BigEndian(bytes));
  if (bytes.size() != kNumberBytes || step < 0) return std::nullopt;
  return step;
}

// What follows on "metric/".
std::optional<std::string> MetricKeyText(std::string_view rest) {
  if (rest.size() < sizeof(uint32_t)) return std::nullopt;
  const uint64_t name_bytes = BigEndian(rest.substr(0, sizeof(uint32_t)));
  rest.remove_prefix(sizeof(uint32_t));
  if (rest.size() != name_bytes + 2 * kNumberBytes) return std::nullopt;
  const std::optional<int64_t> step = AsStep(rest.substr(name_bytes + kNumberBytes));
  const double value = ValueOfOrderedBits(BigEndian(rest.substr(name_bytes, kNumberBytes)));
  if (!step || !std::isfinite(value)) return std::nullopt;
  return fmt::format("{}{}/{}/{}", kMetricKeyPrefix, rest.substr(0, name_bytes), value, *step);
}

std::optional<std::string> TryKeyText(std::string_view key) {
  const auto begins = [key](std::string_view prefix) { return key.starts_with(prefix); };
  if (key == kStoreKey || key == kSettledKey || key == kBestModesKey || key == kJournalKey) return std::string(key);
  for (const std::string_view prefix : {kStepKeyPrefix, kCommittedKeyPrefix, kPhasesKeyPrefix}) {
    if (!begins(prefix)) continue;
    const std::optional<int64_t> step = AsStep(key.substr(prefix.size()));
    return step ? std::optional(fmt::format("{}{}", prefix, *step)) : std::nullopt;
  }
  if (begins(kMetricKeyPrefix)) return MetricKeyText(key.substr(kMetricKeyPrefix.size()));
  if (begins(kDeletionKeyPrefix)) {
    return FromHex(key.substr(kDeletionKeyPrefix.size())) ? std::optional(std::string(key)) : std::nullopt;
  }
  if (begins(kRequestKeyPrefix)) {
    return FromHex(key.substr(kRequestKeyPrefix.size())) ? std::optional(std::string(key)) : std::nullopt;
  }
  if (begins(kReferenceKeyPrefix) && key.size() > kNumberBytes) {
    const std::string_view attempt = key.substr(0, key.size() - kNumberBytes);
    const std::optional<int64_t> step = AsStep(key.substr(attempt.size()));
    if (!step || !attempt.ends_with('/')) return std::nullopt;
    const size_t begin = kReferenceKeyPrefix.size();
    if (!FromHex(attempt.substr(begin, attempt.size() - begin - 1))) return std::nullopt;
    return fmt::format("{}{}", attempt, *step);
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::string> KeyText(std::string_view key) {
  std::optional<std::string> text = TryKeyText(key);
  if (!text) return absl::DataLossError(fmt::format("a key of {} bytes is not a key of the manifest", key.size()));
  return *std::move(text);
}

std::set<std::string> IndexKeys(const StepRecord& record) {
  const StepInfo& info = record.info;
  std::set<std::string> keys;
  if (info.state == StepState::kCommitted && info.unhealthy().empty()) {
    for (const auto& [name, value] : info.metrics) {
      if (std::isfinite(value)) keys.insert(MetricKey(name, value, info.step));
    }
  }
  if (info.state == StepState::kCommitted) keys.insert(CommittedKey(info.step));
  if (info.state == StepState::kDeleted) return keys;
  for (const FileReference& file : record.references) {
    std::string key = ReferencePrefix(file.attempt);
    AppendBigEndian(key, static_cast<uint64_t>(info.step));
    keys.insert(std::move(key));
  }
  return keys;
}

std::string MetricPrefix(std::string_view name) {
  std::string key(kMetricKeyPrefix);
  AppendBigEndian(key, name.size(), sizeof(uint32_t));
  return key.append(name);
}

std::string MetricKey(std::string_view name, double value, int64_t step) {
  std::string key = MetricPrefix(name);
  AppendBigEndian(key, OrderedBits(value));
  AppendBigEndian(key, static_cast<uint64_t>(step));
  return key;
}

std::string LastKeyOfValue(std::string_view key) {
  std::string last(key.substr(0, key.size() - kNumberBytes));
  return last.append(kNumberBytes, kLastByte);
}

std::string LastKeyOfMetric(std::string_view name) { return MetricPrefix(name).append(2 * kNumberBytes, kLastByte); }

int64_t StepOfMetricKey(std::string_view key) { return LastNumber(key); }

std::string CommittedKey(int64_t step) {
  std::string key(kCommittedKeyPrefix);
  AppendBigEndian(key, static_cast<uint64_t>(step));
  return key;
}

int64_t StepOfCommittedKey(std::string_view key) { return LastNumber(key); }

std::string ReferencePrefix(const AttemptId& attempt) {
  return std::string(kReferenceKeyPrefix) + ToHex(attempt.bytes) + "/";
}

}  // namespace tidemark::storage
