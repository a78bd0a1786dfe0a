// How fast a store grows, told from the records of its steps. Pure functions.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_GROWTH_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_GROWTH_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "tidemark/step_info.h"

namespace tidemark::inspect {

// The saves that the rate is told from: the last ones, so that it is today's.
inline constexpr size_t kGrowthSavesMax = 100;

// Saves that came within less than this tell nothing of a day.
inline constexpr absl::Duration kGrowthSpanMin = absl::Minutes(1);

// Nothing is being saved once the last save is so many times as long ago as saves were apart.
inline constexpr int64_t kIdleAfterSaves = 10;

struct Growth {
  size_t saves = 0;  // of those, how many there were
  // Stored bytes of one of them, on average.
  double bytes_per_save = 0;
  // The median of the times between two that follow each other in the order of their commits, so that neither a run
  // that stood still nor a clock that jumped counts; times that are not above zero are left out. nullopt: there is
  // none.
  std::optional<absl::Duration> between_saves;
  absl::Duration span;                  // all of these times together
  std::optional<absl::Time> last_save;  // the one committed last; nullopt: its time is not known
  // Of the stored bytes of the older half of all saves, those that are still there: what retention lets stay for good.
  // The younger half may only be waiting for its turn. nullopt: there are fewer than two saves.
  std::optional<double> kept_share;

  // What saves write in a day, and what of that stays as long as retention goes on as before. Never negative. nullopt:
  // there is nothing to tell it from, or no more than kGrowthSpanMin of it.
  std::optional<double> written_per_day() const;
  std::optional<double> kept_per_day() const;
  // Nothing is being saved any more: the last save is more than kIdleAfterSaves * between_saves ago.
  bool IsIdle(absl::Time now) const;
};

// From the steps that were ever committed, in any order.
Growth EstimateGrowth(const std::vector<StepInfo>& steps);

// Until so many free bytes are written to; nullopt where the rate is not known, or so low that it takes more than a
// thousand years.
std::optional<absl::Duration> TimeUntilFull(uint64_t free_bytes, std::optional<double> bytes_per_day);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_GROWTH_H_
