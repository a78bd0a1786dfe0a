#include "tools/checkpoint_inspect/exchange/file_metadata.h"

#include <limits>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "snapshot/exchange/value_text.h"
#include "storage/records/json_fields.h"
#include "storage/shard/format/shard_format.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

constexpr std::string_view kWayOut = "; --metadata replaces it";

absl::Status KeyError(const std::string& file, std::string_view key, std::string_view what) {
  return absl::DataLossError(fmt::format("{}: '{}' of the metadata {}", file, Shorten(Escape(key), 200), what));
}

// Not Json, which looks for each of many names among all of them.
nlohmann::json ToSortedJson(double value) { return NumberToJson(value); }

std::optional<double> NumberFromJson(const nlohmann::json& json) {
  if (json.is_number()) return json.get<double>();
  if (!json.is_string()) return std::nullopt;
  for (const double value : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                             -std::numeric_limits<double>::infinity()}) {
    if (json == ToSortedJson(value)) return value;
  }
  return std::nullopt;
}

// nullopt: MetricsJson makes no such text, to the letter.
std::optional<Metrics> ParseMetrics(const std::string& text) {
  if (text.size() > kStepTextBytesMax) return std::nullopt;
  const nlohmann::json object = storage::ParseJson(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return std::nullopt;
  Metrics metrics;
  for (const auto& [name, json] : object.items()) {
    const std::optional<double> number = NumberFromJson(json);
    if (!number || name.empty() || name.size() > EntrySpec::kNameBytesMax) return std::nullopt;
    metrics[name] = *number;
  }
  if (MetricsJson(metrics) != text) return std::nullopt;
  return metrics;
}

}  // namespace

absl::Status FileMetadata::Conflict(const std::string& key, size_t file, size_t other) const {
  return absl::InvalidArgumentError(fmt::format("'{}' of the metadata differs between {} and {}{}",
                                                Shorten(Escape(key), 200), files_[other], files_[file], kWayOut));
}

absl::Status FileMetadata::TooManyKeys() const {
  return absl::InvalidArgumentError(
      fmt::format("the metadata of {} and the files before it has more keys than the {} of a step's user metadata{}",
                  files_.back(), kMetadataKeysMax, kWayOut));
}

absl::Status FileMetadata::BeyondLimits() const {
  return absl::InvalidArgumentError(
      fmt::format("the metadata of {} and the files before it has more values than the {} of a step's user metadata{}",
                  files_.back(), MetadataLimits(), kWayOut));
}

absl::Status FileMetadata::Merge(const std::string& key, std::string text, Texts* texts) {
  const size_t file = files_.size() - 1;
  const auto [known, is_new] = texts->try_emplace(key);
  if (!is_new) {
    return known->second.text == text ? absl::OkStatus() : Conflict(key, file, known->second.file);
  }
  known->second = {.text = std::move(text), .file = file};
  return absl::OkStatus();
}

// Of a value or a tied name of the last file, and the bytes of its text.
absl::Status FileMetadata::Count(const std::string& name, size_t bytes) {
  ++entries_;
  entry_bytes_ += name.size() + bytes;
  if (entries_ <= kFileEntriesMax && entry_bytes_ <= kFileEntryBytesMax) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "{}: up to '{}' there are {} values and tied names with {} bytes, where an import takes {} with {}",
      files_.back(), Shorten(Escape(name), 200), entries_, entry_bytes_, kFileEntriesMax, kFileEntryBytesMax));
}

absl::Status FileMetadata::AddTie(Tie tie) {
  if (absl::Status status = Count(tie.name, tie.tied_to.size()); !status.ok()) return status;
  ties_.push_back(std::move(tie));
  return absl::OkStatus();
}

