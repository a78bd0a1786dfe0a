#include "storage/manifest/json_fields.h"

#include <cmath>

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
  if (!json.is_string()) throw std::invalid_argument(fmt::format("{} is no number", json.type_name()));
  const std::string& text = json.get_ref<const std::string&>();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "Infinity") return std::numeric_limits<double>::infinity();
  if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
  throw std::invalid_argument(fmt::format("'{}' is no number", text));
}

Json EncodeMetrics(const Metrics& metrics) {
  Json json = Json::object();
  for (const auto& [name, value] : metrics) json[name] = EncodeNumber(value);
  return json;
}

Metrics DecodeMetrics(const Json& json) {
  if (!json.is_object()) throw std::invalid_argument("metrics are no object");
  Metrics metrics;
  for (const auto& [name, value] : json.items()) metrics[name] = DecodeNumber(value);
  return metrics;
}

Json EncodeEvaluation(const Evaluation& evaluation) {
  return {{"evaluator", evaluation.evaluator},
          {"worker", evaluation.worker},
          {"outcome", OutcomeName(evaluation.outcome)},
          {"reason", evaluation.reason},
          {"metrics", EncodeMetrics(evaluation.metrics)},
          {"unhealthy", evaluation.unhealthy},
          {"reported_unix_ns", absl::ToUnixNanos(evaluation.reported)},
          {"took_ns", absl::ToInt64Nanoseconds(evaluation.took)}};
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
  if (!json.is_number_integer()) throw std::invalid_argument("a number is not a whole one");
  if (json.is_number_unsigned() && json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    throw std::invalid_argument(fmt::format("{} is too large", json.get<uint64_t>()));
  }
  return json.get<int64_t>();
}

int64_t DecodeStep(const Json& json) {
  if (!json.is_number_integer() || json.get<int64_t>() < 0) throw std::invalid_argument("a step is not a number >= 0");
  return json.get<int64_t>();
}

std::string DumpJson(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace tidemark::storage
