// An accelerator without hardware, on LibTorch's PrivateUse1 device type: two devices, each with streams that are
// threads, with events, and with copies that are done when their stream gets to them. A test holds a stream with a
// gate and so decides the order of everything; nothing sleeps, unless copies are told to take time.
//
// Its memory is host memory behind another device's name. It has the operators that copying tensors takes and no
// arithmetic.

#ifndef TIDEMARK_TESTS_SNAPSHOT_PRETEND_ACCELERATOR_H_
#define TIDEMARK_TESTS_SNAPSHOT_PRETEND_ACCELERATOR_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "ATen/core/Generator.h"
#include "ATen/core/Tensor.h"
#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "c10/core/Device.h"
#include "c10/core/Stream.h"
#include "torch/version.h"

namespace tidemark {

// Thread-safe. Lives as long as the process, like LibTorch's registries that point to it.
class PretendAccelerator {
 public:
  static constexpr c10::DeviceIndex kDevices = 2;
  static constexpr c10::StreamId kPoolStreams = 3;  // of each device; ids 1 to 3. Id 0 is the default stream.

  // LibTorch 1.13 has page-locked memory for CUDA alone.
  static constexpr bool kPageLocksMemory = TORCH_VERSION_MAJOR >= 2;

  using Gate = int;

  static PretendAccelerator& Get();

  static c10::Device Device(c10::DeviceIndex index = 0) { return {c10::DeviceType::PrivateUse1, index}; }

  // The calling thread's current stream of a device, and a stream of its pool.
  c10::Stream CurrentStream(c10::Device device) const;
  c10::Stream PoolStream(c10::Device device);

  // A tensor of `bytes` bytes, each `value`, that is ready on return.
  at::Tensor Bytes(int64_t bytes, uint8_t value, c10::DeviceIndex index = 0);

  // Enqueue on the current stream of the tensor's device.
  void EnqueueFill(const at::Tensor& tensor, uint8_t value);
  void EnqueueWait(c10::Device device, Gate gate);

  Gate NewGate();
  void Open(Gate gate);

  // How many copies have been enqueued so far.
  int64_t CopiesEnqueued();

  // Returns when that many copies have been enqueued, and every stream is empty or held by a gate or by an event that a
  // gate holds up: all that can happen has happened.
  void WaitUntilQuiescent(int64_t copies = 0);
  bool Idle();

  // Of the copies that are enqueued from now on, the one after `good` more throws.
  void FailCopyAfter(int good);

  // From now on every copy calls this with its bytes, on its stream's thread, before it counts as done; null: nothing.
  void SetTransfer(std::function<void(size_t bytes)> transfer);

  // The next synchronisation of a stream throws, after the stream has got there.
  void FailNextSynchronize();

  // From now on allocations throw once a device would hold more than this; -1: never.
  void LimitMemory(c10::DeviceIndex device, int64_t bytes);
  // Bytes of a device that are allocated.
  int64_t MemoryTaken(c10::DeviceIndex device);

  // The streams that the allocator was told to keep the tensor's memory for, besides the one it was allocated on.
  std::set<c10::StreamId> UsesOf(const at::Tensor& tensor);

  // Whether asking for page-locked host memory fails.
  void set_without_page_locked_memory(bool without) { without_page_locked_memory_ = without; }
  bool without_page_locked_memory() const { return without_page_locked_memory_; }

  // A generator of the device: its state is 8 bytes, the seed.
  static at::Generator NewGenerator(uint64_t seed);

  // ---- For the backend that the .cc file registers.

  struct Job {
    std::function<bool()> ready;  // called with mutex_ held; null: always
    std::function<void()> run;
  };
  void Enqueue(c10::Stream stream, Job job);
  void Synchronize(c10::Stream stream);
  // Marks the event when the stream gets there; `*event` is made if null.
  void Record(void** event, c10::Stream stream);
  void Block(void* event, c10::Stream stream);
  bool Recorded(void* event);
  void Transfer(size_t bytes);
  // Throws if the copy is to fail.
  void EnqueueCopy(c10::Stream stream, std::function<void()> copy);
  // Throws if the device is full.
  void TakeMemory(c10::DeviceIndex device, size_t bytes);
  void GiveMemory(c10::DeviceIndex device, const void* memory, size_t bytes);
  void NoteUse(const void* memory, c10::Stream stream);

 private:
  struct Stream {
    std::deque<Job> jobs;
    bool running = false;
    uint64_t enqueued = 0;
    uint64_t done = 0;
  };
  struct Event {
    uint64_t asked = 0;
    uint64_t done = 0;
  };
  using StreamKey = std::pair<c10::DeviceIndex, c10::StreamId>;

  Stream& Find(c10::Stream stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EnqueueLocked(c10::Stream stream, Job job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Held(const Stream& stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work(Stream* stream);

  absl::Mutex mutex_;
  std::map<StreamKey, std::unique_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::set<Gate> open_gates_ ABSL_GUARDED_BY(mutex_);
  Gate last_gate_ ABSL_GUARDED_BY(mutex_) = 0;
  c10::StreamId last_pool_stream_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t copies_enqueued_ ABSL_GUARDED_BY(mutex_) = 0;
  int good_copies_ ABSL_GUARDED_BY(mutex_) = -1;  // -1: all of them
  bool fail_synchronize_ ABSL_GUARDED_BY(mutex_) = false;
  std::function<void(size_t)> transfer_ ABSL_GUARDED_BY(mutex_);

  struct Memory {
    int64_t limit = -1;
    int64_t taken = 0;
  };
  absl::Mutex memory_mutex_;  // taken alone, or last
  std::array<Memory, kDevices> memory_ ABSL_GUARDED_BY(memory_mutex_);
  std::map<const void*, std::set<c10::StreamId>> uses_ ABSL_GUARDED_BY(memory_mutex_);
  std::atomic<bool> without_page_locked_memory_ = false;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_PRETEND_ACCELERATOR_H_
