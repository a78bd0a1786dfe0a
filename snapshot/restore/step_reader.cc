#include "tidemark/step_reader.h"

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/guarded.h"
#include "snapshot/restore/box_read.h"
#include "snapshot/restore/step_reader_impl.h"
#include "storage/io/printable_text.h"

namespace tidemark {
namespace {

// kInvalidArgument: two destinations overlap. A ShardReader looks only at those of its own shard.
absl::Status CheckDisjoint(std::span<const StepReader::Window> windows) {
  std::vector<std::span<std::byte>> places;
  for (const StepReader::Window& window : windows) {
    if (!window.destination.empty()) places.push_back(window.destination);
  }
  std::ranges::sort(places, std::less<>(), [](const std::span<std::byte>& place) { return place.data(); });
  for (size_t i = 1; i < places.size(); ++i) {
    if (places[i].data() < places[i - 1].data() + places[i - 1].size()) {
      return absl::InvalidArgumentError("read: two destinations overlap");
    }
  }
  return absl::OkStatus();
}

}  // namespace

const EntryParts* StepReader::Impl::Find(std::string_view name) const {
  std::call_once(found_, [this] {
    if (parts_.empty()) parts_ = JoinEntries(step->contents);
    for (size_t i = 0; i < parts_.size(); ++i) by_name_.Add(parts_[i].spec.name, i);
  });
  const size_t* const place = by_name_.Find(name);
  return place == nullptr ? nullptr : &parts_[*place];
}

void StepReader::Impl::Join() {
  if (!HasParts(step->shards)) return;
  parts_ = JoinEntries(step->contents);
  joined_ = {.info = step->contents.info,
             .shards = step->contents.shards,
             .references = step->contents.references,
             .entries = {},
             .properties = step->contents.properties};
  std::map<std::string_view, size_t> by_name;
  for (const EntryParts& parts : parts_) {
    by_name.emplace(parts.spec.name, joined_->entries.size());
    StoredEntry& whole = joined_->entries.emplace_back(step->contents.entries[parts.stored.front()]);
    whole.spec = parts.spec;
    if (parts.stored.size() == 1 && parts.boxes.front() == WholeBox(parts.spec.shape)) continue;
    whole.bytes = parts.bytes;
    whole.stored_bytes = whole.reused_bytes = 0;
    for (const size_t stored : parts.stored) {
      const StoredEntry& part = step->contents.entries[stored];
      whole.stored_bytes += part.stored_bytes;
      whole.reused_bytes += part.reused_bytes;
      if (part.tied_to != whole.tied_to) whole.tied_to.clear();
    }
    whole.digest = DigestOfParts(step->contents, parts);
  }
  // All parts of two wholes may be tied although the wholes differ: in their shapes, or because one has more parts.
  for (StoredEntry& whole : joined_->entries) {
    const auto owner = by_name.find(whole.tied_to);
    if (owner == by_name.end() || joined_->entries[owner->second].digest != whole.digest ||
        joined_->entries[owner->second].bytes != whole.bytes) {
      whole.tied_to.clear();
    }
  }
}

absl::Status StepReader::Impl::Read(std::span<const Window> windows) const {
  if (!joined_) return step->Read(windows);
  if (absl::Status status = CheckDisjoint(windows); !status.ok()) return status;
  std::vector<RangeRead> ranges;
  for (const Window& window : windows) {
    if (window.entry >= parts_.size()) {
      return absl::InvalidArgumentError(
          fmt::format("read: there is no entry {}; the step has {}", window.entry, parts_.size()));
    }
    const uint64_t bytes = joined_->entries[window.entry].bytes;
    if (window.offset > bytes || window.destination.size() > bytes - window.offset) {
      return absl::OutOfRangeError(fmt::format(
          "read step {}: '{}' has {} bytes: {} bytes from {} are outside of it", joined_->info.step,
          storage::PrintableText(parts_[window.entry].spec.name), bytes, window.destination.size(), window.offset));
    }
    ranges.push_back({.parts = &parts_[window.entry], .offset = window.offset, .destination = window.destination});
  }
  return ReadRanges(*step, ranges);
}

StepReader::StepReader() = default;
StepReader::~StepReader() = default;

const StepContents& StepReader::contents() const { return impl_->contents(); }

uint64_t StepReader::chunk_bytes() const { return impl_->step->chunk_bytes; }

absl::Status StepReader::Read(std::span<const Window> windows) const {
  return Guarded("Read", [&] { return impl_->Read(windows); });
}

absl::Status StepReader::ReadBox(std::string_view name, std::span<const int64_t> offset,
                                 std::span<const int64_t> extent, std::span<std::byte> destination) const {
  return Guarded("ReadBox", [&]() -> absl::Status {
    const EntryParts* const parts = impl_->Find(name);
    if (parts == nullptr) {
      return absl::NotFoundError(
          fmt::format("step {} has no entry '{}'", contents().info.step, storage::PrintableText(name)));
    }
    EntrySpec spec = parts->spec;
    spec.box_offset = {offset.begin(), offset.end()};
    spec.box_extent = {extent.begin(), extent.end()};
    uint64_t bytes = GetDtypeInfo(spec.dtype).element_bytes;
    absl::Status valid = absl::OkStatus();
    if (offset.size() != spec.shape.size() || extent.size() != spec.shape.size()) {
      valid = absl::InvalidArgumentError("the box has other dimensions");
    } else if (!spec.shape.empty()) {
      valid = ValidateEntry(spec, &bytes);
    }
    if (!valid.ok()) {
      return absl::OutOfRangeError(fmt::format(
          "read the box of [{}] from [{}] of '{}', which is {}: {}", fmt::join(extent, ", "), fmt::join(offset, ", "),
          storage::PrintableText(name), DescribeEntry(parts->spec), std::string(valid.message())));
    }
    const Box box{.offset = spec.box_offset, .extent = spec.box_extent};
    if (bytes != destination.size()) {
      return absl::InvalidArgumentError(fmt::format("read {} of '{}': it has {} bytes, and the destination {}",
                                                    DescribeBox(box), storage::PrintableText(name), bytes,
                                                    destination.size()));
    }
    const BoxRead read{.parts = parts, .box = box, .destination = destination};
    return ReadBoxes(*impl_->step, {&read, 1});
  });
}

}  // namespace tidemark
