// Says whether the latest committed steps of two stores hold the same state, bit for bit:
//
//   compare-steps STORE STORE
//
// Exit status: 0 the same, 1 not the same, 2 it could not be found out. It also shows how to read a checkpoint without
// a trainer and without LibTorch.

#include <fmt/format.h>

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tidemark/store_reader.h"

namespace {

struct LatestStep {
  std::unique_ptr<tidemark::StoreReader> reader;
  int64_t step = 0;
  std::map<std::string, tidemark::EntrySpec> entries;  // by name
};

absl::StatusOr<LatestStep> OpenLatest(const std::string& directory) {
  auto reader = tidemark::StoreReader::Open(directory);
  if (!reader.ok()) return reader.status();
  auto latest = (*reader)->LatestStep();
  if (!latest.ok()) return latest.status();
  auto contents = (*reader)->Contents(latest->step);
  if (!contents.ok()) return contents.status();
  LatestStep result{.reader = *std::move(reader), .step = latest->step};
  for (const tidemark::StoredEntry& entry : contents->entries) result.entries.emplace(entry.spec.name, entry.spec);
  return result;
}

// One line for each difference.
absl::StatusOr<std::vector<std::string>> Differences(const LatestStep& a, const LatestStep& b) {
  std::vector<std::string> lines;
  if (a.step != b.step) lines.push_back(fmt::format("step {} against step {}", a.step, b.step));
  for (const auto& [name, spec] : b.entries) {
    if (!a.entries.contains(name)) lines.push_back(fmt::format("{}: only in the second", name));
  }
  for (const auto& [name, spec] : a.entries) {
    const auto other = b.entries.find(name);
    if (other == b.entries.end()) {
      lines.push_back(fmt::format("{}: only in the first", name));
    } else if (spec != other->second) {
      lines.push_back(fmt::format("{}: {} against {}", name, DescribeEntry(spec), DescribeEntry(other->second)));
    } else {
      const auto bytes = a.reader->ReadEntry(a.step, name);
      if (!bytes.ok()) return bytes.status();
      const auto other_bytes = b.reader->ReadEntry(b.step, name);
      if (!other_bytes.ok()) return other_bytes.status();
      if (*bytes != *other_bytes) lines.push_back(fmt::format("{}: the bytes differ", name));
    }
  }
  return lines;
}

int Compare(const std::string& first, const std::string& second) {
  const auto a = OpenLatest(first);
  const auto b = OpenLatest(second);
  for (const auto* opened : {&a, &b}) {
    if (!opened->ok()) {
      fmt::print(stderr, "compare-steps: {}\n", opened->status().ToString());
      return 2;
    }
  }
  const auto differences = Differences(*a, *b);
  if (!differences.ok()) {
    fmt::print(stderr, "compare-steps: {}\n", differences.status().ToString());
    return 2;
  }
  for (const std::string& line : *differences) fmt::print("{}\n", line);
  if (!differences->empty()) return 1;
  fmt::print("step {} is the same in both, bit for bit: {} entries\n", a->step, a->entries.size());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: compare-steps STORE STORE\n");
    return 2;
  }
  return Compare(argv[1], argv[2]);
}
