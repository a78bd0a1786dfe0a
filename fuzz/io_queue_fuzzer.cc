// io_uring against threads against plain pread and pwrite: the same transfers on a file of each give the same bytes and
// the same errors. Where the kernel has no io_uring for us, the other two remain.
//
// The input is rounds of up to eight transfers, each with offset, size and what it is. The transfers of a round are in
// flight at once, so writes of a round do not overlap with anything of it: such a transfer waits for the next round.

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "fuzz/fuzzing.h"
#include "fuzz/temporary_folder.h"
#include "storage/io/file_system.h"

namespace tidemark::fuzz {
namespace {

using storage::File;
using storage::IoQueue;
using storage::IoQueueKind;
using storage::IoRequest;

constexpr size_t kDepth = 8;
constexpr size_t kRoundsMax = 64;
constexpr size_t kBytesMax = 1 << 16;  // of one transfer

struct Transfer {
  IoRequest::Kind kind = IoRequest::Kind::kRead;
  uint64_t offset = 0;
  size_t size = 0;
  uint8_t fill = 0;
};

struct Outcome {
  absl::StatusCode code = absl::StatusCode::kOk;
  std::string bytes;  // of a read that succeeded
  friend bool operator==(const Outcome&, const Outcome&) = default;
};

// A file, and one way to it: a queue, or none and the file's own calls.
class Way {
 public:
  Way(const std::string& path, std::unique_ptr<IoQueue> queue) : queue_(std::move(queue)) {
    auto file = storage::PosixFileSystem().Create(path, /*direct=*/false);
    Require(file.ok(), "a file cannot be made");
    file_ = *std::move(file);
  }

  File& file() { return *file_; }

  std::vector<Outcome> Run(const std::vector<Transfer>& round) {
    std::vector<Outcome> outcomes(round.size());
    std::vector<std::vector<std::byte>> memory;
    for (const Transfer& transfer : round) memory.emplace_back(transfer.size, std::byte{transfer.fill});
    for (size_t i = 0; i < round.size(); ++i) {
      const Transfer& transfer = round[i];
      if (queue_ != nullptr) {
        queue_->Submit({.kind = transfer.kind,
                        .file = file_.get(),
                        .offset = transfer.offset,
                        .data = memory[i].data(),
                        .size = transfer.size,
                        .tag = i});
      } else {
        outcomes[i].code = transfer.kind == IoRequest::Kind::kRead ? file_->ReadAt(transfer.offset, memory[i]).code()
                                                                   : file_->WriteAt(transfer.offset, memory[i]).code();
      }
    }
    while (queue_ != nullptr && queue_->in_flight() > 0) {
      const storage::IoCompletion completion = queue_->Wait();
      Require(completion.tag < round.size(), "a completion has another tag than its transfer");
      outcomes[completion.tag].code = completion.status.code();
    }
    for (size_t i = 0; i < round.size(); ++i) {
      if (round[i].kind != IoRequest::Kind::kRead || outcomes[i].code != absl::StatusCode::kOk) continue;
      outcomes[i].bytes.assign(reinterpret_cast<const char*>(memory[i].data()), memory[i].size());
    }
    return outcomes;
  }

 private:
  const std::unique_ptr<IoQueue> queue_;
  std::unique_ptr<File> file_;
};

// Queues are made once for each input: what one input leaves in a ring must not reach the next one.
std::vector<std::unique_ptr<Way>> MakeWays(const TemporaryFolder& folder) {
  storage::FileSystem& files = storage::PosixFileSystem();
  std::vector<std::unique_ptr<Way>> ways;
  ways.push_back(std::make_unique<Way>(folder.path() + "/plain", nullptr));
  for (const IoQueueKind kind : {IoQueueKind::kThreads, IoQueueKind::kUring}) {
    auto queue = files.NewIoQueue(kind, kDepth);
    if (absl::IsUnavailable(queue.status())) continue;
    Require(queue.ok(), "a queue cannot be made");
    const std::string name((*queue)->name());
    ways.push_back(std::make_unique<Way>(folder.path() + "/" + name, *std::move(queue)));
  }
  return ways;
}

// Most transfers lie within a few blocks, where they meet; some far out, where there is nothing.
Transfer TakeTransfer(FuzzInput& in) {
  const auto flags = in.Take<uint8_t>();
  Transfer transfer;
  transfer.kind = flags & 1 ? IoRequest::Kind::kWrite : IoRequest::Kind::kRead;
  transfer.fill = in.Take<uint8_t>();
  transfer.offset = in.Take<uint16_t>();
  transfer.size = in.Take<uint16_t>() % kBytesMax;
  // Reads alone, for a write there would fill the disk with a file of that size, or fail by how large files may be.
  if ((flags & 6) == 6 && transfer.kind == IoRequest::Kind::kRead) transfer.offset = in.Take<uint64_t>();
  return transfer;
}

bool Meet(const Transfer& a, const Transfer& b) {
  if (a.kind == IoRequest::Kind::kRead && b.kind == IoRequest::Kind::kRead) return false;
  // A write makes the file longer, so that a read behind it may or may not find its end.
  if (a.kind != b.kind) return true;
  return a.offset < b.offset + b.size && b.offset < a.offset + a.size;
}

std::vector<Transfer> TakeRound(FuzzInput& in, std::vector<Transfer>* left) {
  std::vector<Transfer> round = std::move(*left);
  left->clear();
  while (round.size() < kDepth && left->empty() && !in.empty()) {
    const Transfer transfer = TakeTransfer(in);
    const bool meets = std::any_of(round.begin(), round.end(), [&](const Transfer& t) { return Meet(t, transfer); });
    (meets ? *left : round).push_back(transfer);
  }
  return round;
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark::fuzz;
  FuzzInput in(data, size);
  const TemporaryFolder folder;
  const std::vector<std::unique_ptr<Way>> ways = MakeWays(folder);
  std::vector<Transfer> left;
  for (size_t rounds = 0; rounds < kRoundsMax && (!in.empty() || !left.empty()); ++rounds) {
    const auto change = in.Take<uint8_t>();
    const auto bytes = in.Take<uint16_t>();
    for (const auto& way : ways) {
      if (change % 8 == 1) Require(way->file().Truncate(bytes).ok(), "a file cannot be cut");
    }
    const std::vector<Transfer> round = TakeRound(in, &left);
    const std::vector<Outcome> expected = ways.front()->Run(round);
    for (const auto& way : ways) {
      if (way != ways.front()) Require(way->Run(round) == expected, "a queue does other than pread and pwrite");
      Require(way->file().Size().value() == ways.front()->file().Size().value(), "a file has another size");
    }
  }
  return 0;
}
