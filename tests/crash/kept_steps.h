// What retention must keep, from its rules alone: so many steps that were committed last, the highest one, and those
// that are pinned.

#ifndef TIDEMARK_TESTS_CRASH_KEPT_STEPS_H_
#define TIDEMARK_TESTS_CRASH_KEPT_STEPS_H_

#include <cstdint>
#include <set>
#include <vector>

namespace tidemark::crash {

// A value. Shares no code with the library.
class KeptSteps {
 public:
  void Saved(int64_t step);  // be it again
  void Pinned(int64_t step, bool pinned);
  void Gone(int64_t step);
  bool PinnedAfter(int64_t step) const { return pinned_.upper_bound(step) != pinned_.end(); }

  // Those that a store goes without where `max_to_keep` are kept; ascending. 0: every step is kept.
  std::vector<int64_t> Due(int64_t max_to_keep) const;

 private:
  std::vector<int64_t> by_commit_;
  std::set<int64_t> pinned_;
};

}  // namespace tidemark::crash

#endif  // TIDEMARK_TESTS_CRASH_KEPT_STEPS_H_
