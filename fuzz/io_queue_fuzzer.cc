// io_uring against threads against plain pread and pwrite: the same transfers on files of each give the same bytes and
// the same errors, whether or not the queues bypass the page cache and know memory and a file beforehand. Where the
// kernel has no io_uring for us, the other two remain.
//
// The input is a byte that says whether the queues' files are direct, and rounds: a change of the files or of what is
// registered, then up to eight transfers, each with file, offset, size and what it is. The transfers of a round are in
// flight at once, so writes of a round do not overlap with anything of it: such a transfer waits for the next round.

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "fuzz/temporary_folder.h"
#include "storage/io/file_system.h"
#include "storage/shard/format/aligned_buffer.h"

namespace tidemark::fuzz {
namespace {

using storage::AlignDown;
using storage::File;
using storage::IoQueue;
using storage::IoQueueKind;
using storage::IoRequest;
using storage::kDirectAlignment;

constexpr size_t kDepth = 8;
constexpr size_t kFiles = 2;
constexpr size_t kRoundsMax = 64;
constexpr size_t kBytesMax = 1 << 16;  // of one transfer
// A transfer's memory, and behind it what must stay as it is.
constexpr size_t kSlotBytes = kBytesMax + kDirectAlignment;
constexpr size_t kGuardBytes = 256;

struct Transfer {
  IoRequest::Kind kind = IoRequest::Kind::kRead;
  size_t file = 0;
  uint64_t offset = 0;
  size_t size = 0;
  size_t shift = 0;  // of the memory's address from an aligned one
  uint8_t fill = 0;
};

// What happens between two rounds.
struct Change {
  enum class Kind : uint8_t { kTruncate = 1, kRegisterFile, kUnregisterFile, kRegisterMemory, kUnregisterMemory };
  Kind kind = {};  // any other value: nothing
  size_t file = 0;
  uint16_t amount = 0;
};

struct Outcome {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string bytes;  // of a read that succeeded
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// Two files, and one way to them: a queue, or none and the files' own calls.
class Way {
 public:
  Way(const std::string& path, bool direct, std::unique_ptr<IoQueue> queue) : queue_(std::move(queue)) {
    for (size_t i = 0; i < kFiles; ++i) {
      auto file = storage::PosixFileSystem().Create(path + "_" + std::to_string(i), direct);
      Require(file.ok(), "a file cannot be made");
      files_[i] = *std::move(file);
    }
  }
  // A registered file is open until it is no longer.
  ~Way() {
    if (queue_ != nullptr) queue_->UnregisterFile();
  }
  Way(const Way&) = delete;
  Way& operator=(const Way&) = delete;

  std::array<uint64_t, kFiles> Sizes() { return {files_[0]->Size().value(), files_[1]->Size().value()}; }

  void Apply(const Change& change) {
    if (change.kind == Change::Kind::kTruncate) {
      Require(files_[change.file]->Truncate(change.amount).ok(), "a file cannot be cut");
    }
    if (queue_ == nullptr) return;
    // That something cannot be registered must change nothing.
    if (change.kind == Change::Kind::kRegisterFile) queue_->RegisterFile(files_[change.file].get()).IgnoreError();
    if (change.kind == Change::Kind::kUnregisterFile) queue_->UnregisterFile();
    if (change.kind == Change::Kind::kRegisterMemory) {
      registered_.push_back(memory_.span().first(std::min<size_t>(memory_.size(), size_t{change.amount} * 9)));
      queue_->RegisterMemory(registered_.back()).IgnoreError();
    }
    if (change.kind == Change::Kind::kUnregisterMemory) {
      for (const std::span<const std::byte> memory : registered_) queue_->UnregisterMemory(memory);
      registered_.clear();
      // Others take the place of these pages, and a queue that still knew them would transfer the old ones' bytes.
      madvise(memory_.data(), memory_.size(), MADV_DONTNEED);
    }
  }

  std::vector<Outcome> Run(const std::vector<Transfer>& round) {
    std::vector<Outcome> outcomes(round.size());
    for (size_t i = 0; i < round.size(); ++i) {
      const Transfer& transfer = round[i];
      std::memset(DataOf(round, i), transfer.fill, transfer.size + kGuardBytes);
      File* const file = files_[transfer.file].get();
      const std::span<std::byte> data(DataOf(round, i), transfer.size);
      if (queue_ != nullptr) {
        queue_->Submit({.kind = transfer.kind,
                        .file = file,
                        .offset = transfer.offset,
                        .data = data.data(),
                        .size = data.size(),
                        .tag = i});
      } else {
        outcomes[i].code = transfer.kind == IoRequest::Kind::kRead ? file->ReadAt(transfer.offset, data).code()
                                                                   : file->WriteAt(transfer.offset, data).code();
      }
    }
    while (queue_ != nullptr && queue_->in_flight() > 0) {
      const storage::IoCompletion completion = queue_->Wait();
      Require(completion.tag < round.size(), "a completion has another tag than its transfer");
      outcomes[completion.tag].code = completion.status.code();
    }
    for (size_t i = 0; i < round.size(); ++i) {
      const std::byte* const end = DataOf(round, i) + round[i].size;
      Require(std::all_of(end, end + kGuardBytes, [&](std::byte byte) { return byte == std::byte{round[i].fill}; }),
              "a transfer changed memory that is not its own");
      if (round[i].kind != IoRequest::Kind::kRead || outcomes[i].code != absl::StatusCode::kOk) continue;
      outcomes[i].bytes.assign(reinterpret_cast<const char*>(DataOf(round, i)), round[i].size);
    }
    return outcomes;
  }

