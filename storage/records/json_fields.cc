#include "storage/records/json_fields.h"

#include <cmath>

#include "storage/records/c_locale.h"

namespace tidemark::storage {
namespace {

Evaluation::Outcome DecodeOutcome(const std::string& name) {
  using enum Evaluation::Outcome;
  for (Evaluation::Outcome outcome : {kDone, kSkipped, kFailed}) {
    if (name == OutcomeName(outcome)) return outcome;
  }
  throw std::invalid_argument(fmt::format("outcome '{}' is unknown", name));
}

}  // namespace

void ScopedJson::Clear(Json& json, int depth) {
  if (depth == 0) return;
  if (json.is_array()) {
    auto& elements = json.get_ref<Json::array_t&>();
    for (Json& element : elements) Clear(element, depth - 1);
    elements.clear();
  } else if (json.is_object()) {
    auto& fields = json.get_ref<Json::object_t&>();
    for (auto& [name, value] : fields) Clear(value, depth - 1);
    fields.clear();
  }
}

Json ParseJson(std::string_view bytes, const Json::parser_callback_t& look, bool allow_exceptions) {
  const CLocale c_locale;
  // Json::parse would destroy the part that it has built if an exception passes through it.
  ScopedJson json;
  bool parsed = false;
  if (look == nullptr) {
    nlohmann::detail::json_sax_dom_parser<Json> builder(*json, allow_exceptions);
    parsed = Json::sax_parse(bytes, &builder) && !builder.is_errored();
  } else {
    nlohmann::detail::json_sax_dom_callback_parser<Json> builder(*json, look, allow_exceptions);
    parsed = Json::sax_parse(bytes, &builder) && !builder.is_errored();
  }
  return parsed ? std::move(*json) : Json(Json::value_t::discarded);
}

bool IsJson(std::string_view bytes) {
  const CLocale c_locale;
  return Json::accept(bytes);
}

// nlohmann writes "[json.exception.parse_error.101] parse error at line 1, ...".
std::string JsonProblem(const std::exception& error) {
  std::string_view text = error.what();
  const size_t end = text.find("] ");
  if (text.starts_with("[json.exception.") && end != std::string_view::npos) text.remove_prefix(end + 2);
  return PrintableText(text);
}

Json EncodeNumber(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

double DecodeNumber(const Json& json) {
  if (json.is_number()) return json.get<double>();
  if (!json.is_string()) throw std::invalid_argument(fmt::format("{} is not a number", json.type_name()));
  const std::string& text = json.get_ref<const std::string&>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  throw std::invalid_argument(fmt::format("'{}' is not a number", text));
}

ScopedJson EncodeMetrics(const Metrics& metrics) {
  ScopedJson json(Json::object());
  for (const auto& [name, value] : metrics) (*json)[name] = EncodeNumber(value);
  return json;
}

Metrics DecodeMetrics(const Json& json) {
  if (!json.is_object()) throw std::invalid_argument("metrics are not an object");
  Metrics metrics;
  for (const auto& [name, value] : json.items()) metrics[name] = DecodeNumber(value);
  return metrics;
}

ScopedJson EncodeEvaluation(const Evaluation& evaluation) {
  return JsonObject("evaluator", evaluation.evaluator, "worker", evaluation.worker, "outcome",
                    OutcomeName(evaluation.outcome), "reason", evaluation.reason, "metrics",
                    EncodeMetrics(evaluation.metrics), "unhealthy", evaluation.unhealthy, "reported_unix_ns",
                    absl::ToUnixNanos(evaluation.reported), "took_ns", absl::ToInt64Nanoseconds(evaluation.took));
}

Evaluation DecodeEvaluation(const Json& json) {
  Evaluation evaluation;
  evaluation.evaluator = json.at("evaluator").get<std::string>();
  evaluation.worker = json.at("worker").get<std::string>();
  evaluation.outcome = DecodeOutcome(json.at("outcome").get_ref<const std::string&>());
  evaluation.reason = json.at("reason").get<std::string>();
  evaluation.metrics = DecodeMetrics(json.at("metrics"));
  evaluation.unhealthy = json.at("unhealthy").get<std::string>();
  evaluation.reported = absl::FromUnixNanos(DecodeInt64(json.at("reported_unix_ns")));
  evaluation.took = absl::Nanoseconds(DecodeInt64(json.at("took_ns")));
  if (evaluation.took < absl::ZeroDuration()) throw std::invalid_argument("took_ns is negative");
  return evaluation;
}

int64_t DecodeInt64(const Json& json) {
  if (!json.is_number_integer()) throw std::invalid_argument("a number is not whole");
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    throw std::invalid_argument(fmt::format("{} is too large", json.get<uint64_t>()));
  }
  return json.get<int64_t>();
}

int64_t DecodeStep(const Json& json) {
  if (!json.is_number_integer() || json.get<int64_t>() < 0) throw std::invalid_argument("a step is not a number >= 0");
  return json.get<int64_t>();
}

std::string DumpJson(ScopedJson json) { return json->dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace tidemark::storage
