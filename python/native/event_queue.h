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
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "nanobind/nanobind.h"
#include "tidemark/checkpoint_observer.h"
#include "tidemark/step_info.h"

namespace tidemark::python {

// The checkpointer's threads must not take the interpreter's lock: the interpreter may be ending, or the thread that
// holds the lock may be waiting for them. So they leave what happened here, and a thread of Python fetches it.
// Thread-safe.
class EventQueue final : public CheckpointObserver {
 public:
  struct Wakeup {};  // a future may be resolved
  struct CommittedEvent {
    StepInfo info;
  };
  struct FailedEvent {
    int64_t step;
    absl::Status status;
  };
  struct DeletedEvent {
    int64_t step;
    std::string reason;
  };
  struct EvaluatedEvent {
    int64_t step;
    Evaluation evaluation;
  };
  struct ExportedEvent {
    int64_t step;
    std::string path;
  };
  struct SaveLineEvent {
    std::string line;
  };
  struct WarningEvent {
    std::string line;
  };
  using Event = std::variant<Wakeup, CommittedEvent, FailedEvent, DeletedEvent, EvaluatedEvent, ExportedEvent,
                             SaveLineEvent, WarningEvent>;

  void Committed(const StepInfo& info) override { Push(CommittedEvent{info}); }
  void Failed(int64_t step, const absl::Status& status) override { Push(FailedEvent{step, status}); }
  void Deleted(int64_t step, std::string_view reason) override { Push(DeletedEvent{step, std::string(reason)}); }
  void Evaluated(int64_t step, const Evaluation& evaluation) override { Push(EvaluatedEvent{step, evaluation}); }
  void Exported(int64_t step, std::string_view path) override { Push(ExportedEvent{step, std::string(path)}); }
  void SaveLine(std::string_view line) override { Push(SaveLineEvent{std::string(line)}); }
  void Warning(std::string_view line) override { Push(WarningEvent{std::string(line)}); }

  // Ends a wait.
  void Wake() { Push(Wakeup{}); }

  // Blocks for at most `seconds`, and returns the events since the last call. If events were dropped, because the last
  // call was too long ago, the first one is a warning with their number.
  std::vector<Event> Wait(double seconds);

 private:
  void Push(Event event);

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Event> events_;  // at most kEventsMax; the oldest go first
  size_t dropped_ = 0;
};

// EventQueue::Wait without the interpreter's lock: a list of (method of the package's CheckpointObserver, its
// arguments). A step and an evaluation are dicts, a status (code, message). A wakeup is ("", ()).
nanobind::list WaitForEvents(EventQueue& events, double seconds);

}  // namespace tidemark::python

#endif  // TIDEMARK_PYTHON_NATIVE_EVENT_QUEUE_H_
