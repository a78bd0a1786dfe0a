#include "snapshot/saves/save_phases.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace tidemark {
namespace {

using storage::BusySpans;

// A pause is worth telling from the whole save divided by this on.
constexpr int kShareMin = 100;

absl::Duration Sum(const BusySpans& spans) {
  absl::Duration sum;
  for (const BusySpans::Span& span : spans.spans()) sum += absl::FromChrono(span.busy);
  return sum;
}

}  // namespace

void SavePhases::Add(std::string_view name, std::string_view lane, Time begin, Time end, uint64_t bytes) {
  auto kind = std::find_if(kinds_.begin(), kinds_.end(),
                           [&](const Kind& other) { return other.name == name && other.lane == lane; });
  if (kind == kinds_.end()) {
    kind = kinds_.insert(kind, {.name = std::string(name), .lane = std::string(lane), .spans = {}});
  }
  kind->spans.Add(begin, end, bytes);
}

void SavePhases::Add(std::string_view name, std::string_view lane, BusySpans spans) {
  if (spans.spans().empty()) return;
  kinds_.push_back({.name = std::string(name), .lane = std::string(lane), .spans = std::move(spans)});
}

void SavePhases::AddWait(std::string_view name, std::string_view lane, Time begin, Time end) {
  if (absl::FromChrono(end - begin) >= kWaitMin) Add(name, lane, begin, end);
}

void SavePhases::AddWrite(const storage::WriteTimes& times, uint64_t file_bytes) {
  Add("open", kPersisterLane, times.begin, times.opened);
  Add("write", kPersisterLane, times.opened, times.landed, file_bytes);
  Add("sync", kPersisterLane, times.landed, times.end);
  Add("disk wait", "persister: disk", times.disk_waits);
  Add("encoder wait", "persister: encoders", times.encoder_waits);
  for (size_t i = 0; i < times.encoding.size(); ++i) Add("encode", fmt::format("codec {}", i + 1), times.encoding[i]);
}

void SavePhases::Prepend(const SavePhases& other) {
  kinds_.insert(kinds_.begin(), other.kinds_.begin(), other.kinds_.end());
}

absl::Duration SavePhases::Took(std::string_view name) const {
  absl::Duration took;
  for (const Kind& kind : kinds_) {
    if (kind.name == name) took += Sum(kind.spans);
  }
  return took;
}

std::vector<SavePhase> SavePhases::Get() const {
  std::vector<Kind> kinds = kinds_;
  Time end = called_;
  for (const Kind& kind : kinds) end = std::max(end, kind.spans.spans().back().end);
  const auto pauses = [&] {
    size_t all = 0;
    for (const Kind& kind : kinds) all += kind.spans.spans().size() - 1;
    return all;
  };
  auto pause = (end - called_) / kShareMin;
  do {
    for (Kind& kind : kinds) kind.spans.JoinAcross(pause);
    pause = 2 * pause + std::chrono::nanoseconds(1);
  } while (pauses() > kPausesMax);

  std::vector<SavePhase> phases;
  phases.reserve(kinds.size() + pauses());
  for (const Kind& kind : kinds) {
    for (const BusySpans::Span& span : kind.spans.spans()) {
      phases.push_back({.name = kind.name,
                        .lane = kind.lane,
                        .begin = absl::FromChrono(span.begin - called_),
                        .duration = absl::FromChrono(span.end - span.begin),
                        .busy = absl::FromChrono(span.busy),
                        .bytes = span.bytes});
    }
  }
  return phases;
}

}  // namespace tidemark
