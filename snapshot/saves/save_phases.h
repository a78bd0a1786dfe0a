// SavePhases: when each part of one save began and ended, to be told in the step's phases.

#ifndef TIDEMARK_SNAPSHOT_SAVES_SAVE_PHASES_H_
#define TIDEMARK_SNAPSHOT_SAVES_SAVE_PHASES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "storage/shard/write/busy_spans.h"
#include "storage/shard/write/shard_writer.h"
#include "tidemark/step_info.h"

namespace tidemark {

// See SavePhase::lane.
inline constexpr std::string_view kTrainerLane = "trainer";
inline constexpr std::string_view kStagingLane = "staging";
inline constexpr std::string_view kPersisterLane = "persister";

// Thread-compatible; what is added to one (name, lane) follows each other.
class SavePhases {
 public:
  using Time = storage::BusySpans::Time;

  // Waits that were shorter were none: taking a lock takes longer at times.
  static constexpr absl::Duration kWaitMin = absl::Microseconds(50);

  static Time Now() { return storage::BusySpans::Now(); }

  // Of a save that was called just now, or then.
  explicit SavePhases(Time called = Now()) : called_(called) {}

  Time called() const { return called_; }

  void Add(std::string_view name, std::string_view lane, Time begin, Time end, uint64_t bytes = 0);
  void Add(std::string_view name, std::string_view lane, storage::BusySpans spans);

  // Unless it was shorter than kWaitMin.
  void AddWait(std::string_view name, std::string_view lane, Time begin, Time end);

  // What the persister and its codec threads did for a shard of so many bytes.
  void AddWrite(const storage::WriteTimes& times, uint64_t file_bytes);

  // Puts those of `other` before these. Precondition: no (name, lane) is in both.
  void Prepend(const SavePhases& other);

  // How long phases of this name took, those of all lanes together.
  absl::Duration Took(std::string_view name) const;

  // All of them, one (name, lane) behind the other. A pause that is too short to be seen, a hundredth of the whole,
  // parts nothing; where that would leave more than kPausesMax, longer ones part nothing either.
  static constexpr size_t kPausesMax = 64;
  std::vector<SavePhase> Get() const;

 private:
  struct Kind {
    std::string name;
    std::string lane;
    storage::BusySpans spans;
  };

  Time called_;
  std::vector<Kind> kinds_;
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_SAVES_SAVE_PHASES_H_