 private:
  std::byte* DataOf(const std::vector<Transfer>& round, size_t i) const {
    return memory_.data() + i * kSlotBytes + round[i].shift;
  }

  const storage::AlignedBuffer memory_{kDepth * kSlotBytes};
  std::vector<std::span<const std::byte>> registered_;
  const std::unique_ptr<IoQueue> queue_;
  std::array<std::unique_ptr<File>, kFiles> files_;
};

// Queues are made once for each input: what one input leaves in a ring must not reach the next one. The plain way,
// which the others are held to, is never direct.
std::vector<std::unique_ptr<Way>> MakeWays(const TemporaryFolder& folder, bool direct) {
  storage::FileSystem& files = storage::PosixFileSystem();
  std::vector<std::unique_ptr<Way>> ways;
  ways.push_back(std::make_unique<Way>(folder.path() + "/plain", /*direct=*/false, nullptr));
  for (const IoQueueKind kind : {IoQueueKind::kThreads, IoQueueKind::kUring}) {
    auto queue = files.NewIoQueue(kind, kDepth);
    if (absl::IsUnavailable(queue.status())) continue;
    Require(queue.ok(), "a queue cannot be made");
    const std::string name((*queue)->name());
    ways.push_back(std::make_unique<Way>(folder.path() + "/" + name, direct, *std::move(queue)));
  }
  return ways;
}

Change TakeChange(FuzzInput& in) {
  const auto what = in.Take<uint8_t>();
  Change change;
  change.kind = static_cast<Change::Kind>(what % 8);
  change.file = what / 8 % kFiles;
  change.amount = in.Take<uint16_t>();
  return change;
}

// Most transfers lie within a few blocks, where they meet; some far out, where there is nothing.
Transfer TakeTransfer(FuzzInput& in, bool direct) {
  const auto flags = in.Take<uint8_t>();
  Transfer transfer;
  transfer.kind = flags & 1 ? IoRequest::Kind::kWrite : IoRequest::Kind::kRead;
  transfer.file = flags / 8 % kFiles;
  transfer.fill = in.Take<uint8_t>();
  transfer.offset = in.Take<uint16_t>();
  transfer.size = in.Take<uint16_t>() % kBytesMax;
  // Reads alone, for a write there would fill the disk with a file of that size, or fail by how large files may be.
  if ((flags & 6) == 6 && transfer.kind == IoRequest::Kind::kRead) transfer.offset = in.Take<uint64_t>();
  transfer.shift = transfer.fill % 64;
  if (direct) {
    transfer.offset = AlignDown(transfer.offset);
    transfer.size = AlignDown(transfer.size);
    transfer.shift = 0;
  }
  return transfer;
}

bool Meet(const Transfer& a, const Transfer& b) {
  if (a.file != b.file) return false;
  if (a.kind == IoRequest::Kind::kRead && b.kind == IoRequest::Kind::kRead) return false;
  // A write makes the file longer, so that a read behind it may or may not find its end.
  if (a.kind != b.kind) return true;
  return a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

std::vector<Transfer> TakeRound(FuzzInput& in, bool direct, std::vector<Transfer>* left) {
  std::vector<Transfer> round = std::move(*left);
  left->clear();
  while (round.size() < kDepth && left->empty() && !in.empty()) {
    const Transfer transfer = TakeTransfer(in, direct);
    const bool meets = std::any_of(round.begin(), round.end(), [&](const Transfer& t) { return Meet(t, transfer); });
    (meets ? *left : round).push_back(transfer);
  }
  return round;
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark::fuzz;
  const tidemark::fuzz::AllocationBudget budget(size);
  FuzzInput in(data, size);
  const bool direct = in.Take<uint8_t>() % 2 == 1;
  const TemporaryFolder folder(direct ? TemporaryFolder::Place::kDisk : TemporaryFolder::Place::kMemory);
  const std::vector<std::unique_ptr<Way>> ways = MakeWays(folder, direct);
  std::vector<Transfer> left;
  for (size_t rounds = 0; rounds < kRoundsMax && (!in.empty() || !left.empty()); ++rounds) {
    const Change change = TakeChange(in);
    for (const auto& way : ways) way->Apply(change);
    const std::vector<Transfer> round = TakeRound(in, direct, &left);
    const std::vector<Outcome> expected = ways.front()->Run(round);
    for (const auto& way : ways) {
      if (way != ways.front()) Require(way->Run(round) == expected, "a queue does other than pread and pwrite");
      Require(way->Sizes() == ways.front()->Sizes(), "a file has another size");
    }
  }
  return 0;
}
