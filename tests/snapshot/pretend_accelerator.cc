#include "tests/snapshot/pretend_accelerator.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "ATen/ATen.h"
#include "ATen/EmptyTensor.h"
#include "ATen/ops/as_strided_native.h"
#include "c10/core/Allocator.h"
#include "c10/core/DeviceType.h"
#include "c10/core/GeneratorImpl.h"
#include "c10/core/impl/DeviceGuardImplInterface.h"
#include "c10/util/Exception.h"
#include "torch/library.h"
#include "torch/version.h"
#if TORCH_VERSION_MAJOR >= 2
#include "ATen/detail/PrivateUse1HooksInterface.h"
#include "c10/core/CPUAllocator.h"
#endif

namespace tidemark {
namespace {

constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;

#if TORCH_VERSION_MAJOR >= 2
template <typename T>
using Optional = std::optional<T>;
#else
template <typename T>
using Optional = c10::optional<T>;
#endif

struct ThreadState {
  c10::DeviceIndex device = 0;
  std::array<c10::StreamId, PretendAccelerator::kDevices> streams = {};
};
thread_local ThreadState thread_state;

c10::Stream MakeStream(c10::DeviceIndex device, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, PretendAccelerator::Device(device), id);
}

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return kType; }
  c10::Device exchangeDevice(c10::Device device) const override {
    const c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return PretendAccelerator::Device(thread_state.device); }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) thread_state.device = device.index();
  }
  c10::Stream getStream(c10::Device device) const noexcept override {
    const c10::DeviceIndex index = device.index() < 0 ? thread_state.device : device.index();
    return MakeStream(index, thread_state.streams[static_cast<size_t>(index)]);
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return MakeStream(device.index(), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return PretendAccelerator::Get().PoolStream(device);
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    const c10::Stream before = getStream(stream.device());
    thread_state.streams[static_cast<size_t>(stream.device_index())] = stream.id();
    return before;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return PretendAccelerator::kDevices; }
  void record(void** event, const c10::Stream& stream, const c10::DeviceIndex, const c10::EventFlag) const override {
    PretendAccelerator::Get().Record(event, stream);
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) PretendAccelerator::Get().Block(event, stream);
  }
  bool queryEvent(void* event) const override { return PretendAccelerator::Get().Recorded(event); }
  void synchronizeStream(const c10::Stream& stream) const override { PretendAccelerator::Get().Synchronize(stream); }
  void recordDataPtrOnStream(const c10::DataPtr& data, const c10::Stream& stream) const override {
    PretendAccelerator::Get().NoteUse(data.get(), stream);
  }
};

struct HostAllocator final : c10::Allocator {
#if TORCH_VERSION_MAJOR >= 2
  c10::DataPtr allocate(size_t bytes) override { return Allocate(bytes); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }
#else
  c10::DataPtr allocate(size_t bytes) const override { return Allocate(bytes); }
#endif
  c10::DeleterFnPtr raw_deleter() const override { return &Free; }

 private:
  // Stands before the memory.
  struct alignas(64) Header {
    size_t bytes;
    c10::DeviceIndex device;
  };

  static c10::DataPtr Allocate(size_t bytes) {
    const c10::DeviceIndex device = thread_state.device;
    PretendAccelerator::Get().TakeMemory(device, bytes);
    auto* header = static_cast<Header*>(std::aligned_alloc(alignof(Header), (sizeof(Header) + bytes + 63) / 64 * 64));
    *header = {bytes, device};
    return {header + 1, header + 1, &Free, PretendAccelerator::Device(device)};
  }
  static void Free(void* memory) {
    Header* header = static_cast<Header*>(memory) - 1;
    PretendAccelerator::Get().GiveMemory(header->device, memory, header->bytes);
    std::free(header);
  }
};

c10::Allocator& TheAllocator() {
  static auto* allocator = new HostAllocator();
  return *allocator;
}

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

class OnDevice {
 public:
  explicit OnDevice(Optional<c10::Device> device) : before_(thread_state.device) {
    if (device && device->index() >= 0) thread_state.device = device->index();
  }
  ~OnDevice() { thread_state.device = before_; }

