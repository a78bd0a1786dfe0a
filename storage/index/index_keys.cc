#include "storage/index/index_keys.h"

#include <bit>
#include <cmath>


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

}  // namespace

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
