// A state of an exploration: what the journal's folder holds, what each process is at, and what was told.

#ifndef TIDEMARK_TESTS_STORAGE_JOURNAL_EXPLORED_WORLD_H_
#define TIDEMARK_TESTS_STORAGE_JOURNAL_EXPLORED_WORLD_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "storage/journal/appender.h"
#include "tests/storage/journal/exploration.h"

namespace tidemark::storage {

// A name in the journal's folder. Contents are numbers of a table, so that a state is small.
struct Name {
  enum class State { kVisible, kUncertain, kDurable };
  int contents = 0;
  State state = State::kVisible;

  template <typename H>
  friend H AbslHashValue(H h, const Name& name) {
    return H::combine(std::move(h), name.contents, name.state);
  }
};
using Folder = std::map<EntryNumber, Name>;

struct Process {
  int number = 0;  // in its generation
  const std::vector<Deed>* deeds = nullptr;
  size_t next = 0;        // the deed that is done or begun next
  bool has_read = false;  // since it began
  uint64_t epoch = 0;     // of its own
  bool heard = false;     // its descriptor of the folder has a failed sync to report
  bool is_first_try = true;
  int appends = 0;  // that it has begun
  Appender appender;

  template <typename H>
  friend H AbslHashValue(H h, const Process& process) {
    return H::combine(std::move(h), process.number, process.next, process.has_read, process.epoch, process.heard,
                      process.is_first_try, process.appends, process.appender);
  }
};

struct World {
  Folder folder;
  std::vector<Process> processes;
  int generation = 0;
  int failed_syncs = 0;
  int power_losses = 0;
  int old_listings = 0;
  int denials = 0;
  std::set<std::string> appended;  // facts that a process was told are there
  std::set<std::string> absent;    // facts that a process was told are not there

  template <typename H>
  friend H AbslHashValue(H h, const World& world) {
    h = H::combine(std::move(h), world.processes, world.generation, world.failed_syncs, world.power_losses,
                   world.old_listings, world.denials, world.folder.size());
    for (const auto& [number, name] : world.folder) h = H::combine(std::move(h), number, name);
    for (const std::string& fact : world.appended) h = H::combine(std::move(h), fact);
    h = H::combine(std::move(h), world.appended.size());
    for (const std::string& fact : world.absent) h = H::combine(std::move(h), fact);
    return h;
  }
};

// The fact that a process appends by a deed. Generation 0 is before the power loss, 1 after it.
std::string FactOf(Deed deed, int generation, int process);

bool IsDeletion(const std::string& fact);
bool IsReport(const std::string& fact);
bool IsCommit(const std::string& fact);

// The facts of the view's entries up to a number, in order; if `is_fenced`, without those that do not count.
std::vector<std::string> FactsOf(const JournalView& view, EntryNumber up_to, bool is_fenced);

// kNotFound unless the first process's step is committed and not deleted.
absl::Status CheckFirstCommit(const std::vector<std::string>& facts);

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_JOURNAL_EXPLORED_WORLD_H_