// The values and ties of an export, with their kinds.
absl::Status FileMetadata::TakeEntries(std::map<std::string, std::string>* strings) {
  const std::string& file = files_.back();
  std::vector<MemoryEntry> values;
  while (true) {
    const auto next = strings->lower_bound(std::string(kKindPrefix));
    if (next == strings->end() || !next->first.starts_with(kKindPrefix)) break;
    const std::string key = next->first;
    const std::string kind_name = next->second;
    strings->erase(next);
    const std::string name = key.substr(kKindPrefix.size());
    const auto text = strings->find(name);
    // A name that begins like these keys cannot be told from them, so no export has it.
    if (text == strings->end() || name.starts_with(kKindPrefix)) {
      return KeyError(file, key, "is present, but the entry that it names is not");
    }
    if (absl::Status status = Count(name, text->second.size()); !status.ok()) return status;
    if (kind_name == kTiedKind) {
      ties_.push_back({.file = file, .name = name, .tied_to = std::move(text->second)});
    } else {
      const std::optional<EntryKind> kind = ParseValueKind(kind_name);
      if (!kind)
        return KeyError(file, key,
                        fmt::format("is '{}', which is not a kind of entry", Shorten(Escape(kind_name), 200)));
      std::optional<ParsedValue> value = ParseValueText(*kind, text->second);
      if (!value) return KeyError(file, name, fmt::format("is not a valid {}", kind_name));
      value->spec.name = name;
      values.push_back({.spec = std::move(value->spec), .bytes = std::move(value->bytes)});
    }
    strings->erase(text);
  }
  if (!values.empty()) {
    values_.push_back(MakeMemorySource(std::move(values), fmt::format("the metadata of {}", file)));
  }
  return absl::OkStatus();
}

absl::Status FileMetadata::TakeStep(std::map<std::string, std::string>* strings) {
  for (const std::string_view key : {kMetricsKey, kUserMetadataKey}) {
    const auto found = strings->find(std::string(key));
    if (found == strings->end()) continue;
    const std::string text = std::move(found->second);
    strings->erase(found);
    if (!with_step_) continue;
    if (key == kMetricsKey) {
      std::optional<Metrics> metrics = ParseMetrics(text);
      if (!metrics) return KeyError(files_.back(), key, "has invalid metrics");
      metrics_ = *std::move(metrics);
    } else if (text.size() > kStepTextBytesMax || !MetadataToJson(text).is_object()) {
      return KeyError(files_.back(), key,
                      fmt::format("is not a JSON object of at most {} bytes, {}", kStepTextBytesMax, MetadataLimits()));
    }
    if (absl::Status status = Merge(std::string(key), text, &step_); !status.ok()) return status;
  }
  for (const std::string_view key : {kFormatKey, kStepKey, kStoreKey}) strings->erase(std::string(key));
  return absl::OkStatus();
}

absl::Status FileMetadata::Add(const std::string& file, std::map<std::string, std::string> strings) {
  files_.push_back(file);
  if (strings.contains(std::string(kStepKey)) && strings.contains(std::string(kStoreKey))) {
    absl::Status status = TakeEntries(&strings);
    if (status.ok()) status = TakeStep(&strings);
    if (!status.ok()) return status;
  }
  if (!with_step_) return absl::OkStatus();
  for (auto& [its_key, text] : strings) {
    const std::string key(its_key == kImportedFromKey ? kFileImportedFromKey : its_key);
    if (!strings_.contains(key)) bytes_ += key.size() + text.size();
    if (bytes_ > storage::kUserMetadataBytesMax) {
      return absl::InvalidArgumentError(
          fmt::format("{}: up to '{}' the metadata has {} bytes, more than the {} of a step's user metadata{}", file,
                      Shorten(Escape(key), 200), bytes_, storage::kUserMetadataBytesMax, kWayOut));
    }
    if (absl::Status status = Merge(key, std::move(text), &strings_); !status.ok()) return status;
    if (strings_.size() > kMetadataKeysMax) return TooManyKeys();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> FileMetadata::UserMetadata(const std::vector<std::string>& names) const {
  // Sorted, so that each of many keys is found quickly.
  nlohmann::json object = {{kImportedFromKey, names}};
  const auto exported = step_.find(std::string(kUserMetadataKey));
  if (exported != step_.end()) {
    if (strings_.empty()) return exported->second.text;
    object = storage::ParseJson(exported->second.text, nullptr, /*allow_exceptions=*/false);
  }
  for (const auto& [key, text] : strings_) {
    if (exported != step_.end() && object.contains(key) && object[key] != text.text) {
      return Conflict(key, text.file, exported->second.file);
    }
    object[key] = text.text;
  }
  std::string dumped = object.dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
  if (dumped.size() > storage::kUserMetadataBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("the metadata of {} and the files before it takes {} bytes, more than the {} of a step's user "
                    "metadata{}",
                    files_.back(), dumped.size(), storage::kUserMetadataBytesMax, kWayOut));
  }
  // Strings are flat, and what an export said has been read before: only keys or values can be too many together.
  if (!MetadataToJson(dumped).is_object()) return BeyondLimits();
  return dumped;
}

}  // namespace tidemark::inspect
