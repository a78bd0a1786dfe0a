#include "snapshot/staging/owned_snapshot.h"

#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "fmt/format.h"
#include "storage/io/file_system.h"

namespace tidemark {
namespace {

constexpr uint64_t kAlignment = 64;

uint64_t BytesOf(const EntrySpec& spec) {
  uint64_t bytes = 0;
  ValidateEntry(spec, &bytes).IgnoreError();  // a precondition
  return bytes;
}

// Entries that are too small to be read directly are packed.
uint64_t PackedAlignment(uint64_t bytes) {
  return bytes >= storage::kDirectAlignment ? storage::kDirectAlignment : kAlignment;
}

}  // namespace

OwnedSnapshot::OwnedSnapshot(Contents contents) : contents_(std::move(contents)) {
  by_name_.Reserve(contents_.entries.size());
  for (size_t i = 0; i < contents_.entries.size(); ++i) by_name_.Add(contents_.entries[i].name, i);
}

absl::StatusOr<std::shared_ptr<OwnedSnapshot>> OwnedSnapshot::Create(Contents contents) {
  std::shared_ptr<OwnedSnapshot> snapshot(new OwnedSnapshot(std::move(contents)));
  const std::vector<EntrySpec>& entries = snapshot->contents_.entries;
  std::vector<uint64_t> offsets(entries.size());
  std::vector<uint64_t> sizes(entries.size());
  uint64_t total = 0;
  bool fits = true;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (snapshot->is_alias(i)) continue;
    sizes[i] = BytesOf(entries[i]);
    const uint64_t alignment = PackedAlignment(sizes[i]);
    offsets[i] = (total + alignment - 1) / alignment * alignment;
    fits = fits && !__builtin_add_overflow(offsets[i], sizes[i], &total) &&
           total <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  }
  total = std::max<uint64_t>(total, 1);
  // Mapped and not allocated: large pages where the system has them, and gone when the snapshot is.
  void* const mapped =
      fits ? mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED;
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(fmt::format("no memory for the snapshot of step {}, {} bytes: {}",
                                                    snapshot->step(), total, strerrordesc_np(fits ? errno : ENOMEM)));
  }
  madvise(mapped, total, MADV_HUGEPAGE);  // a wish
  auto* const memory = static_cast<std::byte*>(mapped);
  snapshot->memory_ = {memory, [total](std::byte* data) { munmap(data, total); }};
  snapshot->places_.resize(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    const int64_t alias = snapshot->contents_.alias_of[i];
    snapshot->places_[i] =
        alias >= 0 ? snapshot->places_[static_cast<size_t>(alias)] : std::span(memory + offsets[i], sizes[i]);
  }
  return snapshot;
}

std::optional<size_t> OwnedSnapshot::Find(std::string_view name) const {
  const size_t* const found = by_name_.Find(name);
  return found == nullptr ? std::nullopt : std::optional<size_t>(*found);
}

}  // namespace tidemark
