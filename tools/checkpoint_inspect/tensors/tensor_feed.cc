#include "tools/checkpoint_inspect/tensors/tensor_feed.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "storage/io/errno_status.h"

namespace tidemark::inspect {
namespace {

// What memory is given back in.
constexpr uint64_t kPageBytes = 4096;

// Where an entry may lie: on a page of its own, or among others where it does not fill one, for the writer may have any
// number of small ones in work.
uint64_t AlignEntry(uint64_t offset, uint64_t bytes) {
  constexpr uint64_t kSmallAlignment = 64;
  const uint64_t alignment = bytes < kPageBytes ? kSmallAlignment : kPageBytes;
  return (offset + alignment - 1) / alignment * alignment;
}

}  // namespace

TensorFeed::TensorFeed(std::vector<const TensorSource*> sources) {
  for (const TensorSource* source : sources) {
    for (size_t entry = 0; entry < source->entries().size(); ++entry) {
      const uint64_t bytes = source->entries()[entry].bytes;
      const uint64_t begin = AlignEntry(address_bytes_, bytes);
      items_.push_back({.source = source, .entry = entry, .begin = begin, .bytes = bytes});
      bytes_total_ += bytes;
      address_bytes_ = begin + bytes;
    }
  }
}

absl::StatusOr<std::unique_ptr<TensorFeed>> TensorFeed::Create(std::vector<const TensorSource*> sources) {
  std::unique_ptr<TensorFeed> feed(new TensorFeed(std::move(sources)));
  if (feed->address_bytes_ == 0) return feed;
  void* const addresses =
      mmap(nullptr, feed->address_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (addresses == MAP_FAILED) return storage::ErrnoStatus(errno, "reserve addresses for", "the tensors");
  feed->addresses_ = static_cast<std::byte*>(addresses);
  return feed;
}

TensorFeed::~TensorFeed() {
  if (addresses_ != nullptr) munmap(addresses_, address_bytes_);
}

void TensorFeed::Attach(storage::ShardContents* contents) {
  contents->entries.reserve(items_.size());
  for (const Item& item : items_) {
    contents->entries.push_back(
        {.spec = item.source->entries()[item.entry].spec, .bytes = {addresses_ + item.begin, item.bytes}});
  }
  contents->wait_until_ready = [this](size_t entry, uint64_t end) { return FillUpTo(entry, end); };
  contents->release = [this](size_t entry, uint64_t end) { GiveBackUpTo(items_[entry].begin + end); };
}

absl::Status TensorFeed::FillUpTo(size_t item, uint64_t end) {
  absl::MutexLock lock(&mutex_);
  while (item_ < item || (item_ == item && filled_ < end)) {
    const Item& next = items_[item_];
    const uint64_t until = item_ == item ? end : next.bytes;
    if (until > filled_) {
      const StepReader::Window window{
          .entry = next.entry, .offset = filled_, .destination = {addresses_ + next.begin + filled_, until - filled_}};
      if (absl::Status status = next.source->Read({&window, 1}); !status.ok()) return status;
      bytes_read_.fetch_add(until - filled_, std::memory_order_relaxed);
    }
    filled_ = until;
    if (item_ == item) break;
    ++item_;
    filled_ = 0;
  }
  return absl::OkStatus();
}

// What fails here is that memory stays for longer.
void TensorFeed::GiveBackUpTo(uint64_t end) {
  const uint64_t pages_end = end / kPageBytes * kPageBytes;
  if (pages_end <= given_back_) return;
  madvise(addresses_ + given_back_, pages_end - given_back_, MADV_DONTNEED);
  given_back_ = pages_end;
}

}  // namespace tidemark::inspect
