#include "python/native/event_queue.h"

#include <chrono>
#include <utility>

#include "python/native/interpreter_lock.h"

namespace tidemark::python {
namespace {

// More lines than a person reads; a thread of Python that stands still must not cost memory without bound.
constexpr size_t kEventsMax = 1000;

}  // namespace

void EventQueue::Committed(const StepInfo&) { Wake(); }
void EventQueue::Failed(int64_t, const absl::Status&) { Wake(); }
void EventQueue::SaveLine(std::string_view line) { Push("save", std::string(line)); }
void EventQueue::Warning(std::string_view line) { Push("warning", std::string(line)); }

void EventQueue::Push(std::string kind, std::string text) {
  {
    const std::lock_guard lock(mutex_);
    if (events_.size() == kEventsMax) events_.pop_front();
    events_.push_back({std::move(kind), std::move(text)});
  }
  arrived_.notify_one();
}

std::vector<EventQueue::Event> EventQueue::Wait(double seconds) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return !events_.empty(); });
  std::vector<Event> events(events_.begin(), events_.end());
  events_.clear();
  return events;
}

std::vector<std::pair<std::string, std::string>> WaitForEvents(EventQueue& events, double seconds) {
  const Unlocked unlocked;
  std::vector<std::pair<std::string, std::string>> out;
  for (EventQueue::Event& event : events.Wait(seconds)) out.emplace_back(std::move(event.kind), std::move(event.text));
  return out;
}

}  // namespace tidemark::python
