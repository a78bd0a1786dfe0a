// What a trainer that may be cut off at any moment tells the outside: what it began, and what was acknowledged.

#ifndef TIDEMARK_TESTS_REAL_SAVE_LOG_H_
#define TIDEMARK_TESTS_REAL_SAVE_LOG_H_

#include <cstdint>

namespace tidemark {

// Versions are numbers that grow with every save of a store, whatever its step, and are never used again.
// Implementations are thread-safe: acknowledgements come from background threads.
class SaveLog {
 public:
  virtual ~SaveLog() = default;
  // Before Save is called.
  virtual void Begun(int64_t step, int64_t version, double loss) = 0;
  // `committed` resolved with ok.
  virtual void Committed(int64_t version) = 0;
  // Before ReportMetrics is called, of what has no report under way.
  virtual void Reporting(int64_t version, double score) = 0;
  // It resolved with ok.
  virtual void Reported(int64_t version, double score) = 0;
  // Before Pin or Unpin is called: from here on the step is pinned or not.
  virtual void Pinning(int64_t step) = 0;
  // It returned ok.
  virtual void Pinned(int64_t step, bool pinned) = 0;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_REAL_SAVE_LOG_H_
