// RepeatedWarnings: what a part of a repeated task had to say when it last ran, so that it is not said again and again.

#ifndef TIDEMARK_SNAPSHOT_HOUSEKEEPING_REPEATED_WARNINGS_H_
#define TIDEMARK_SNAPSHOT_HOUSEKEEPING_REPEATED_WARNINGS_H_

#include <functional>
#include <set>
#include <string>
#include <string_view>

namespace tidemark {

// Thread-compatible.
class RepeatedWarnings {
 public:
  // The task runs again. What it does not complain about this time is new when it comes back.
  void Begin();

  // Whether the line was said neither in the run before nor in this one.
  bool IsNew(std::string_view line);

 private:
  std::set<std::string, std::less<>> before_;
  std::set<std::string, std::less<>> now_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_HOUSEKEEPING_REPEATED_WARNINGS_H_