 private:
  const c10::DeviceIndex before_;
};

at::Tensor Empty(at::IntArrayRef sizes, Optional<at::ScalarType> dtype, Optional<at::Layout>,
                 Optional<at::Device> device, Optional<bool>, Optional<at::MemoryFormat> format) {
  const OnDevice on(device);
  return at::detail::empty_generic(sizes, &TheAllocator(), kKeys, dtype.value_or(at::kFloat), format);
}

at::Tensor EmptyStrided(at::IntArrayRef sizes, at::IntArrayRef strides, Optional<at::ScalarType> dtype,
                        Optional<at::Layout>, Optional<at::Device> device, Optional<bool>) {
  const OnDevice on(device);
  return at::detail::empty_strided_generic(sizes, strides, &TheAllocator(), kKeys, dtype.value_or(at::kFloat));
}

at::Tensor AsStrided(const at::Tensor& self, at::IntArrayRef sizes, at::IntArrayRef strides, Optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}

at::Tensor OnHost(const at::Tensor& tensor) {
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(),
                       at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU));
}

at::Tensor CopyFrom(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  PretendAccelerator& accelerator = PretendAccelerator::Get();
  const c10::Stream stream = accelerator.CurrentStream(self.is_cpu() ? target.device() : self.device());
  accelerator.EnqueueCopy(stream, [&accelerator, self, target] {
    const c10::InferenceMode no_autograd;
    OnHost(target).copy_(OnHost(self));
    accelerator.Transfer(self.nbytes());
  });
  if (!non_blocking) accelerator.Synchronize(stream);
  return target;
}

struct SeedGenerator final : c10::GeneratorImpl {
  explicit SeedGenerator(uint64_t seed)
      : GeneratorImpl(PretendAccelerator::Device(), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)), seed_(seed) {}
  void set_current_seed(uint64_t seed) override { seed_ = seed; }
  uint64_t current_seed() const override { return seed_; }
  uint64_t seed() override { return seed_; }
#if TORCH_VERSION_MAJOR >= 2
  void set_offset(uint64_t) override {}
  uint64_t get_offset() const override { return 0; }
#endif
  void set_state(const c10::TensorImpl& state) override {
    TORCH_CHECK(state.numel() == sizeof(seed_), "the state is not a seed");
    std::memcpy(&seed_, state.data(), sizeof(seed_));
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor state = at::empty({sizeof(seed_)}, at::kByte);
    std::memcpy(state.data_ptr(), &seed_, sizeof(seed_));
    return state.getIntrusivePtr();
  }
  c10::DeviceType device_type() const { return kType; }

 private:
  SeedGenerator* clone_impl() const override { return new SeedGenerator(seed_); }

  uint64_t seed_;
};

#if TORCH_VERSION_MAJOR >= 2
// Its page-locked memory is host memory like any other.
struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  at::Allocator* getPinnedMemoryAllocator() const override {
    TORCH_CHECK(!PretendAccelerator::Get().without_page_locked_memory(), "no page-locked memory");
    return c10::GetCPUAllocator();
  }
};
[[maybe_unused]] const bool kHooks = [] {
  // The name that the device type has anyway: one that has none is not asked for page-locked memory.
  c10::register_privateuse1_backend("privateuseone");
  at::RegisterPrivateUse1HooksInterface(new Hooks());
  return true;
}();
#endif

const c10::impl::DeviceGuardImplRegistrar kGuard(kType, new Guard());
const c10::AllocatorRegisterer<kType> kAllocator(&TheAllocator());

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("empty.memory_format", TORCH_FN(Empty));
  library.impl("empty_strided", TORCH_FN(EmptyStrided));
  library.impl("as_strided", TORCH_FN(AsStrided));
  library.impl("_copy_from", TORCH_FN(CopyFrom));
}

PretendAccelerator& PretendAccelerator::Get() {
  static auto* accelerator = new PretendAccelerator();
  return *accelerator;
}

c10::Stream PretendAccelerator::CurrentStream(c10::Device device) const {
  return c10::impl::getDeviceGuardImpl(kType)->getStream(device);
}

