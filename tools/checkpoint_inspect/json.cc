#include "tools/checkpoint_inspect/json.h"

#include <cmath>
#include <string_view>

#include "tools/checkpoint_inspect/steps.h"
#include "tools/checkpoint_inspect/text.h"

namespace tidemark::inspect {
namespace {

Json MetricsToJson(const Metrics& metrics) {
  Json json = Json::object();
  for (const auto& [name, value] : metrics) json[name] = NumberToJson(value);
  return json;
}

}  // namespace

Json NumberToJson(double value) {
  if (std::isfinite(value)) return value;
  return MetricText(value);
}

Json NewDocument(const StoreReader& reader, const std::string& directory) {
  const absl::Status& problem = reader.manifest_problem();
  Json document;
  document["schema_version"] = kSchemaVersion;
  document["store"] = {{"directory", directory},
                       {"id", reader.store_id()},
                       {"manifest_problem", problem.ok() ? Json(nullptr) : Json(std::string(problem.message()))}};
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

Json MetadataToJson(const std::string& text) {
  // Writing JSON recurses, so what is nested without end never gets that far.
  bool too_deep = false;
  const auto limit = [&](int depth, Json::parse_event_t event, Json&) {
    const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    too_deep |= opens && depth >= kMetadataDepthMax;  // `depth` counts what encloses it
    return !too_deep;
  };
  Json metadata = Json::parse(text, limit, /*allow_exceptions=*/false);
  if (too_deep || !metadata.is_object()) return nullptr;
  return metadata;
}

std::string Dump(const Json& document) {
  return document.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

std::string DumpLine(const Json& value) {
  return value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

void PrintWithArray(Console& console, const Json& document, const std::string& name,
                    const std::function<void(const std::function<void(const Json&)>&)>& add_all) {
  constexpr std::string_view kEnd = "\n}\n";
  std::string text = Dump(document);
  text.resize(text.size() - kEnd.size());
  console.PrintData(text + ",\n  " + Json(name).dump() + ": [");
  bool any = false;
  add_all([&](const Json& element) {
    // No string of it has a line's end in it, for JSON writes that as \n.
    const std::string lines = Dump(element);
    text = any ? ",\n    " : "\n    ";
    for (const char c : std::string_view(lines).substr(0, lines.size() - 1)) {
      text.push_back(c);
      if (c == '\n') text += "    ";
    }
    console.PrintData(text);
    any = true;
  });
  console.PrintData(any ? "\n  ]\n}\n" : "]\n}\n");
}

}  // namespace tidemark::inspect
