// WarnOnce: which warnings were given already, so that work that is done again and again does not repeat them.

#ifndef TIDEMARK_STORAGE_IO_WARN_ONCE_H_
#define TIDEMARK_STORAGE_IO_WARN_ONCE_H_

#include <set>
#include <string>
#include <string_view>

namespace tidemark::storage {

// Remembers problems by a text: the warning itself, or its kind where the warning says more. IsNew is true once for
// each problem. A problem is new again after Ended, or after a run in which it did not occur. Thread-compatible.
class WarnOnce {
 public:
  // Whether to warn of it. Throws std::bad_alloc, and then has forgotten the call.
  bool IsNew(std::string_view problem);

  // The problem is there no more.
  void Ended(std::string_view problem);

  // Begins a run. Forgets the problems that did not occur in the run before.
  void BeginRun();

 private:
  std::set<std::string, std::less<>> last_run_;
  std::set<std::string, std::less<>> this_run_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_WARN_ONCE_H_
