#include "storage/shard/write/busy_spans.h"

#include <algorithm>

namespace tidemark::storage {
namespace {

using Span = BusySpans::Span;

BusySpans::Clock::duration PauseBetween(const Span& one, const Span& next) { return next.begin - one.end; }

void Join(Span& one, const Span& next) {
  one.end = next.end;
  one.busy += next.busy;
  one.bytes += next.bytes;
}

}  // namespace

void BusySpans::Add(Time begin, Time end, uint64_t bytes) {
  const Span span{.begin = begin, .end = end, .busy = end - begin, .bytes = bytes};
  if (spans_.size() == kSpansMax) {
    // The first span of the two with the shortest pause; the last one's neighbour is the span to be added.
    size_t first = kSpansMax - 1;
    BusySpans::Clock::duration shortest = PauseBetween(spans_.back(), span);
    for (size_t i = 0; i + 1 < spans_.size(); ++i) {
      if (const auto pause = PauseBetween(spans_[i], spans_[i + 1]); pause < shortest) {
        shortest = pause;
        first = i;
      }
    }
    if (first == kSpansMax - 1) return Join(spans_.back(), span);
    Join(spans_[first], spans_[first + 1]);
    spans_.erase(spans_.begin() + static_cast<std::ptrdiff_t>(first) + 1);
  }
  spans_.push_back(span);
}

void BusySpans::JoinAcross(Clock::duration pause) {
  if (spans_.empty()) return;
  size_t kept = 0;
  for (size_t i = 1; i < spans_.size(); ++i) {
    if (PauseBetween(spans_[kept], spans_[i]) < pause) {
      Join(spans_[kept], spans_[i]);
    } else {
      spans_[++kept] = spans_[i];
    }
  }
  spans_.resize(kept + 1);
}

}  // namespace tidemark::storage
