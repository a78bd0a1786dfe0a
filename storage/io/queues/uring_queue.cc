#include "storage/io/queues/uring_queue.h"

#include <liburing.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "fmt/format.h"
#include "storage/io/check.h"
#include "storage/io/errno_status.h"
#include "storage/io/exception_status.h"
#include "storage/io/posix_file.h"
#include "storage/io/queues/transfer.h"
#include "storage/io/queues/uring_registration.h"

namespace tidemark::storage {
namespace {

// R_DISABLED goes with SINGLE_ISSUER: such a ring belongs to the thread that enables it, not to the one that creates
// it. TASKRUN_FLAG goes with DEFER_TASKRUN: without it a peek would not see that there are completions to fetch.
constexpr unsigned kSetups[] = {
    // Linux 6.1
    IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_TASKRUN_FLAG,
    // Linux 6.0
    IORING_SETUP_R_DISABLED | IORING_SETUP_SINGLE_ISSUER,
    0,
};

absl::Status Unavailable(int error, std::string_view call) {
  return absl::UnavailableError(ErrnoStatus(error, call, "io_uring").message());
}

// A sandbox may allow some of the three system calls and not the others. Probing came with Linux 5.6, as did the two
// operations that are used here.
absl::Status CheckUsable(io_uring& ring) {
  io_uring_probe probe = {};
  const int probed = io_uring_register_probe(&ring, &probe, 0);
  if (probed < 0) return Unavailable(-probed, "probe operations of");
  // EBADFD is the kernel's own answer for a ring that is still disabled.
  const int entered = io_uring_enter(static_cast<unsigned>(ring.ring_fd), 0, 0, 0, nullptr);
  if (entered < 0 && entered != -EBADFD) return Unavailable(-entered, "enter");
  return absl::OkStatus();
}

}  // namespace

std::span<const unsigned> UringSetups() { return kSetups; }

// One slot for each request in flight; its index is the user data of the ring's entries. A slot has at most one entry
// in the ring, so neither side of the ring can overflow.
struct UringQueue::Ring {
  struct Slot {
    IoRequest request;
    Transfer transfer;
  };

  explicit Ring(size_t depth) : slots(depth) {
    for (size_t i = depth; i > 0; --i) free_slots.push_back(i - 1);
  }
  ~Ring() {
    if (created) io_uring_queue_exit(&ring);
  }

  int Create(unsigned flags);
  void EnableOnce();
  void Enter(size_t slot);
  int64_t TransferNow(const Slot& slot);
  std::optional<IoCompletion> Finish(io_uring_cqe* cqe);
  std::optional<IoCompletion> TakeRefused();

