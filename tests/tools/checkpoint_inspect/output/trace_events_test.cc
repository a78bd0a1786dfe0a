#include "tools/checkpoint_inspect/output/trace_events.h"

#include <vector>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/tools/checkpoint_inspect/inspect_testing.h"

namespace tidemark::inspect {
namespace {

using nlohmann::json;
using testing::SizeIs;

const absl::Time kOrigin = absl::FromUnixSeconds(1'700'000'000);

SavePhase BusyPhase(const char* name, const char* lane, absl::Duration begin, absl::Duration duration) {
  return {.name = name, .lane = lane, .begin = begin, .duration = duration, .busy = duration};
}

TEST(TraceEvents, AreWhatTheFormatSays) {
  StepInfo info{.step = 1000, .attempt = "0a", .created = kOrigin + absl::Seconds(2)};
  info.logical_bytes = 7;
  std::vector<SavePhase> phases = {BusyPhase("copy", "trainer", absl::Microseconds(5), absl::Microseconds(10)),
                                   BusyPhase("write", "persister", absl::Microseconds(20), absl::Microseconds(100))};
  phases[1].busy = absl::Microseconds(50);
  phases[1].bytes = 1000;
  const TracedEvents traced = TraceOfSave(info, phases, 3, kOrigin);
  const json trace = ParseJson(TraceBegin("run/ckpt", kOrigin) + traced.text + TraceEnd());
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  EXPECT_EQ(trace["otherData"], json({{"store", "run/ckpt"}, {"origin", "2023-11-14T22:13:20Z"}}));
  const json& events = trace["traceEvents"];
  EXPECT_EQ(events.size(), traced.events);
  ASSERT_THAT(events, SizeIs(11));
  EXPECT_EQ(events[0], ParseJson(R"({"ph": "M", "name": "process_name", "pid": 3, "tid": 0,
                                       "args": {"name": "step 1000"}})"));
  EXPECT_EQ(events[1], ParseJson(R"({"ph": "M", "name": "process_sort_index", "pid": 3, "tid": 0,
                                       "args": {"sort_index": 3}})"));
  EXPECT_EQ(events[4], ParseJson(R"({"ph": "X", "name": "save 1000", "cat": "save", "ts": 2000000, "dur": 120,
                                       "pid": 3, "tid": 1,
                                       "args": {"step": 1000, "attempt": "0a", "state": "committed",
                                                "logical_bytes": 7, "stored_bytes": 0, "reused_bytes": 0,
                                                "blocked_us": 0}})"));
  EXPECT_EQ(events[5], ParseJson(R"({"ph": "M", "name": "thread_name", "pid": 3, "tid": 2,
                                       "args": {"name": "trainer"}})"));
  EXPECT_EQ(events[7], ParseJson(R"({"ph": "X", "name": "copy", "cat": "save", "ts": 2000005, "dur": 10,
                                       "pid": 3, "tid": 2, "args": {"busy_us": 10}})"));
  EXPECT_EQ(events[10], ParseJson(R"({"ph": "X", "name": "write", "cat": "save", "ts": 2000020, "dur": 100,
                                        "pid": 3, "tid": 3,
                                        "args": {"busy_us": 50, "bytes": 1000, "bytes_per_second": 2e7}})"));
}

TEST(TraceEvents, HaveOneThreadForEachLane) {
  const std::vector<SavePhase> phases = {BusyPhase("encode", "codec 1", {}, absl::Microseconds(1)),
                                         BusyPhase("encode", "codec 2", {}, absl::Microseconds(1)),
                                         BusyPhase("encode", "codec 1", absl::Microseconds(2), absl::Microseconds(1))};
  const json trace =
      ParseJson(TraceBegin("", kOrigin) + TraceOfSave({.created = kOrigin}, phases, 1, kOrigin).text + TraceEnd());
  std::vector<int> threads;
  for (const json& event : trace["traceEvents"]) {
    if (event["ph"] == "X") threads.push_back(event["tid"]);
  }
  EXPECT_THAT(threads, testing::ElementsAre(1, 2, 3, 2));
}

TEST(TraceEvents, FollowEachOtherWhereClocksAreFinerThanMicroseconds) {
  const std::vector<SavePhase> phases = {BusyPhase("a", "l", absl::Nanoseconds(1900), absl::Nanoseconds(1200)),
                                         BusyPhase("b", "l", absl::Nanoseconds(3100), absl::Nanoseconds(100))};
  const json trace =
      ParseJson(TraceBegin("", kOrigin) +
                TraceOfSave({.created = kOrigin + absl::Nanoseconds(700)}, phases, 1, kOrigin).text + TraceEnd());
  const json& events = trace["traceEvents"];
  const json& b = events.back();
  const json& a = events[events.size() - 2];
  EXPECT_EQ(a["ts"].get<int64_t>() + a["dur"].get<int64_t>(), b["ts"]);
  EXPECT_EQ(b["dur"], 0);
}

TEST(TraceEvents, OfSeveralSavesAreOneDocument) {
  const std::vector<SavePhase> phases = {BusyPhase("copy", "trainer\"\\\n\xff", {}, absl::Microseconds(1))};
  const auto traced = [&](int number) {
    return TraceOfSave({.step = number, .created = kOrigin}, phases, number, kOrigin).text;
  };
  const json trace = ParseJson(TraceBegin("a\"b", kOrigin) + traced(1) + ",\n" + traced(2) + TraceEnd());
  EXPECT_EQ(trace["traceEvents"].back()["pid"], 2);
}

}  // namespace
}  // namespace tidemark::inspect
