#include "snapshot/process/owner_process.h"

#include <cstdio>
#include <cstdlib>
#include <iostream>

#include "fmt/format.h"

namespace tidemark {

absl::Status OwnerProcess::Check() const {
  if (is_this()) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "opened by process {}; a forked child must open nothing of it, and this is process {}", owner_, getpid()));
}

void LeaveOutStaticDestructorsInChildren() {
  static const OwnerProcess owner;
  static const auto leave = [](int status, void*) {
    if (owner.is_this()) return;
    std::cout.flush();
    std::fflush(nullptr);
    _exit(status);
  };
  // Such handlers and destructors run in the reverse order of their registration.
  static const int registered = on_exit(leave, nullptr);
  static_cast<void>(registered);  // without memory for the handler, a child may hang
}

}  // namespace tidemark
