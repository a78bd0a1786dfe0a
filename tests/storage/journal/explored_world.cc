#include "tests/storage/journal/explored_world.h"

#include "fmt/format.h"

namespace tidemark::storage {

std::string FactOf(Deed deed, int generation, int process) {
  switch (deed) {
    case Deed::kBeginEpoch:
      return fmt::format("epoch of {}.{}", generation, process);
    case Deed::kCommit:
      return fmt::format("commit by {}.{}", generation, process);
    case Deed::kDelete:
      return fmt::format("deletion by {}.{}", generation, process);
    case Deed::kReport:
      return fmt::format("report by {}.{}", generation, process);
    case Deed::kTell:
      return "";
  }
  return "";
}
bool IsDeletion(const std::string& fact) { return fact.starts_with("deletion"); }
bool IsReport(const std::string& fact) { return fact.starts_with("report"); }
bool IsCommit(const std::string& fact) { return fact.starts_with("commit"); }

std::vector<std::string> FactsOf(const JournalView& view, EntryNumber up_to, bool is_fenced) {
  std::vector<std::string> facts;
  for (const KnownEntry& known : view.entries()) {
    if (known.place.number > up_to) break;
    if (is_fenced && !known.counts) continue;
    facts.insert(facts.end(), known.entry.facts.begin(), known.entry.facts.end());
  }
  return facts;
}

absl::Status CheckFirstCommit(const std::vector<std::string>& facts) {
  bool is_committed = false;
  for (const std::string& fact : facts) {
    if (fact == FactOf(Deed::kCommit, 0, 0)) is_committed = true;
    if (IsDeletion(fact)) is_committed = false;
  }
  return is_committed ? absl::OkStatus() : absl::NotFoundError("the step is not committed");
}

}  // namespace tidemark::storage
