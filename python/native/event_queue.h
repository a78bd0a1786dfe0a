// EventQueue: events of a checkpointer's threads, for one thread of Python.

#ifndef TIDEMARK_PYTHON_NATIVE_EVENT_QUEUE_H_
#define TIDEMARK_PYTHON_NATIVE_EVENT_QUEUE_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tidemark/checkpoint_observer.h"

namespace tidemark::python {

// The checkpointer's threads must not take the interpreter's lock: the interpreter may be ending, or the thread that
// holds the lock may be waiting for them. So they leave a line here, and a thread of Python fetches it. Thread-safe.
class EventQueue final : public CheckpointObserver {
 public:
  struct Event {
    std::string kind;  // "save", "warning", or "wake": a future may be resolved
    std::string text;
  };

  void Committed(const StepInfo& info) override;
  void Failed(int64_t step, const absl::Status& status) override;
  void SaveLine(std::string_view line) override;
  void Warning(std::string_view line) override;

  // Ends a wait.
  void Wake() { Push("wake", ""); }

  // Blocks for at most so many seconds, and returns what came since the last call.
  std::vector<Event> Wait(double seconds);

 private:
  void Push(std::string kind, std::string text);

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Event> events_;  // at most kEventsMax; the oldest go first
};

// EventQueue::Wait without the interpreter's lock: (kind, text) of each event.
std::vector<std::pair<std::string, std::string>> WaitForEvents(EventQueue& events, double seconds);

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_EVENT_QUEUE_H_
