// Observers for tests: one made of functions, and one that drops warnings.

#ifndef TIDEMARK_TESTS_SNAPSHOT_OBSERVERS_H_
#define TIDEMARK_TESTS_SNAPSHOT_OBSERVERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "tidemark/checkpoint_observer.h"

namespace tidemark {

// Each function may be null; without `warning`, warnings go to standard error.
struct ObserverFunctions {
  std::function<void(const StepInfo&)> committed = {};
  std::function<void(int64_t, const absl::Status&)> failed = {};
  std::function<void(int64_t, std::string_view)> deleted = {};
  std::function<void(int64_t, const Evaluation&)> evaluated = {};
  std::function<void(int64_t, std::string_view)> exported = {};
  std::function<void(std::string_view)> save_line = {};
  std::function<void(std::string_view)> warning = {};
};

// As thread-safe as the functions are.
class FunctionObserver final : public CheckpointObserver {
 public:
  explicit FunctionObserver(ObserverFunctions functions) : functions_(std::move(functions)) {}

  void Committed(const StepInfo& info) override {
    if (functions_.committed) functions_.committed(info);
  }
  void Failed(int64_t step, const absl::Status& status) override {
    if (functions_.failed) functions_.failed(step, status);
  }
  void Deleted(int64_t step, std::string_view reason) override {
    if (functions_.deleted) functions_.deleted(step, reason);
  }
  void Evaluated(int64_t step, const Evaluation& evaluation) override {
    if (functions_.evaluated) functions_.evaluated(step, evaluation);
  }
  void Exported(int64_t step, std::string_view path) override {
    if (functions_.exported) functions_.exported(step, path);
  }
  void SaveLine(std::string_view line) override {
    if (functions_.save_line) functions_.save_line(line);
  }
  void Warning(std::string_view line) override {
    functions_.warning ? functions_.warning(line) : CheckpointObserver::Warning(line);
  }

 private:
  const ObserverFunctions functions_;
};

inline std::shared_ptr<CheckpointObserver> ObserverOf(ObserverFunctions functions) {
  return std::make_shared<FunctionObserver>(std::move(functions));
}

// For tests whose warnings are of no interest.
inline std::shared_ptr<CheckpointObserver> NoWarnings() {
  return ObserverOf({.warning = [](std::string_view) {}});
}

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_OBSERVERS_H_
