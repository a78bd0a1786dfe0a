// Hostile JSON: store.json, records, leases, and the reports, requests and notes of stores of the first format.

#include <functional>
#include <limits>

#include "fmt/format.h"
#include "fuzz/hostile_case.h"
#include "fuzz/store_image.h"
#include "nlohmann/json.hpp"
#include "storage/records/json_fields.h"
#include "storage/records/manifest_records.h"
#include "storage/records/metric_report.h"
#include "storage/store/first_format/folder_note.h"
#include "storage/store/first_format/store_request.h"
#include "storage/store/lease.h"
#include "storage/store/store_identity.h"
#include "tests/storage/records/step_record_json.h"
#include "tests/storage/store/first_format/written_files.h"

namespace tidemark::fuzz {
namespace {

using Json = nlohmann::json;
using Change = std::function<void(Json&)>;

std::string Nested(size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

std::string Checked(const std::string& body) {
  return fmt::format("{},\"check\":\"{:016x}\"}}\n", body, storage::ChecksumOf(AsBytes(body)));
}

std::string SoundReport() {
  const storage::ShardIdentity identity = IdentityAt(kHostilePlace);
  storage::MetricReport report{.store = identity.store, .step = identity.step, .attempt = identity.attempt};
  report.evaluation = {.evaluator = "e", .worker = "w", .metrics = {{"loss", 0.5}}};
  return EncodeMetricReport(report);
}

// The sound text with a change, without what a report has behind it.
std::string Changed(const std::string& sound, const Change& change) {
  Json json = storage::ParseJson(sound);
  json.erase("check");
  change(json);
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string Report(const Change& change) {
  std::string text = Changed(SoundReport(), change);
  text.pop_back();
  return Checked(text);
}

// Another text in the place of the value of "loss", which JSON may not even have.
std::string ReportWith(std::string_view value) {
  std::string text = Changed(SoundReport(), [](Json& json) { json["metrics"]["loss"] = 12345; });
  text.replace(text.find("12345"), 5, value);
  text.pop_back();
  return Checked(text);
}

std::string Request(const Change& change) {
  const storage::ShardIdentity identity = IdentityAt(kHostilePlace);
  const storage::StoreRequest request{.store = identity.store,
                                      .step = identity.step,
                                      .attempt = identity.attempt,
                                      .text = "the best",
                                      .asker = "pid 7 on node-3"};
  std::string text = Changed(EncodeStoreRequest(request), change);
  text.pop_back();
  return Checked(text);
}

std::string Identity(const Change& change) {
  return Changed(EncodeStoreIdentity(IdentityAt(kHostilePlace).store), change);
}

std::string Step(const Change& change) {
  storage::StepRecord record;
  record.info.step = 1;
  record.info.attempt = storage::ToHex(IdentityAt(kHostilePlace).attempt.bytes);
  record.shards.Add(0, 16384, {});
  record.references = {{.step = 0}};
  return Changed(EncodeStepRecord(record), change);
}

std::string Lease(const Change& change) {
  storage::LeaseNote note;
  note.evaluator = "e";
  note.expiry = absl::Minutes(1);
  return Changed(EncodeLeaseNote(note), change);
}

Change Set(std::string key, Json value) {
  return [key = std::move(key), value = std::move(value)](Json& json) { json[key] = value; };
}

std::vector<HostileCase> HostileReports() {
  using enum absl::StatusCode;
  const std::string sound = SoundReport();
  const std::string check = "its check does not match its bytes";
  std::string flipped = sound;
  flipped[10] ^= 1;
  return {
      {"truncation-report_empty.report", kDataLoss, "it does not end in a check", ""},
      {"truncation-report.report", kDataLoss, "it does not end in a check", sound.substr(0, sound.size() - 1)},
      {"report-check.report", kDataLoss, check, flipped},
      {"count-report_too_large.report", kDataLoss, "where at most 1048576 are expected",
       std::string((1 << 20) + 1, ' ')},
      {"nesting-report.report", kDataLoss, "it is nested deeper than 4", ReportWith(Nested(20'000))},
      {"nesting-report_open.report", kDataLoss, "it is nested deeper than 4", Checked(std::string(100'000, '['))},
      {"nesting-report_objects.report", kDataLoss, "it is nested deeper than 4",
       Checked("{\"a\":{\"b\":{\"c\":{\"d\":{\"e\":{")},
      {"name-report_key_twice.report", kDataLoss, "'step' occurs twice", Checked("{\"step\":1,\"step\":2")},
      {"name-report_metric_twice.report", kDataLoss, "'x' occurs twice", ReportWith("1,\"x\":1,\"x\":2")},
      {"name-report_key_with_escapes.report", kDataLoss, "'\\x1b]0;\\n' occurs twice",
       Checked("{\"\\u001b]0;\\n\":1,\"\\u001b]0;\\n\":2")},
      {"overflow-report_number.report", kDataLoss, "number overflow", ReportWith("1e999")},
      {"utf8-report.report", kDataLoss, "ill-formed UTF-8 byte; last read", ReportWith("\"\xff\"")},
      {"utf8-report_lone_surrogate.report", kDataLoss, "surrogate", ReportWith("\"\\ud800\"")},
      {"report-control_character.report", kDataLoss, "control character", ReportWith("\"\x01\"")},
      {"report-nul.report", kDataLoss, "parse error", ReportWith(std::string_view("1\0", 2))},
      {"report-array.report", kDataLoss, "metric report", Checked("[1")},
      {"report-metrics_are_none.report", kDataLoss, "metrics are not an object", Report(Set("metrics", 5))},
      {"report-metric_is_text.report", kDataLoss, "'many' is not a number", ReportWith("\"many\"")},
      {"report-metric_text_with_escapes.report", kDataLoss, "'\\x1b[2J' is not a number", ReportWith("\"\\u001b[2J\"")},
      {"name-metric_empty.report", kDataLoss, "the metric's name '' has 0 bytes",
       Report([](Json& json) { json["metrics"][""] = 1; })},
      {"count-report_metric_name.report", kDataLoss, "...' has 4097 bytes",
       Report([](Json& json) { json["metrics"][std::string(4097, 'm')] = 1; })},
      {"path-evaluator.report", kDataLoss, "the evaluator's name '../../e' has a '/'",
       Report(Set("evaluator", "../../e"))},
      {"path-evaluator_absolute.report", kDataLoss, "has a '/'", Report(Set("evaluator", "/etc/passwd"))},
      {"name-evaluator_with_escapes.report", kDataLoss, "has a control character",
       Report(Set("evaluator", "e\x1b[2J"))},
      {"name-evaluator_with_c1.report", kDataLoss, "has a control character", Report(Set("evaluator", "e\xc2\x9b"))},
      {"name-evaluator_empty.report", kDataLoss, "the evaluator's name '' has 0 bytes", Report(Set("evaluator", ""))},
      {"count-evaluator.report", kDataLoss, "...' has 257 bytes", Report(Set("evaluator", std::string(257, 'e')))},
      {"path-attempt.report", kDataLoss, "an id is not 32 hexadecimal digits",
       Report(Set("attempt", "../../../../etc/passwd0000000000"))},
      {"report-outcome_with_escapes.report", kDataLoss, "outcome '\\x1b[8m' is unknown",
       Report(Set("outcome", "\x1b[8m"))},
      {"overflow-report_step.report", kDataLoss, "a step is not a number >= 0", Report(Set("step", ~uint64_t{0}))},
      {"overflow-report_step_negative.report", kDataLoss, "a step is not a number >= 0", Report(Set("step", -1))},
      {"overflow-report_step_fraction.report", kDataLoss, "a step is not a number >= 0", Report(Set("step", 1e300))},
      {"overflow-report_took.report", kDataLoss, "took_ns is negative",
       Report(Set("took_ns", std::numeric_limits<int64_t>::min()))},
      {"overflow-report_reported.report", kDataLoss, "is too large", Report(Set("reported_unix_ns", ~uint64_t{0}))},
      {"report-version_newer.report", kUnimplemented, "has version 2", Report(Set("version", 2))},
      {"overflow-report_version.report", kDataLoss, "18446744073709551615 is too large",
       Report(Set("version", ~uint64_t{0}))},
      {"report-version_zero.report", kDataLoss, "version 0 never existed", Report(Set("version", 0))},
      {"report-version_missing.report", kDataLoss, "key 'version' not found",
       Report([](Json& json) { json.erase("version"); })},
  };
}

std::vector<HostileCase> HostileRequests() {
  using enum absl::StatusCode;
  return {
      {"truncation-request_empty.request", kDataLoss, "it does not end in a check", ""},
      {"request-check.request", kDataLoss, "its check does not match its bytes",
       Request([](Json&) {}).replace(4, 1, "V")},
      {"count-request_too_large.request", kDataLoss, "where at most 524288 are expected",
       std::string((512 << 10) + 1, ' ')},
      {"nesting-request.request", kDataLoss, "it is nested deeper than 4", Checked("{\"a\":" + Nested(20'000))},
      {"name-request_key_twice.request", kDataLoss, "'step' occurs twice", Checked("{\"step\":1,\"step\":2")},
      {"utf8-request.request", kDataLoss, "ill-formed UTF-8 byte; last read", Checked("{\"text\":\"\xff\"")},
      {"request-array.request", kDataLoss, "request of", Checked("[1")},
      {"request-kind_with_escapes.request", kDataLoss, "request '\\x1b[2J' is unknown",
       Request(Set("request", "\x1b[2J"))},
      {"path-request_attempt.request", kDataLoss, "an id is not 32 hexadecimal digits",
       Request(Set("attempt", "../../../../etc/passwd0000000000"))},
      {"overflow-request_step.request", kDataLoss, "a step is not a number >= 0", Request(Set("step", ~uint64_t{0}))},
      {"overflow-request_asked.request", kDataLoss, "is too large", Request(Set("asked_unix_ns", ~uint64_t{0}))},
      {"count-request_text.request", kDataLoss, "its text has 65537 bytes",
       Request(Set("text", std::string(65537, 'x')))},
      {"count-request_asker.request", kDataLoss, "its asker has 1025 bytes",
       Request(Set("asker", std::string(1025, 'x')))},
      {"request-newer.request", kUnimplemented, "has version 2", Request(Set("version", 2))},
  };
}

std::vector<HostileCase> HostileRecords() {
  using enum absl::StatusCode;
  return {
      {"nesting-store.identity", kDataLoss, "store.json", Nested(30'000)},
      {"nesting-store_open.identity", kDataLoss, "store.json", std::string(60'000, '{')},
      {"count-store_too_large.identity", kResourceExhausted, "where at most 65536 are expected",
       std::string(65537, ' ')},
      {"truncation-store.identity", kDataLoss, "store.json", "{\"format\": 1, \"store_id\": \"a0a0"},
      {"truncation-store_empty.identity", kDataLoss, "store.json", ""},
      {"store-check.identity", kDataLoss, "the check of its store_id is '\\x1b[2J'", Identity(Set("check", "\x1b[2J"))},
      {"store-newer.identity", kUnimplemented, "the store has format 3", Identity(Set("format", 3))},
      {"overflow-store_format.identity", kDataLoss, "18446744073709551615 is too large",
       Identity(Set("format", ~uint64_t{0}))},
      {"overflow-store_format_fraction.identity", kDataLoss, "a number is not whole", Identity(Set("format", 1e300))},
      {"store-format_negative.identity", kDataLoss, "it has no valid format and store_id", Identity(Set("format", -1))},
      {"path-store_id.identity", kDataLoss, "it has no valid format and store_id",
       Identity(Set("store_id", "../../../../../../../etc/shadow.."))},
      {"store-id_is_a_number.identity", kDataLoss, "store.json", Identity(Set("store_id", 7))},
      {"utf8-store.identity", kDataLoss, "ill-formed UTF-8 byte; last read", "{\"\xc0\xaf\": 1}"},
      {"nesting-step.step", kDataLoss, "step record", Nested(200'000)},
      {"nesting-step_field.step", kDataLoss, "step record",
       Step(Set("state", 5)).replace(0, 1, "{\"deep\":" + Nested(100'000) + ",")},
      {"step-state_with_escapes.step", kDataLoss, "state '\\x1b[31mcommitted' is unknown",
       Step(Set("state", "\x1b[31mcommitted"))},
      {"path-step_attempt.step", kDataLoss, "step record", Step(Set("attempt", "../../../../etc"))},
      {"overflow-step_count.step", kDataLoss, "a count is not an unsigned number", Step(Set("stored_bytes", -1))},
      {"overflow-step_world_size.step", kDataLoss, "is too large", Step(Set("world_size", uint64_t{1} << 32))},
      {"overflow-step_reference.step", kDataLoss, "a step is not a number >= 0",
       Step([](Json& json) { json["references"][0]["step"] = -1; })},
      {"step-evaluations_are_none.step", kDataLoss, "evaluations are not an array",
       Step(Set("evaluations", {{"a", 1}}))},
      {"nesting-lease.lease", kDataLoss, "lease note", Nested(8000)},
      {"overflow-lease_expiry.lease", kDataLoss, "an expiry of",
       Lease(Set("expiry_ns", std::numeric_limits<int64_t>::max()))},
      {"overflow-lease_expiry_negative.lease", kDataLoss, "an expiry of", Lease(Set("expiry_ns", -1))},
      {"overflow-lease_renewals.lease", kDataLoss, "a count is not an unsigned number", Lease(Set("renewals", 0.5))},
      {"path-lease_attempt.lease", kDataLoss, "an id is not 32 hexadecimal digits", Lease(Set("attempt", "../x"))},
      {"lease-newer.lease", kUnimplemented, "has version 7", Lease(Set("version", 7))},
  };
}

// A note is there whatever it says. One whose bytes are wrong gets an error; of any other what is no text and no tag is
// left out, and what is too long or too many is cut.
std::vector<HostileCase> HostileNotes() {
  using enum absl::StatusCode;
  const std::string sound = storage::EncodeFolderNote("the best", {"paper", "v1"});
  std::string other_tag = sound;
  other_tag.replace(other_tag.find("v1"), 2, "v2");
  std::string newer = Changed(sound, Set("version", 2));
  newer.pop_back();
  const std::string no_json = "it has tags but is not JSON";
  const std::string nothing = "a note of 0 bytes, 0 tags";
  const auto tagged = [](std::string_view tags) { return fmt::format(R"({{"note":"a","tags":{}}})", tags); };
  Json many = Json::array();
  for (int i = 0; i < 1000; ++i) many.push_back(fmt::format("v{}", i));
  return {
      {"truncation-note.note", kDataLoss, "it does not end in a check", sound.substr(0, sound.size() - 1)},
      {"truncation-note_tags.note", kDataLoss, no_json, R"({"note":"a","tags":["v1")"},
      {"truncation-note_empty.note", kOk, nothing, ""},
      {"note-check.note", kDataLoss, "its check does not match its bytes", other_tag},
      {"note-check_not_at_its_end.note", kDataLoss, "it does not end in a check",
       "{\"note\":\"a\",\"check\":\"0123456789abcdef\",\"tags\":[\"v1\"]}\n"},
      {"count-note_too_large.note", kOk, nothing, std::string((512 << 10) + 1, ' ')},
      {"count-note_text.note", kOk, "a note of 65536 bytes, 0 tags",
       fmt::format(R"({{"note":"{}"}})", std::string(65537, 'x'))},
      {"count-note_tags.note", kOk, "a note of 1 bytes, 64 tags", tagged(many.dump())},
      {"count-note_tag.note", kOk, "a note of 1 bytes, 1 tags",
       tagged(fmt::format(R"(["{}","{}"])", std::string(129, 'x'), std::string(128, 'y')))},
      {"name-note_tag_twice.note", kOk, "a note of 1 bytes, 1 tags", tagged(R"(["v1","v1"])")},
      {"name-note_tag_with_escapes.note", kOk, "a note of 1 bytes, 0 tags", tagged(R"(["\u001b[2J","v1\n"])")},
      {"name-note_key_twice.note", kOk, "a note of 2 bytes, 1 tags",
       R"({"note":"a","note":"bb","tags":["v1","v2"],"tags":["v3"]})"},
      {"nesting-note.note", kOk, nothing, "{\"note\":" + Nested(100'000) + "}"},
      {"nesting-note_open.note", kDataLoss, no_json, "{\"tags\":" + std::string(100'000, '[')},
      {"utf8-note.note", kDataLoss, no_json, "{\"note\":\"\xff\",\"tags\":[\"v1\"]}"},
      {"utf8-note_lone_surrogate.note", kDataLoss, no_json, R"({"note":"\ud800","tags":["v1"]})"},
      {"note-control_character.note", kDataLoss, no_json, "{\"note\":\"\x01\",\"tags\":[\"v1\"]}"},
      {"overflow-note_version.note", kDataLoss, no_json, R"({"tags":["v1"],"version":1e999})"},
      {"note-newer.note", kOk, "a note of 8 bytes, 2 tags", Checked(newer)},
      {"note-text_is_a_number.note", kOk, "a note of 0 bytes, 1 tags", R"({"note":7,"tags":["v1",2]})"},
      {"note-tags_are_an_object.note", kOk, "a note of 1 bytes, 0 tags", tagged(R"({"v1":"v1"})")},
      {"note-array.note", kOk, nothing, R"(["note","tags"])"},
  };
}

}  // namespace

std::vector<HostileCase> HostileTexts() {
  std::vector<HostileCase> cases = HostileReports();
  for (HostileCase& more : HostileRequests()) cases.push_back(std::move(more));
  for (HostileCase& more : HostileRecords()) cases.push_back(std::move(more));
  for (HostileCase& more : HostileNotes()) cases.push_back(std::move(more));
  return cases;
}

}  // namespace tidemark::fuzz
