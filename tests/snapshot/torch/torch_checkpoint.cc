#include "tests/snapshot/torch/torch_checkpoint.h"

#include <cstring>
#include <set>

#include "fmt/format.h"

namespace tidemark {
namespace {

absl::Status Compare(std::span<const State::Entry> entries, const MemoryCheckpoint& checkpoint) {
  std::string differences;
  std::set<std::string> wanted;
  for (const State::Entry& entry : entries) {
    wanted.insert(entry.spec.name);
    const auto saved = checkpoint.items.find(entry.spec.name);
    if (saved == checkpoint.items.end()) {
      differences += fmt::format(" missing {};", entry.spec.name);
    } else if (saved->second.spec.kind != entry.spec.kind ||
               (entry.spec.kind == EntryKind::kTensor && saved->second.spec != entry.spec)) {
      differences += fmt::format(" {} is {}, not {};", entry.spec.name, DescribeEntry(saved->second.spec),
                                 DescribeEntry(entry.spec));
    }
  }
  for (const auto& [name, item] : checkpoint.items) {
    if (!wanted.contains(name)) differences += fmt::format(" unexpected {};", name);
  }
  return differences.empty() ? absl::OkStatus() : absl::InvalidArgumentError("differs:" + differences);
}

}  // namespace

std::vector<std::string> MemoryCheckpoint::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, item] : items) names.push_back(name);
  return names;
}

std::string MemoryCheckpoint::Text(const std::string& name) const {
  const std::vector<std::byte>& bytes = items.at(name).bytes;
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

absl::StatusOr<MemoryCheckpoint> SaveToMemory(State& state) {
  if (absl::Status status = state.Refresh(); !status.ok()) return status;
  if (absl::Status status = state.BeginStaging(); !status.ok()) return status;
  MemoryCheckpoint checkpoint;
  std::vector<State::CopyRequest> requests;
  const std::span<const State::Entry> entries = state.entries();
  for (size_t i = 0; i < entries.size(); ++i) {
    MemoryCheckpoint::Item& item = checkpoint.items[entries[i].spec.name];
    item.spec = entries[i].spec;
    item.bytes.resize(entries[i].bytes);
    if (entries[i].alias_of >= 0) {
      item.alias_of = entries[static_cast<size_t>(entries[i].alias_of)].spec.name;
    } else if (entries[i].host != nullptr) {
      std::memcpy(item.bytes.data(), entries[i].host, entries[i].bytes);
    } else {
      requests.push_back({.entry = i, .destination = item.bytes.data()});
    }
  }
  if (absl::Status status = state.CopyToHost(requests); !status.ok()) return status;
  for (auto& [name, item] : checkpoint.items) {
    if (!item.alias_of.empty()) item.bytes = checkpoint.items.at(item.alias_of).bytes;
  }
  return checkpoint;
}

absl::Status RestoreFromMemory(State& state, const MemoryCheckpoint& checkpoint) {
  std::vector<EntrySpec> specs;
  for (const auto& [name, item] : checkpoint.items) specs.push_back(item.spec);
  if (absl::Status status = state.PrepareRestore(specs); !status.ok()) return status;
  absl::Status status = Compare(state.entries(), checkpoint);
  // Values first: they may refuse the checkpoint while no tensor has been touched.
  for (const bool tensors : {false, true}) {
    const std::span<const State::Entry> entries = state.entries();
    for (size_t i = 0; i < entries.size() && status.ok(); ++i) {
      const State::Entry& entry = entries[i];
      if ((entry.spec.kind == EntryKind::kTensor) != tensors) continue;
      const std::vector<std::byte>& bytes = checkpoint.items.at(entry.spec.name).bytes;
      if (tensors && entry.host != nullptr) {
        std::memcpy(entry.host, bytes.data(), bytes.size());
      } else {
        status = state.Receive(i, bytes);
      }
    }
  }
  status.Update(state.FlushReceived());
  if (!status.ok()) {
    state.AbandonRestore();
    return status;
  }
  return state.FinishRestore();
}

}  // namespace tidemark
