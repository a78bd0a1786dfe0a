#include "snapshot/consumers/filtered_snapshot.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "fmt/format.h"
#include "snapshot/glob.h"
#include "snapshot/numbers/half_precision.h"
#include "snapshot/staging/owned_snapshot.h"

namespace tidemark {
namespace {

class FilteredSnapshot final : public Snapshot {
 public:
  FilteredSnapshot(std::shared_ptr<const Snapshot> base, std::vector<size_t> kept)
      : base_(std::move(base)), kept_(std::move(kept)) {
    entries_.reserve(kept_.size());
    for (size_t index : kept_) entries_.push_back(base_->entries()[index]);
  }

  int64_t step() const override { return base_->step(); }
  std::span<const EntrySpec> entries() const override { return entries_; }
  std::span<const std::byte> bytes(size_t index) const override { return base_->bytes(kept_[index]); }
  std::shared_ptr<const void> memory() const override { return base_->memory(); }
  std::optional<size_t> Find(std::string_view name) const override {
    const std::optional<size_t> in_base = base_->Find(name);
    if (!in_base) return std::nullopt;
    const auto found = std::lower_bound(kept_.begin(), kept_.end(), *in_base);
    if (found == kept_.end() || *found != *in_base) return std::nullopt;
    return static_cast<size_t>(found - kept_.begin());
  }
  const std::map<std::string, double>& metrics() const override { return base_->metrics(); }
  const std::string& user_metadata() const override { return base_->user_metadata(); }

 private:
  const std::shared_ptr<const Snapshot> base_;
  const std::vector<size_t> kept_;  // indices into the base's entries, ascending
  std::vector<EntrySpec> entries_;
};

}  // namespace

absl::StatusOr<std::vector<size_t>> MatchingEntries(std::span<const EntrySpec> entries,
                                                    std::span<const std::string> patterns) {
  std::vector<bool> fits(patterns.size(), false);
  std::vector<size_t> matching;
  for (size_t i = 0; i < entries.size(); ++i) {
    bool matches = patterns.empty();
    for (size_t p = 0; p < patterns.size(); ++p) {
      if (!GlobMatches(patterns[p], entries[i].name)) continue;
      matches = true;
      fits[p] = true;
    }
    if (matches) matching.push_back(i);
  }
  if (const auto unused = std::find(fits.begin(), fits.end(), false); unused != fits.end()) {
    return absl::InvalidArgumentError(fmt::format("pattern '{}' matches no entry of the snapshot",
                                                  patterns[static_cast<size_t>(unused - fits.begin())]));
  }
  return matching;
}

absl::StatusOr<std::shared_ptr<const Snapshot>> FilterSnapshot(std::shared_ptr<const Snapshot> base,
                                                               std::span<const std::string> patterns) {
  if (patterns.empty()) return base;
  absl::StatusOr<std::vector<size_t>> kept = MatchingEntries(base->entries(), patterns);
  if (!kept.ok()) return kept.status();
  return std::make_shared<FilteredSnapshot>(std::move(base), *std::move(kept));
}

absl::StatusOr<std::shared_ptr<const Snapshot>> ToHalfPrecision(const Snapshot& snapshot, HalfPrecision half) {
  OwnedSnapshot::Contents contents{
      .step = snapshot.step(), .metrics = snapshot.metrics(), .user_metadata = snapshot.user_metadata()};
  // Tied entries are those that lie in the same place. One of no bytes lies nowhere.
  absl::flat_hash_map<const std::byte*, size_t> first_at;
  for (size_t i = 0; i < snapshot.entries().size(); ++i) {
    const EntrySpec& spec = snapshot.entries()[i];
    contents.entries.push_back(HalvedSpec(spec, half));
    int64_t alias = -1;
    if (!snapshot.bytes(i).empty()) {
      const auto [first, is_first] = first_at.emplace(snapshot.bytes(i).data(), i);
      if (!is_first && snapshot.entries()[first->second].dtype == spec.dtype &&
          snapshot.bytes(first->second).size() == snapshot.bytes(i).size()) {
        alias = static_cast<int64_t>(first->second);
      }
    }
    contents.alias_of.push_back(alias);
  }
  absl::StatusOr<std::shared_ptr<OwnedSnapshot>> halved = OwnedSnapshot::Create(std::move(contents));
  if (!halved.ok()) return halved.status();
  for (size_t i = 0; i < snapshot.entries().size(); ++i) {
    const std::span<std::byte> place = (*halved)->place(i);
    if ((*halved)->is_alias(i) || place.empty()) continue;
    if (IsHalved(snapshot.entries()[i], half)) {
      ConvertToHalf(snapshot.entries()[i], half, snapshot.bytes(i), place);
    } else {
      std::memcpy(place.data(), snapshot.bytes(i).data(), place.size());
    }
  }
  return *std::move(halved);
}

}  // namespace tidemark
