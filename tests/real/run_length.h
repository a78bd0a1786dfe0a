// How long a test of this folder runs, and how far it is. A few seconds in the suite; `make crash-real` asks for more.

#ifndef TIDEMARK_TESTS_REAL_RUN_LENGTH_H_
#define TIDEMARK_TESTS_REAL_RUN_LENGTH_H_

#include <string>

#include "absl/time/time.h"

namespace tidemark {

// The number in the environment's variable, or `otherwise`; under sanitizers, which make everything several times
// slower, a few of those.
int RunLength(const char* variable, int otherwise);

// A line on standard output that says what a run has shown, or that it was skipped; also added to the file that the
// environment's TIDEMARK_SUMMARY names, if it does.
void Summarize(const std::string& line);

// Lines on standard output: on a terminal one that changes, with the time that is left; elsewhere one for each tenth of
// a run that takes longer than some seconds. Thread-compatible.
class RunProgress {
 public:
  RunProgress(std::string what, int total);
  ~RunProgress() { End(); }

  // So many are done; `figures` is added to the line.
  void Show(int done, const std::string& figures);

  // Takes the line that changes away.
  void End();

 private:
  const std::string what_;
  const int total_;
  const bool is_terminal_;
  const absl::Time begin_;
  int tenths_shown_ = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_REAL_RUN_LENGTH_H_
