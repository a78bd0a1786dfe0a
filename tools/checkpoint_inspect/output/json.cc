#include "tools/checkpoint_inspect/output/json.h"

#include <cmath>
#include <map>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "storage/records/c_locale.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// By way of a map: what is put into Json key by key is looked for among all that it has.
Json MetricsToJson(const Metrics& metrics) {
  std::map<std::string, Json> values;
  for (const auto& [name, value] : metrics) values.emplace_hint(values.end(), name, NumberToJson(value));
  return values;
}

// Whether all of the text that is JSON keeps to the limits of MetadataToJson. Reading it with a callback of the parser
// would not do: behind each object that looks through the whole array around it.
bool KeepsToLimits(std::string_view text) {
  int depth = 0;
  size_t keys = 0;
  size_t values = 0;  // and keys, which are strings as well
  bool in_string = false;
  bool in_word = false;  // a number, true, false or null
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
      continue;
    }
    const bool goes_on = std::exchange(in_word, false);
    switch (c) {
      case '{':
      case '[':
        ++values;
        if (++depth > kMetadataDepthMax) return false;
        break;
      case '}':
      case ']':
        --depth;
        break;
      case '"':
        ++values;
        in_string = true;
        break;
      case ':':
        ++keys;
        break;
      case ',':
      case ' ':
      case '\t':
      case '\r':
      case '\n':
        break;
      default:
        if (!goes_on) ++values;
        in_word = true;
    }
  }
  return keys <= kMetadataKeysMax && values <= kMetadataValuesMax + keys;
}

}  // namespace

Json NumberToJson(double value) {
  if (std::isfinite(value)) return value;
  return MetricText(value);
}

Json NewDocument(const StoreReader& reader, const std::string& directory) {
  const absl::Status& problem = reader.journal_problem();
  Json document;
  document["schema_version"] = kSchemaVersion;
  document["store"] = {{"directory", directory},
                       {"id", reader.store_id()},
                       {"journal_problem", problem.ok() ? Json(nullptr) : Json(std::string(problem.message()))}};
  return document;
}

Json ToJson(const StepInfo& info) {
  Json evaluations = Json::array();
  for (const Evaluation& evaluation : info.evaluations) evaluations.push_back(ToJson(evaluation));
  return {{"step", info.step},
          {"state", StepStateName(info.state)},
          {"attempt", info.attempt},
          {"sequence", info.sequence},
          {"created", KnowsCreated(info) ? Json(Rfc3339(info.created)) : Json(nullptr)},
          {"metrics", MetricsToJson(info.metrics)},
          {"evaluations", std::move(evaluations)},
          {"unhealthy", info.unhealthy()},
          {"user_metadata", MetadataToJson(info.user_metadata)},
          {"logical_bytes", info.logical_bytes},
          {"stored_bytes", info.stored_bytes},
          {"reused_bytes", info.reused_bytes},
          {"entries", info.entry_count},
          {"blocked_seconds", absl::ToDoubleSeconds(info.blocked)},
          {"world_size", info.world_size},
          {"reason", info.reason},
          {"pinned", info.pinned},
          {"pin_note", info.pin_note},
          {"tags", info.tags},
          {"kept", info.kept}};
}

Json ToJson(const Evaluation& evaluation) {
  return {{"evaluator", evaluation.evaluator},
          {"outcome", OutcomeName(evaluation.outcome)},
          {"reason", evaluation.reason},
          {"metrics", MetricsToJson(evaluation.metrics)},
          {"unhealthy", evaluation.unhealthy},
          {"worker", evaluation.worker},
          {"reported", Rfc3339(evaluation.reported)},
          {"seconds", absl::ToDoubleSeconds(evaluation.took)}};
}

Json ToJson(const SavePhase& phase) {
  return {{"name", phase.name},
          {"lane", phase.lane},
          {"begin_seconds", absl::ToDoubleSeconds(phase.begin)},
          {"seconds", absl::ToDoubleSeconds(phase.duration)},
          {"busy_seconds", absl::ToDoubleSeconds(phase.busy)},
          {"bytes", phase.bytes}};
}

Json ToJson(const ShardInfo& shard) {
  return {{"path", shard.path}, {"rank", shard.rank}, {"file_bytes", shard.file_bytes}, {"chunks", shard.chunk_count}};
}

Json ToJson(const ReferencedShard& shard) {
  return {{"step", shard.step},
          {"attempt", shard.attempt},
          {"path", shard.path},
          {"chunks", shard.chunk_count},
          {"stored_bytes", shard.stored_bytes}};
}

Json ToJson(const StoredEntry& entry) {
  const EntrySpec& spec = entry.spec;
  Json box = nullptr;
  if (!spec.whole()) box = {{"offset", spec.box_offset}, {"extent", spec.box_extent}};
  return {{"name", spec.name},
          {"kind", EntryKindName(spec.kind)},
          {"dtype", GetDtypeInfo(spec.dtype).name},
          {"shape", spec.shape},
          {"box", std::move(box)},
          {"bytes", entry.bytes},
          {"stored_bytes", entry.stored_bytes},
          {"reused_bytes", entry.reused_bytes},
          {"rank", entry.rank},
          {"tied_to", entry.tied_to.empty() ? Json(nullptr) : Json(entry.tied_to)},
          {"digest", entry.digest}};
}

Json ParseOrdered(std::string_view text) {
  const storage::CLocale locale;
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

Json MetadataToJson(const std::string& text) {
  // Writing JSON recurses, so what is nested without end never gets that far; nor does what takes too much memory.
  if (!KeepsToLimits(text)) return nullptr;
  Json metadata = ParseOrdered(text);
  if (!metadata.is_object()) return nullptr;
  return metadata;
}

std::string MetadataLimits() {
  return fmt::format("{} keys, {} values and a depth of {}", kMetadataKeysMax, kMetadataValuesMax, kMetadataDepthMax);
}

std::string Dump(const Json& document) {
  return document.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

std::string DumpLine(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

void WriteWithArray(const Json& document, const std::string& name, const AddElements& add_all,
                    const std::function<void(std::string_view text)>& write) {
  constexpr std::string_view kEnd = "\n}\n";
  std::string text = Dump(document);
  text.resize(text.size() - kEnd.size());
  write(text + ",\n  " + Json(name).dump() + ": [");
  bool any = false;
  add_all([&](const Json& element) {
    // No string of it has a line's end in it, for JSON writes that as \n.
    const std::string lines = Dump(element);
    text = any ? ",\n    " : "\n    ";
    for (const char c : std::string_view(lines).substr(0, lines.size() - 1)) {
      text.push_back(c);
      if (c == '\n') text += "    ";
    }
    write(text);
    any = true;
  });
  write(any ? "\n  ]\n}\n" : "]\n}\n");
}

void PrintWithArray(Console& console, const Json& document, const std::string& name, const AddElements& add_all) {
  WriteWithArray(document, name, add_all, [&](std::string_view text) { console.PrintData(text); });
}

}  // namespace tidemark::inspect