c10::Stream PretendAccelerator::PoolStream(c10::Device device) {
  const absl::MutexLock lock(&mutex_);
  last_pool_stream_ = last_pool_stream_ % kPoolStreams + 1;
  return MakeStream(device.index(), last_pool_stream_);
}

at::Tensor PretendAccelerator::Bytes(int64_t bytes, uint8_t value, c10::DeviceIndex index) {
  at::Tensor tensor = at::empty({bytes}, at::TensorOptions().dtype(at::kByte).device(Device(index)));
  std::memset(tensor.data_ptr(), value, static_cast<size_t>(bytes));
  return tensor;
}

void PretendAccelerator::EnqueueFill(const at::Tensor& tensor, uint8_t value) {
  Enqueue(CurrentStream(tensor.device()),
          {.run = [tensor, value] { std::memset(tensor.data_ptr(), value, tensor.nbytes()); }});
}

void PretendAccelerator::EnqueueWait(c10::Device device, Gate gate) {
  Enqueue(CurrentStream(device),
          {.ready = [this, gate]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return open_gates_.contains(gate); },
           .run = [] {}});
}

PretendAccelerator::Gate PretendAccelerator::NewGate() {
  const absl::MutexLock lock(&mutex_);
  return ++last_gate_;
}

void PretendAccelerator::Open(Gate gate) {
  const absl::MutexLock lock(&mutex_);
  open_gates_.insert(gate);
}

bool PretendAccelerator::Held(const Stream& stream) const {
  return !stream.running && (stream.jobs.empty() || (stream.jobs.front().ready && !stream.jobs.front().ready()));
}

int64_t PretendAccelerator::CopiesEnqueued() {
  const absl::MutexLock lock(&mutex_);
  return copies_enqueued_;
}

void PretendAccelerator::WaitUntilQuiescent(int64_t copies) {
  const auto quiescent = [this, copies]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (copies_enqueued_ < copies) return false;
    for (const auto& [key, stream] : streams_) {
      if (!Held(*stream)) return false;
    }
    return true;
  };
  const absl::MutexLock lock(&mutex_, absl::Condition(&quiescent));
}

bool PretendAccelerator::Idle() {
  const absl::MutexLock lock(&mutex_);
  for (const auto& [key, stream] : streams_) {
    if (stream->running || !stream->jobs.empty()) return false;
  }
  return true;
}

void PretendAccelerator::FailCopyAfter(int good) {
  const absl::MutexLock lock(&mutex_);
  good_copies_ = good;
}

void PretendAccelerator::FailNextSynchronize() {
  const absl::MutexLock lock(&mutex_);
  fail_synchronize_ = true;
}

void PretendAccelerator::LimitMemory(c10::DeviceIndex device, int64_t bytes) {
  const absl::MutexLock lock(&memory_mutex_);
  memory_[static_cast<size_t>(device)].limit = bytes;
}

int64_t PretendAccelerator::MemoryTaken(c10::DeviceIndex device) {
  const absl::MutexLock lock(&memory_mutex_);
  return memory_[static_cast<size_t>(device)].taken;
}

void PretendAccelerator::TakeMemory(c10::DeviceIndex device, size_t bytes) {
  const absl::MutexLock lock(&memory_mutex_);
  Memory& memory = memory_[static_cast<size_t>(device)];
  const int64_t taken = memory.taken + static_cast<int64_t>(bytes);
  TORCH_CHECK_WITH(OutOfMemoryError, memory.limit < 0 || taken <= memory.limit, "the pretend accelerator is full");
  memory.taken = taken;
}

void PretendAccelerator::GiveMemory(c10::DeviceIndex device, const void* memory, size_t bytes) {
  const absl::MutexLock lock(&memory_mutex_);
  uses_.erase(memory);
  memory_[static_cast<size_t>(device)].taken -= static_cast<int64_t>(bytes);
}

void PretendAccelerator::NoteUse(const void* memory, c10::Stream stream) {
  const absl::MutexLock lock(&memory_mutex_);
  uses_[memory].insert(stream.id());
}

