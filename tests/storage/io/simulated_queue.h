// An I/O queue that has done everything by the time that it is asked.

#ifndef TIDEMARK_TESTS_STORAGE_IO_SIMULATED_QUEUE_H_
#define TIDEMARK_TESTS_STORAGE_IO_SIMULATED_QUEUE_H_

#include <cstddef>
#include <deque>
#include <optional>
#include <string_view>
#include <utility>

#include "storage/io/check.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

// Owned by one thread, which does each transfer in Submit, whatever the file; completions come in that order.
class SimulatedQueue final : public IoQueue {
 public:
  explicit SimulatedQueue(size_t depth, std::string_view note = {}) : depth_(depth), note_(note) {}

  std::string_view name() const override { return "threads"; }
  std::string_view note() const override { return note_; }
  size_t depth() const override { return depth_; }
  size_t in_flight() const override { return done_.size(); }

  void Submit(const IoRequest& request) override {
    Check(done_.size() < depth_, "Submit to an I/O queue that is full");
    done_.push_back({.tag = request.tag,
                     .status = request.kind == IoRequest::Kind::kRead
                                   ? request.file->ReadAt(request.offset, {request.data, request.size})
                                   : request.file->WriteAt(request.offset, {request.data, request.size})});
  }
  IoCompletion Wait() override {
    Check(!done_.empty(), "Wait on an I/O queue with nothing in flight");
    return *Poll();
  }
  std::optional<IoCompletion> Poll() override {
    if (done_.empty()) return std::nullopt;
    IoCompletion completion = std::move(done_.front());
    done_.pop_front();
    return completion;
  }

 private:
  const size_t depth_;
  const std::string_view note_;  // a literal
  std::deque<IoCompletion> done_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_SIMULATED_QUEUE_H_
