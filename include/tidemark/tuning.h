// Tuning: options of AsyncCheckpointer that a run rarely needs. The defaults suit a local disk; docs/performance.md has
// what they reach.

#ifndef TIDEMARK_TUNING_H_
#define TIDEMARK_TUNING_H_

#include <cstdint>

#include "absl/time/time.h"

namespace tidemark {

// Which system calls move the bytes.
enum class IoBackend {
  kAuto,     // io_uring where the kernel allows it, else threads; the choice is in a step's properties
  kUring,    // io_uring, or Open fails
  kThreads,  // pread and pwrite on a few threads
};

// A value out of its range makes Open return kInvalidArgument.
struct Tuning {
  // Bytes of an entry that are compressed, checked and read as one. A power of two, 4 KiB to 64 MiB. Larger chunks need
  // more memory, and a change of one byte then writes more; smaller ones make a longer index.
  uint32_t chunk_bytes = 1 << 20;
  // Threads that compress and decompress. 0: one for each core. At most 256. With large chunks a save uses fewer, so
  // that their buffers stay within max(2 * chunk_bytes, 64 MiB); with boxes of columns, within 1.5 times that.
  int codec_threads = 0;
  IoBackend io = IoBackend::kAuto;
  // Blocks of 1 MiB in flight to the disk. 1 to 256. A save takes one block of memory for each, and one more.
  int io_depth = 16;
  // Bytes per second that saves write to the disk, at most. 0: no limit. Else 1 MiB or more.
  uint64_t write_bytes_per_second_max = 0;
  // Niceness of the threads behind a save, on top of the trainer's. 0 to 19. Above 0, the copies of a trainer that
  // waits for its tensors come first.
  int background_nice = 5;
  // Saves write only while the disk is otherwise idle: the kernel's idle I/O class, where its scheduler has one.
  bool background_io_idle = false;

  // A new step refers to no file that is more than this many saves old (CheckpointerOptions::reuse); failed saves
  // count. A rotten bit is then in no more steps than this. Each unchanged chunk is written again at an age between
  // half of this and all of it, so a save writes about 1.4 / reuse_saves_max of the unchanged bytes: 1.4 % with the
  // default. With ranks, all of them write everything in the same save. 1 or more; 0: no limit.
  int64_t reuse_saves_max = 100;
  // The scrub reads all chunks to which the next save can refer, and compares their checksums. It reads at most this
  // many bytes per second, in the kernel's idle I/O class, and only while no save is being written. A pass over the
  // chunks begins after a save, at most one a minute; without saves nothing is read. A pass over 100 GB takes 3.3 hours
  // with the default. After damage the next save writes everything, and a warning names the file and the steps that
  // need it. Without CheckpointerOptions::reuse there is no scrub. 0: no scrub.
  uint64_t scrub_bytes_per_second_max = 8 << 20;
  // Bytes of device memory that Staging::kOnDevice may hold, over all devices. 0: as much as the devices give.
  uint64_t device_staging_bytes_max = 0;
  // A debug check for Staging::kOverlapped: whether a tensor changed after Save and before it was copied. Such a step
  // would hold bytes of two steps. With the check it is not committed: `staged` and `committed` are kAborted, and the
  // message names the first tensors. A tensor that has been copied may change (WaitUntilStaged of one entry).
  //
  // Save computes a digest of every tensor, and the copy is compared with it. For tensors that are not contiguous in
  // host memory (on devices, strided, with another saved dtype) that takes one more copy. Save therefore blocks about
  // as long as with kBlocking: find the fault with this, then turn it off. It has no effect on saves in other modes.
  bool check_overlapped_saves = false;

  // How often the checkpointer reads what worker processes and checkpoint-inspect have appended to the journal. It also
  // makes spare files for the next entries then, and removes once what earlier processes left of unfinished saves. More
  // than 0. Infinite: only in Tidy, WaitUntilEvaluated, AddEvaluator, a restore with healthy_only, and Close. Until the
  // first of these there may be no spare file, so on a full disk not even retention can append.
  absl::Duration poll_interval = absl::Seconds(1);
};

}  // namespace tidemark

#endif  // TIDEMARK_TUNING_H_