std::set<c10::StreamId> PretendAccelerator::UsesOf(const at::Tensor& tensor) {
  const absl::MutexLock lock(&memory_mutex_);
  return uses_[tensor.storage().data_ptr().get()];
}

void PretendAccelerator::SetTransfer(std::function<void(size_t)> transfer) {
  const absl::MutexLock lock(&mutex_);
  transfer_ = std::move(transfer);
}

void PretendAccelerator::Transfer(size_t bytes) {
  std::function<void(size_t)> transfer;
  {
    const absl::MutexLock lock(&mutex_);
    transfer = transfer_;
  }
  if (transfer) transfer(bytes);
}

void PretendAccelerator::EnqueueCopy(c10::Stream stream, std::function<void()> copy) {
  const absl::MutexLock lock(&mutex_);
  if (good_copies_ >= 0) TORCH_CHECK(good_copies_-- > 0, "the pretend accelerator was told to fail");
  ++copies_enqueued_;
  EnqueueLocked(stream, {.run = std::move(copy)});
}

at::Generator PretendAccelerator::NewGenerator(uint64_t seed) { return at::make_generator<SeedGenerator>(seed); }

void PretendAccelerator::Enqueue(c10::Stream stream, Job job) {
  const absl::MutexLock lock(&mutex_);
  EnqueueLocked(stream, std::move(job));
}

PretendAccelerator::Stream& PretendAccelerator::Find(c10::Stream stream) {
  std::unique_ptr<Stream>& slot = streams_[{stream.device_index(), stream.id()}];
  if (slot == nullptr) {
    slot = std::make_unique<Stream>();
    std::thread(&PretendAccelerator::Work, this, slot.get()).detach();
  }
  return *slot;
}

void PretendAccelerator::EnqueueLocked(c10::Stream stream, Job job) {
  Stream& found = Find(stream);
  found.jobs.push_back(std::move(job));
  ++found.enqueued;
}

void PretendAccelerator::Work(Stream* stream) {
  const auto can_run = [this, stream]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !Held(*stream); };
  while (true) {
    Job job;
    {
      const absl::MutexLock lock(&mutex_, absl::Condition(&can_run));
      job = std::move(stream->jobs.front());
      stream->jobs.pop_front();
      stream->running = true;
    }
    job.run();
    job = Job();  // lets go of its tensors before anyone can think the stream is done
    const absl::MutexLock lock(&mutex_);
    stream->running = false;
    ++stream->done;
  }
}

void PretendAccelerator::Synchronize(c10::Stream stream) {
  const absl::MutexLock lock(&mutex_);
  const Stream& found = Find(stream);
  const uint64_t last = found.enqueued;
  const auto reached = [&found, last] { return found.done >= last; };
  mutex_.Await(absl::Condition(&reached));
  TORCH_CHECK(!std::exchange(fail_synchronize_, false), "the pretend accelerator was told to fail a synchronisation");
}

void PretendAccelerator::Record(void** event, c10::Stream stream) {
  if (*event == nullptr) *event = new Event();  // few, and a stream may still point to one that was destroyed
  auto* recorded = static_cast<Event*>(*event);
  uint64_t version;
  {
    const absl::MutexLock lock(&mutex_);
    version = ++recorded->asked;
  }
  Enqueue(stream, {.run = [this, recorded, version] {
            const absl::MutexLock lock(&mutex_);
            recorded->done = std::max(recorded->done, version);
          }});
}

void PretendAccelerator::Block(void* event, c10::Stream stream) {
  const auto* awaited = static_cast<const Event*>(event);
  uint64_t version;
  {
    const absl::MutexLock lock(&mutex_);
    version = awaited->asked;
  }
  Enqueue(stream, {.ready = [awaited, version] { return awaited->done >= version; }, .run = [] {}});
}

bool PretendAccelerator::Recorded(void* event) {
  const absl::MutexLock lock(&mutex_);
  const auto* asked = static_cast<const Event*>(event);
  return asked->done == asked->asked;
}

}  // namespace tidemark
