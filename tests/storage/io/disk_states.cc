#include "tests/storage/io/disk_states.h"

#include <algorithm>
#include <utility>

#include "storage/io/check.h"
#include "xxhash.h"

namespace tidemark::storage {
namespace {

// Of contents that are kept in case they are asked for again.
constexpr uint64_t kTornBytesMax = 256 << 20;

// Of names; for all else, time goes on.
void ApplyName(ImageEditor& names, const DiskOperation& operation, bool lost) {
  if (operation.IsName() && !lost) {
    names.Apply(operation);
  } else {
    names.Lose(operation);
  }
}

}  // namespace

DiskStates::DiskStates(const DiskLog& log) : log_(log), names_(log.boot) {
  for (size_t i = 0; i < log.operations.size(); ++i) {
    const DiskOperation& operation = log.operations[i];
    if (operation.IsData()) files_[operation.node].operations.push_back(i);
  }
  GoTo(0);
}

DiskImage DiskStates::After(size_t prefix, const std::vector<LostOperation>& lost) {
  Check(prefix <= log_.operations.size(), "more operations were asked for than a disk has seen");
  if (prefix != prefix_) GoTo(prefix);
  ImageEditor editor(names_.image());
  auto next = lost.begin();
  std::map<uint64_t, std::vector<LostOperation>> lost_of_files;
  for (; next != lost.end() && next->index < settled_; ++next) {
    Check(log_.operations[next->index].IsData(), "an operation on names is lost that was synced");
  }
  next = lost.begin();
  for (size_t i = 0; i < prefix; ++i) {
    const bool is_lost = next != lost.end() && next->index == i;
    if (i >= settled_) ApplyName(editor, log_.operations[i], is_lost);
    if (!is_lost) continue;
    if (log_.operations[i].IsData()) lost_of_files[log_.operations[i].node].push_back(*next);
    ++next;
  }
  Check(next == lost.end(), "operations are lost out of order, or have not happened yet");
  for (auto& [node, history] : files_) {
    if (history.operations.front() >= prefix) continue;
    editor.Set(node, ContentsOf(node, history, lost_of_files[node]));
  }
  return editor.Take();
}

void DiskStates::GoTo(size_t prefix) {
  if (prefix < prefix_ || prefix == 0) {
    names_ = ImageEditor(log_.boot);
    settled_ = 0;
    for (auto& [node, history] : files_) {
      const DiskNode* const booted = log_.boot.nodes.Find(node);
      history.done = 0;
      history.contents = booted == nullptr ? nullptr : booted->bytes;
    }
  }
  prefix_ = prefix;
  for (; settled_ < prefix; ++settled_) {
    const DiskOperation& operation = log_.operations[settled_];
    if (operation.IsName() && operation.MayBeLostAt(prefix)) break;
    ApplyName(names_, operation, /*lost=*/false);
  }
}

DiskStates::Contents DiskStates::ContentsOf(uint64_t node, History& history, const std::vector<LostOperation>& lost) {
  const auto end = std::lower_bound(history.operations.begin(), history.operations.end(), prefix_);
  const auto count = static_cast<size_t>(end - history.operations.begin());
  if (lost.empty()) {
    if (history.done < count) {
      auto contents = history.contents == nullptr ? std::make_shared<FileContents>()
                                                  : std::make_shared<FileContents>(*history.contents);
      for (; history.done < count; ++history.done) contents->Apply(log_.operations[history.operations[history.done]]);
      history.contents = std::move(contents);
    }
    return history.contents;
  }
  std::vector<uint64_t> key = {node, count};
  for (const LostOperation& operation : lost) {
    key.push_back(operation.index);
    key.push_back(operation.sector_mask);
  }
  Contents& contents = torn_[XXH3_64bits(key.data(), key.size() * sizeof(uint64_t))];
  if (contents != nullptr) return contents;
  contents = Without(history, count, lost);
  torn_bytes_ += contents->data().size();
  const Contents made = contents;
  if (torn_bytes_ > kTornBytesMax) {
    torn_.clear();
    torn_bytes_ = 0;
  }
  return made;
}

DiskStates::Contents DiskStates::Without(History& history, size_t count, const std::vector<LostOperation>& lost) {
  const uint64_t node = log_.operations[history.operations.front()].node;
  const DiskNode* const booted = log_.boot.nodes.Find(node);
  auto contents = booted == nullptr || booted->bytes == nullptr ? std::make_shared<FileContents>()
                                                                : std::make_shared<FileContents>(*booted->bytes);
  auto next = lost.begin();
  for (size_t i = 0; i < count; ++i) {
    const size_t index = history.operations[i];
    const bool is_lost = next != lost.end() && next->index == index;
    const uint64_t mask = is_lost ? next++->sector_mask : 0;
    contents->Apply(log_.operations[index], mask);
  }
  return contents;
}

}  // namespace tidemark::storage
