// The pretend accelerator for Python: torch.ops.pretend, which tests/python/pretend_device.py makes a device module of.

#include <cstdint>
#include <string>
#include <vector>

#include "ATen/ATen.h"
#include "c10/core/Stream.h"
#include "c10/core/impl/VirtualGuardImpl.h"
#include "tests/snapshot/pretend_accelerator.h"
#include "torch/library.h"

namespace tidemark {
namespace {

PretendAccelerator& Accelerator() { return PretendAccelerator::Get(); }

c10::Stream StreamOf(int64_t device, int64_t id) {
  return c10::Stream(c10::Stream::UNSAFE, PretendAccelerator::Device(static_cast<c10::DeviceIndex>(device)), id);
}

c10::impl::VirtualGuardImpl Backend() { return c10::impl::VirtualGuardImpl(c10::DeviceType::PrivateUse1); }

int64_t CurrentStream(int64_t device) { return Backend().getStream(StreamOf(device, 0).device()).id(); }

void SetStream(int64_t device, int64_t id) { Backend().exchangeStream(StreamOf(device, id)); }

int64_t NewStream(int64_t device) { return Accelerator().PoolStream(StreamOf(device, 0).device()).id(); }

void WaitStream(int64_t waiting_device, int64_t waiting, int64_t device, int64_t id) {
  void* event = nullptr;
  Accelerator().Record(&event, StreamOf(device, id));
  Accelerator().Block(event, StreamOf(waiting_device, waiting));
}

void Synchronize(int64_t device, int64_t id) { Accelerator().Synchronize(StreamOf(device, id)); }

void Fill(const at::Tensor& tensor, int64_t value) { Accelerator().EnqueueFill(tensor, static_cast<uint8_t>(value)); }

int64_t NewGate() { return Accelerator().NewGate(); }

void Open(int64_t gate) { Accelerator().Open(static_cast<PretendAccelerator::Gate>(gate)); }

void EnqueueWait(int64_t device, int64_t gate) {
  Accelerator().EnqueueWait(StreamOf(device, 0).device(), static_cast<PretendAccelerator::Gate>(gate));
}

int64_t CopiesEnqueued() { return Accelerator().CopiesEnqueued(); }

void WaitUntilQuiescent(int64_t copies) { Accelerator().WaitUntilQuiescent(copies); }

void FailCopyAfter(int64_t good) { Accelerator().FailCopyAfter(static_cast<int>(good)); }

void FailNextSynchronize() { Accelerator().FailNextSynchronize(); }

void LimitMemory(int64_t device, int64_t bytes) {
  Accelerator().LimitMemory(static_cast<c10::DeviceIndex>(device), bytes);
}

int64_t MemoryTaken(int64_t device) { return Accelerator().MemoryTaken(static_cast<c10::DeviceIndex>(device)); }

}  // namespace

TORCH_LIBRARY(pretend, library) {
  library.def("current_stream", CurrentStream);
  library.def("set_stream", SetStream);
  library.def("new_stream", NewStream);
  library.def("wait_stream", WaitStream);
  library.def("synchronize", Synchronize);
  library.def("fill", Fill);
  library.def("new_gate", NewGate);
  library.def("open", Open);
  library.def("enqueue_wait", EnqueueWait);
  library.def("copies_enqueued", CopiesEnqueued);
  library.def("wait_until_quiescent", WaitUntilQuiescent);
  library.def("fail_copy_after", FailCopyAfter);
  library.def("fail_next_synchronize", FailNextSynchronize);
  library.def("limit_memory", LimitMemory);
  library.def("memory_taken", MemoryTaken);
}

}  // namespace tidemark
