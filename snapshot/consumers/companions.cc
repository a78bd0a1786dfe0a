#include "snapshot/consumers/companions.h"

#include <utility>

#include "absl/strings/str_split.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/guarded.h"

namespace tidemark {
namespace {

constexpr char kProperty[] = "companions";
constexpr size_t kPrefixBytesMax = 256;

// Whether the state's entries can be written from where they lie, under the prefix.
absl::Status CheckState(Companion& companion) {
  if (absl::Status status = companion.state().Refresh(); !status.ok()) return status;
  for (const State::Entry& entry : companion.state().entries()) {
    if (!IsUnderPrefix(entry.spec.name, companion.prefix())) {
      return absl::InvalidArgumentError(fmt::format("its entry '{}' is not under its prefix", entry.spec.name));
    }
    if (entry.host == nullptr && entry.bytes > 0) {
      return absl::InvalidArgumentError(fmt::format("its entry '{}' is not in host memory", entry.spec.name));
    }
  }
  return absl::OkStatus();
}

absl::Status TakeIn(Companion& companion, const Snapshot& snapshot) {
  absl::Status status = Guarded("Companion::Update", [&] { return companion.Update(snapshot); });
  if (!status.ok()) return status;
  return Guarded("Companion::state", [&] { return CheckState(companion); });
}

}  // namespace

bool IsUnderPrefix(std::string_view name, std::string_view prefix) {
  return name.size() > prefix.size() + 1 && name.starts_with(prefix) && name[prefix.size()] == '.';
}

std::vector<std::string> CompanionPrefixes(const std::map<std::string, std::string>& shard_properties) {
  const auto found = shard_properties.find(kProperty);
  if (found == shard_properties.end()) return {};
  return absl::StrSplit(found->second, '\n', absl::SkipEmpty());
}

absl::Status OfCompanion(const absl::Status& status, const Companion& companion) {
  if (status.ok()) return status;
  return absl::Status(status.code(),
                      fmt::format("companion '{}': {}", companion.prefix(), std::string(status.message())));
}

absl::Status Companions::Add(std::shared_ptr<Companion> companion) {
  if (companion == nullptr) return absl::InvalidArgumentError("the companion is null");
  const std::string& prefix = companion->prefix();
  // A prefix is part of patterns and a line of a property.
  if (prefix.empty() || prefix.size() > kPrefixBytesMax || prefix.find_first_of(".*?\n") != std::string::npos) {
    return absl::InvalidArgumentError(
        fmt::format("prefix of a companion: expected 1 to {} bytes without '.', '*', '?' and line ends, found '{}'",
                    kPrefixBytesMax, prefix));
  }
  for (const auto& other : companions_) {
    if (other->prefix() == prefix) {
      return absl::AlreadyExistsError(fmt::format("a companion '{}' already exists", prefix));
    }
  }
  // Otherwise every save would be refused.
  size_t bytes = prefix.size();
  for (const auto& other : companions_) bytes += other->prefix().size() + 1;
  if (bytes > storage::kPropertyBytesMax) {
    return absl::InvalidArgumentError(fmt::format(
        "companion '{}': with it the prefixes of the {} companions have {} bytes, line ends included; at most {} fit "
        "into a step",
        prefix, companions_.size() + 1, bytes, storage::kPropertyBytesMax));
  }
  companions_.push_back(std::move(companion));
  return absl::OkStatus();
}

absl::Status Companions::Update(const StagedSnapshot& snapshot) {
  if (absl::Status staged = snapshot.progress()->WaitUntilEnded(); !staged.ok()) return staged;
  for (const auto& companion : companions_) {
    const absl::Status status = TakeIn(*companion, snapshot);
    if (!status.ok()) return OfCompanion(status, *companion);
  }
  return absl::OkStatus();
}

absl::Status Companions::AppendTo(storage::ShardContents& contents) const {
  std::vector<std::string> prefixes;
  const size_t snapshot_entries = contents.entries.size();
  for (const auto& companion : companions_) {
    prefixes.push_back(companion->prefix());
    const auto first = static_cast<int64_t>(contents.entries.size());
    const absl::Status status = Guarded("Companion::state", [&] {
      for (const State::Entry& entry : companion->state().entries()) {
        contents.entries.push_back({.spec = entry.spec,
                                    .bytes = {entry.host, static_cast<size_t>(entry.bytes)},
                                    .alias_of = entry.alias_of < 0 ? -1 : first + entry.alias_of});
      }
    });
    if (!status.ok()) return OfCompanion(status, *companion);
  }
  if (prefixes.empty()) return absl::OkStatus();
  contents.properties[kProperty] = fmt::format("{}", fmt::join(prefixes, "\n"));
  if (contents.wait_until_ready == nullptr) return absl::OkStatus();
  contents.wait_until_ready = [wait = std::move(contents.wait_until_ready), snapshot_entries](size_t entry,
                                                                                              uint64_t end) {
    return entry < snapshot_entries ? wait(entry, end) : absl::OkStatus();
  };
  return absl::OkStatus();
}

}  // namespace tidemark