  io_uring ring = {};
  UringRegistration registration{ring};
  bool created = false;
  bool disabled = false;
  std::vector<Slot> slots;
  std::vector<size_t> free_slots;
  std::deque<IoCompletion> refused;  // never went to the kernel
};

// 0 or -errno.
int UringQueue::Ring::Create(unsigned flags) {
  const int result = io_uring_queue_init(static_cast<unsigned>(slots.size()), &ring, flags);
  created = result == 0;
  disabled = created && (flags & IORING_SETUP_R_DISABLED) != 0;
  return result;
}

void UringQueue::Ring::EnableOnce() {
  if (!disabled) return;
  // liburing 2.3 declares io_uring_enable_rings and does not export it.
  const int result = io_uring_register(static_cast<unsigned>(ring.ring_fd), IORING_REGISTER_ENABLE_RINGS, nullptr, 0);
  Check(result == 0, "io_uring refused to enable a ring that it created");
  disabled = false;
}

// Puts the next piece of the slot's transfer into the ring and tells the kernel at once, so that the disk works while
// the owner does.
void UringQueue::Ring::Enter(size_t slot) {
  const auto& [request, transfer] = slots[slot];
  const bool fixed_file = registration.IsFile(request.file);
  const int fd = fixed_file ? UringRegistration::kFileIndex : static_cast<PosixFile*>(request.file)->fd();
  std::byte* const data = request.data + transfer.done();
  const auto size = static_cast<unsigned>(transfer.next_size());
  const uint64_t offset = transfer.next_offset();
  const std::optional<unsigned> buffer = registration.BufferOf({data, size});
  const bool read = request.kind == IoRequest::Kind::kRead;
  io_uring_sqe* const sqe = io_uring_get_sqe(&ring);
  Check(sqe != nullptr, "io_uring has no submission entry for a request within its depth");
  const auto index = static_cast<int>(buffer.value_or(0));
  if (read && buffer) {
    io_uring_prep_read_fixed(sqe, fd, data, size, offset, index);
  } else if (read) {
    io_uring_prep_read(sqe, fd, data, size, offset);
  } else if (buffer) {
    io_uring_prep_write_fixed(sqe, fd, data, size, offset, index);
  } else {
    io_uring_prep_write(sqe, fd, data, size, offset);
  }
  if (fixed_file) io_uring_sqe_set_flags(sqe, IOSQE_FIXED_FILE);
  io_uring_sqe_set_data64(sqe, slot);
  while (io_uring_sq_ready(&ring) > 0) {
    const int result = io_uring_submit(&ring);
    if (result >= 0 || result == -EINTR) continue;
    // The kernel is short of memory for the request, which passes.
    Check(result == -EAGAIN || result == -EBUSY || result == -ENOMEM,
          "io_uring refused a submission from this thread; only the thread that submitted first may use the queue");
    std::this_thread::yield();
  }
}

// The next piece of the slot's transfer without the ring; bytes or -errno.
int64_t UringQueue::Ring::TransferNow(const Slot& slot) {
  const int fd = static_cast<PosixFile*>(slot.request.file)->fd();
  std::byte* const data = slot.request.data + slot.transfer.done();
  const size_t size = slot.transfer.next_size();
  const auto offset = static_cast<off_t>(slot.transfer.next_offset());
  const ssize_t result =
      slot.request.kind == IoRequest::Kind::kRead ? pread(fd, data, size, offset) : pwrite(fd, data, size, offset);
  return result < 0 ? -errno : result;
}

// nullopt: the transfer goes on.
std::optional<IoCompletion> UringQueue::Ring::Finish(io_uring_cqe* cqe) {
  const size_t slot = io_uring_cqe_get_data64(cqe);
  int64_t result = cqe->res;
  io_uring_cqe_seen(&ring, cqe);
  // Nobody here cancels. It is the kernel's answer where a transfer has to block and no worker thread for it can be
  // started: too many signals at that moment, or too many threads already. Asking again could go on for ever.
  if (result == -ECANCELED) result = TransferNow(slots[slot]);
  std::optional<absl::Status> finished;
  try {
    finished = slots[slot].transfer.Advance(result);
  } catch (...) {
    // There is no memory for the message. The transfer has ended nevertheless, and its owner waits for that.
    finished = ExceptionStatus("the end of a transfer of", slots[slot].request.file->path());
  }
  if (!finished) {
    Enter(slot);
    return std::nullopt;
  }
  free_slots.push_back(slot);
  return IoCompletion{.tag = slots[slot].request.tag, .status = *std::move(finished)};
}

std::optional<IoCompletion> UringQueue::Ring::TakeRefused() {
  if (refused.empty()) return std::nullopt;
  IoCompletion completion = std::move(refused.front());
  refused.pop_front();
  return completion;
}

absl::StatusOr<std::unique_ptr<IoQueue>> UringQueue::Create(size_t depth, std::span<const unsigned> setups) {
  auto ring = std::make_unique<Ring>(depth);
  int result = -EINVAL;
  for (const unsigned flags : setups) {
    result = ring->Create(flags);
    if (result != -EINVAL) break;
  }
  if (result != 0) return Unavailable(-result, "set up");
  if (absl::Status usable = CheckUsable(ring->ring); !usable.ok()) return usable;
  return std::unique_ptr<IoQueue>(new UringQueue(std::move(ring)));
}

UringQueue::UringQueue(std::unique_ptr<Ring> ring) : ring_(std::move(ring)) {}

// The kernel reads and writes the requests' memory until their completions are here.
UringQueue::~UringQueue() {
  while (in_flight() > 0) Wait();
}

size_t UringQueue::depth() const { return ring_->slots.size(); }

size_t UringQueue::in_flight() const { return ring_->slots.size() - ring_->free_slots.size() + ring_->refused.size(); }

void UringQueue::Submit(const IoRequest& request) {
  Check(in_flight() < depth(), "Submit to an I/O queue that is full");
  Check(dynamic_cast<PosixFile*>(request.file) != nullptr, "Submit to io_uring of a file that has no descriptor");
  ring_->EnableOnce();
  const Transfer transfer(request.kind, request.file->path(), request.file->direct(), request.offset, request.size);
  if (absl::Status range = transfer.CheckRange(); !range.ok()) {
    ring_->refused.push_back({.tag = request.tag, .status = std::move(range)});
    return;
  }
  const size_t slot = ring_->free_slots.back();
  ring_->free_slots.pop_back();
  ring_->slots[slot] = {.request = request, .transfer = transfer};
  ring_->Enter(slot);
}

IoCompletion UringQueue::Wait() {
  Check(in_flight() > 0, "Wait on an I/O queue with nothing in flight");
  if (std::optional<IoCompletion> refused = ring_->TakeRefused()) return *std::move(refused);
  for (;;) {
    io_uring_cqe* cqe = nullptr;
    const int result = io_uring_wait_cqe(&ring_->ring, &cqe);
    if (result == -EINTR || result == -EAGAIN) continue;
    Check(result == 0,
          "io_uring refused a completion to this thread; only the thread that submitted first may use the queue");
    if (std::optional<IoCompletion> finished = ring_->Finish(cqe)) return *std::move(finished);
  }
}

absl::Status UringQueue::RegisterMemory(std::span<const std::byte> memory) {
  Check(in_flight() == 0, "RegisterMemory of an I/O queue with something in flight");
  ring_->EnableOnce();
  return ring_->registration.AddMemory(memory);
}

void UringQueue::UnregisterMemory(std::span<const std::byte> memory) {
  Check(in_flight() == 0, "UnregisterMemory of an I/O queue with something in flight");
  ring_->registration.RemoveMemory(memory);
}

absl::Status UringQueue::RegisterFile(File* file) {
  Check(in_flight() == 0, "RegisterFile of an I/O queue with something in flight");
  auto* const posix_file = dynamic_cast<PosixFile*>(file);
  Check(posix_file != nullptr, "RegisterFile of a file that has no descriptor");
  ring_->EnableOnce();
  return ring_->registration.SetFile(file, posix_file->fd());
}

void UringQueue::UnregisterFile() {
  Check(in_flight() == 0, "UnregisterFile of an I/O queue with something in flight");
  ring_->registration.RemoveFile();
}

std::optional<IoCompletion> UringQueue::Poll() {
  if (std::optional<IoCompletion> refused = ring_->TakeRefused()) return refused;
  while (in_flight() > 0) {
    io_uring_cqe* cqe = nullptr;
    const int result = io_uring_peek_cqe(&ring_->ring, &cqe);
    if (result == -EINTR) continue;
    if (result == -EAGAIN) break;
    Check(result == 0,
          "io_uring refused a completion to this thread; only the thread that submitted first may use the queue");
    if (std::optional<IoCompletion> finished = ring_->Finish(cqe)) return finished;
  }
  return std::nullopt;
}

}  // namespace tidemark::storage
