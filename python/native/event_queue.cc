#include "python/native/event_queue.h"

#include <chrono>
#include <utility>

#include "nanobind/stl/string.h"
#include "python/native/bindings.h"
#include "python/native/interpreter_lock.h"

namespace nb = nanobind;

namespace tidemark::python {
namespace {

// More than a person reads; a thread of Python that stands still must not cost memory without bound.
constexpr size_t kEventsMax = 1000;

// The arguments of the method.
struct AsTuple {
  nb::tuple operator()(const EventQueue::Wakeup&) const { return nb::make_tuple("", nb::make_tuple()); }
  nb::tuple operator()(const EventQueue::CommittedEvent& event) const {
    return nb::make_tuple("committed", nb::make_tuple(DictOf(event.info)));
  }
  nb::tuple operator()(const EventQueue::FailedEvent& event) const {
    const nb::tuple status = nb::make_tuple(static_cast<int>(event.status.code()), std::string(event.status.message()));
    return nb::make_tuple("failed", nb::make_tuple(event.step, status));
  }
  nb::tuple operator()(const EventQueue::DeletedEvent& event) const {
    return nb::make_tuple("deleted", nb::make_tuple(event.step, event.reason));
  }
  nb::tuple operator()(const EventQueue::EvaluatedEvent& event) const {
    return nb::make_tuple("evaluated", nb::make_tuple(event.step, DictOf(event.evaluation)));
  }
  nb::tuple operator()(const EventQueue::ExportedEvent& event) const {
    return nb::make_tuple("exported", nb::make_tuple(event.step, event.path));
  }
  nb::tuple operator()(const EventQueue::SaveLineEvent& event) const {
    return nb::make_tuple("save_line", nb::make_tuple(event.line));
  }
  nb::tuple operator()(const EventQueue::WarningEvent& event) const {
    return nb::make_tuple("warning", nb::make_tuple(event.line));
  }
};

}  // namespace

void EventQueue::Push(Event event) {
  {
    const std::lock_guard lock(mutex_);
    if (events_.size() == kEventsMax) {
      if (!std::holds_alternative<Wakeup>(events_.front())) ++dropped_;
      events_.pop_front();
    }
    events_.push_back(std::move(event));
  }
  arrived_.notify_one();
}

std::vector<EventQueue::Event> EventQueue::Wait(double seconds) {
  std::unique_lock lock(mutex_);
  arrived_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return !events_.empty(); });
  std::vector<Event> events;
  if (const size_t dropped = std::exchange(dropped_, 0); dropped > 0) {
    events.emplace_back(WarningEvent{std::to_string(dropped) +
                                     " events were dropped, because a function of the observer has taken too long"});
  }
  events.insert(events.end(), std::make_move_iterator(events_.begin()), std::make_move_iterator(events_.end()));
  events_.clear();
  return events;
}

nb::list WaitForEvents(EventQueue& events, double seconds) {
  std::vector<EventQueue::Event> found;
  {
    const Unlocked unlocked;
    found = events.Wait(seconds);
  }
  nb::list out;
  for (const EventQueue::Event& event : found) out.append(std::visit(AsTuple(), event));
  return out;
}

}  // namespace tidemark::python
