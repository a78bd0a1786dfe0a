#include "storage/records/checked_json.h"

#include <set>
#include <span>
#include <stdexcept>
#include <vector>

#include "fmt/format.h"
#include "storage/bytes/ids.h"

namespace tidemark::storage {
namespace {

// The object itself, an object in it, and room for what later versions may add.
constexpr size_t kDepthMax = 4;

// The check is 16 hexadecimal digits between these.
constexpr std::string_view kCheckBegin = ",\"check\":\"";
constexpr std::string_view kCheckEnd = "\"}\n";
constexpr size_t kCheckDigits = 16;
constexpr size_t kTailBytes = kCheckBegin.size() + kCheckDigits + kCheckEnd.size();

}  // namespace

std::string CheckOf(std::string_view bytes) {
  return fmt::format("{:016x}", ChecksumOf(std::as_bytes(std::span(bytes))));
}

absl::Status CheckEnd(std::string_view what, std::string_view bytes, size_t bytes_max) {
  if (bytes.size() > bytes_max) {
    return absl::DataLossError(
        fmt::format("{} of {} bytes, where at most {} are expected", what, bytes.size(), bytes_max));
  }
  const auto refuse = [&](std::string_view why) {
    return absl::DataLossError(fmt::format("{} of {} bytes: {}", what, bytes.size(), why));
  };
  if (bytes.size() < kTailBytes) return refuse("it does not end in a check");
  const std::string_view body = bytes.substr(0, bytes.size() - kTailBytes);
  const std::string_view tail = bytes.substr(body.size());
  if (!tail.starts_with(kCheckBegin) || !tail.ends_with(kCheckEnd)) return refuse("it does not end in a check");
  const std::string_view check = tail.substr(kCheckBegin.size(), kCheckDigits);
  if (check != CheckOf(body))
    return refuse(fmt::format("its check does not match its bytes, which have {}", CheckOf(body)));
  return absl::OkStatus();
}

// In text the quotation marks are escaped.
bool HasCheck(std::string_view bytes) { return bytes.find(kCheckBegin) != std::string_view::npos; }

Json ParseStrictly(std::string_view bytes) {
  std::vector<std::set<std::string>> keys;  // of each object that is open
  const auto look = [&](int depth, Json::parse_event_t event, Json& parsed) {
    using Event = Json::parse_event_t;
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (opens && static_cast<size_t>(depth) >= kDepthMax) {
      throw std::invalid_argument(fmt::format("it is nested deeper than {}", kDepthMax));
    }
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.get<std::string>()).second) {
      throw std::invalid_argument(fmt::format("'{}' occurs twice", parsed.get<std::string>()));
    }
    return true;
  };
  return ParseJson(bytes, look);
}

}  // namespace tidemark::storage
