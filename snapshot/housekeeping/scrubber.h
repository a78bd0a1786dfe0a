// Scrubber: the thread that reads what the next save can refer to, so that a rotten bit is found before many steps
// depend on it.

#ifndef TIDEMARK_SNAPSHOT_HOUSEKEEPING_SCRUBBER_H_
#define TIDEMARK_SNAPSHOT_HOUSEKEEPING_SCRUBBER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "storage/io/file_system.h"
#include "storage/shard/format/reusable_shard.h"
#include "storage/shard/read/chunk_scrub.h"

namespace tidemark {

// What a scrubber works with. The functions are called on its thread, with no lock held, and not after Stop. None is
// null. An exception from one of them ends that look, and the scrubber goes on.
struct ScrubberHost {
  std::shared_ptr<storage::FileSystem> files;
  std::string steps_directory;
  // Whether a save is being written. Nothing is read then. False before SaveEnded is called for that save.
  std::function<bool()> is_writing;
  // To what the next save can refer; null: to nothing.
  std::function<std::shared_ptr<const storage::ReusableShard>()> reusable;
  // Called for damage in what `reusable` still returns.
  std::function<void(const storage::ChunkDamage&)> on_damage;
};

struct ScrubberOptions {
  uint64_t bytes_per_second_max = 0;  // more than 0
  int nice = 0;                       // Tuning::background_nice
  // The least time between the starts of two passes, and between Start and the first pass. So a short program reads
  // nothing.
  absl::Duration pass_interval = absl::Minutes(1);
  // How long the scrubber waits if the system refuses it memory or descriptors.
  absl::Duration retry_interval = absl::Seconds(1);
};

// Reads all chunks in a pass. Each save begins at most one pass, so the thread sleeps while no save ends. A pass that a
// save interrupts goes on after it. Thread-safe.
class Scrubber {
 public:
  // kResourceExhausted: the system gives no thread.
  static absl::StatusOr<std::unique_ptr<Scrubber>> Start(ScrubberHost host, ScrubberOptions options);

  // Stops.
  ~Scrubber();
  Scrubber(const Scrubber&) = delete;
  Scrubber& operator=(const Scrubber&) = delete;

  // A save has ended, well or badly. Allocates nothing, and waits for no read.
  void SaveEnded();

  // Ends a pause at once. Waits for a function of the host, and at most kStopTimeout for a read of at most
  // ChunkScrub::kBufferBytes. If the disk does not answer in that time, the thread ends when it does, and uses only
  // ScrubberHost::files until then. Idempotent, also on several threads at once. Precondition: not the scrubber's
  // thread.
  void Stop();
  static constexpr absl::Duration kStopTimeout = absl::Seconds(1);

  // Whether the caller is a function of the host.
  bool OnOwnThread() const;

 private:
  struct Work;
  explicit Scrubber(std::shared_ptr<Work> work) : work_(std::move(work)) {}

  const std::shared_ptr<Work> work_;  // shared with the thread
  std::thread::id thread_id_;         // constant after Start
};

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_HOUSEKEEPING_SCRUBBER_H_
