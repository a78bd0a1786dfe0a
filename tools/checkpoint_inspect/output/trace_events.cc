#include "tools/checkpoint_inspect/output/trace_events.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/checks/phase_summary.h"
#include "tools/checkpoint_inspect/output/json.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// The first thread of each process has one event, the save.
constexpr int kSaveThread = 1;

std::string Line(const Json& json) { return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace); }

// Collects the events of one process.
class Process {
 public:
  explicit Process(int pid) : pid_(pid) {}

  // Names the process or, with a thread, one of its threads, and says where it is shown among the others.
  void Name(std::string_view what, int tid, const std::string& name, int sort_index) {
    Add({{"ph", "M"}, {"name", fmt::format("{}_name", what)}, {"pid", pid_}, {"tid", tid}, {"args", {{"name", name}}}});
    Add({{"ph", "M"},
         {"name", fmt::format("{}_sort_index", what)},
         {"pid", pid_},
         {"tid", tid},
         {"args", {{"sort_index", sort_index}}}});
  }

  // Ends are cut off like beginnings, so that what followed something still does.
  void Complete(int tid, const std::string& name, absl::Duration begin, absl::Duration duration, Json args) {
    const int64_t first = absl::ToInt64Microseconds(begin);
    const int64_t last = absl::ToInt64Microseconds(begin + duration);
    Add({{"ph", "X"},
         {"name", name},
         {"cat", "save"},
         {"ts", first},
         {"dur", last - first},
         {"pid", pid_},
         {"tid", tid},
         {"args", std::move(args)}});
  }

  TracedEvents Take() { return std::move(traced_); }

 private:
  void Add(const Json& event) {
    if (traced_.events++ > 0) traced_.text += ",\n";
    traced_.text += Line(event);
  }

  const int pid_;
  TracedEvents traced_;
};

}  // namespace

std::string TraceBegin(const std::string& store, absl::Time origin) {
  const Json other = {{"store", store}, {"origin", Rfc3339(origin)}};
  return fmt::format("{{\"displayTimeUnit\":\"ms\",\"otherData\":{},\"traceEvents\":[\n", Line(other));
}

TracedEvents TraceOfSave(const StepInfo& info, std::span<const SavePhase> phases, int number, absl::Time origin) {
  const absl::Duration called = info.created - origin;
  Process process(number);
  process.Name("process", 0, fmt::format("step {}", info.step), number);
  process.Name("thread", kSaveThread, "save", kSaveThread);
  process.Complete(kSaveThread, fmt::format("save {}", info.step), called, WholeSave(phases),
                   {{"step", info.step},
                    {"attempt", info.attempt},
                    {"state", StepStateName(info.state)},
                    {"logical_bytes", info.logical_bytes},
                    {"stored_bytes", info.stored_bytes},
                    {"reused_bytes", info.reused_bytes},
                    {"blocked_us", absl::ToInt64Microseconds(info.blocked)}});
  std::vector<std::string> lanes;
  for (const SavePhase& phase : phases) {
    const auto lane = std::find(lanes.begin(), lanes.end(), phase.lane);
    const int tid = kSaveThread + 1 + static_cast<int>(lane - lanes.begin());
    if (lane == lanes.end()) {
      lanes.push_back(phase.lane);
      process.Name("thread", tid, phase.lane, tid);
    }
    Json args = {{"busy_us", absl::ToInt64Microseconds(phase.busy)}};
    if (phase.bytes > 0) {
      args["bytes"] = phase.bytes;
      const double seconds = absl::ToDoubleSeconds(phase.busy);
      if (seconds > 0) args["bytes_per_second"] = static_cast<double>(phase.bytes) / seconds;
    }
    process.Complete(tid, phase.name, called + phase.begin, phase.duration, std::move(args));
  }
  return process.Take();
}

std::string TraceEnd() { return "\n]}\n"; }

}  // namespace tidemark::inspect
