// Hash tables by the names of entries, without an allocation for each name, which takes most of the time of a standard
// table (docs/performance.md: a million small tensors). They survive an allocation that fails, which Abseil's tables do
// not: their destructors then end the process. The hash has a seed, so that no file can choose names that collide.

#ifndef TIDEMARK_STORAGE_SHARD_FORMAT_NAME_TABLE_H_
#define TIDEMARK_STORAGE_SHARD_FORMAT_NAME_TABLE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/string_view.h"

namespace tidemark::storage {

// Names are not owned, and nothing is removed. After an exception the table is as it was. Thread-compatible.
template <typename Value>
class NameMap {
 public:
  struct Item {
    std::string_view name;
    Value value;
  };

  // Room for so many names.
  void Reserve(size_t count) {
    items_.reserve(count);
    if (SlotsFor(count) > slots_.size()) Rehash(SlotsFor(count));
  }

  // The value of the name, valid until the next call, and whether the name is new. `value` is that of a new name.
  std::pair<Value*, bool> Add(std::string_view name, Value value) {
    if (SlotsFor(items_.size() + 1) > slots_.size()) Rehash(SlotsFor(items_.size() + 1));
    const uint32_t hash = HashOf(name);
    size_t place = hash & (slots_.size() - 1);
    for (; slots_[place].item != kNone; place = (place + 1) & (slots_.size() - 1)) {
      Item& item = items_[slots_[place].item];
      if (slots_[place].hash == hash && item.name == name) return {&item.value, false};
    }
    items_.push_back({name, std::move(value)});
    slots_[place] = {.hash = hash, .item = static_cast<uint32_t>(items_.size() - 1)};
    return {&items_.back().value, true};
  }

  // Null if the name was not added. Valid until the next one is.
  const Value* Find(std::string_view name) const {
    if (items_.empty()) return nullptr;
    const uint32_t hash = HashOf(name);
    for (size_t place = hash & (slots_.size() - 1);; place = (place + 1) & (slots_.size() - 1)) {
      if (slots_[place].item == kNone) return nullptr;
      const Item& item = items_[slots_[place].item];
      if (slots_[place].hash == hash && item.name == name) return &item.value;
    }
  }
  bool Contains(std::string_view name) const { return Find(name) != nullptr; }

  // In the order in which the names were added.
  const std::vector<Item>& items() const { return items_; }
  bool empty() const { return items_.empty(); }

 private:
  static constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
  struct Slot {
    uint32_t hash = 0;
    uint32_t item = kNone;  // into items_
  };

  static uint32_t HashOf(std::string_view name) {
    // Where Abseil has a string_view of its own, it hashes std's without the seed.
    const absl::string_view bytes(name.data(), name.size());
    return static_cast<uint32_t>(absl::Hash<absl::string_view>()(bytes) >> (std::numeric_limits<size_t>::digits - 32));
  }

  // A power of two. So many names take at most three quarters of the slots.
  static size_t SlotsFor(size_t count) {
    if (count >= kNone) throw std::length_error("too many names");
    return std::bit_ceil(count + count / 3 + 1);
  }

  void Rehash(size_t count) {
    std::vector<Slot> slots(count);
    for (const Slot& slot : slots_) {
      if (slot.item == kNone) continue;
      size_t place = slot.hash & (count - 1);
      while (slots[place].item != kNone) place = (place + 1) & (count - 1);
      slots[place] = slot;
    }
    slots_ = std::move(slots);
  }

  std::vector<Item> items_;
  std::vector<Slot> slots_;
};

class NameSet {
 public:
  // Whether the name is new.
  bool Add(std::string_view name) { return names_.Add(name, {}).second; }
  bool Contains(std::string_view name) const { return names_.Contains(name); }
  bool empty() const { return names_.empty(); }

 private:
  NameMap<std::monostate> names_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_SHARD_FORMAT_NAME_TABLE_H_
