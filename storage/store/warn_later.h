// WarnLater: keeps warnings until it goes. Declared before a lock is taken, it says them when the lock has been
// released: who hears of them may call the store again.
//
// One that is declared within another one of the same thread leaves its lines to that one. So a call that takes a lock
// may make others that warn.

#ifndef TIDEMARK_STORAGE_STORE_WARN_LATER_H_
#define TIDEMARK_STORAGE_STORE_WARN_LATER_H_

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "storage/io/exception_status.h"

namespace tidemark::storage {

class WarnLater {
 public:
  using Warn = std::function<void(std::string_view)>;

  // `warn` outlives it, and is called by the outermost one only.
  explicit WarnLater(const Warn& warn) : say_(warn), outer_(std::exchange(innermost_, this)) {}
  ~WarnLater() {
    innermost_ = outer_;
    for (const std::string& line : lines_) BestEffort([&] { outer_ != nullptr ? outer_->warn(line) : say_(line); });
  }
  WarnLater(const WarnLater&) = delete;
  WarnLater& operator=(const WarnLater&) = delete;

  // Keeps the line, unless there is no memory for it. Not thread-safe.
  const Warn warn = [this](std::string_view line) { BestEffort([&] { lines_.emplace_back(line); }); };

 private:
  static inline thread_local WarnLater* innermost_ = nullptr;

  const Warn& say_;
  WarnLater* const outer_;
  std::vector<std::string> lines_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_STORE_WARN_LATER_H_
