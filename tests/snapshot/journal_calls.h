// The calls of a file system by which a journal grows, and what a test does to a journal.

#ifndef TIDEMARK_TESTS_SNAPSHOT_JOURNAL_CALLS_H_
#define TIDEMARK_TESTS_SNAPSHOT_JOURNAL_CALLS_H_

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "tests/storage/io/failing_file_system.h"

namespace tidemark {

inline bool IsInJournal(const std::string& path) { return path.find("/journal/") != std::string::npos; }

// An entry gets its number. Each append ends with one of these and the sync of the folder; where another process has
// taken the number, or the sync fails, there are several.
inline bool IsNamingOfEntry(const std::string& operation, const std::string& path) {
  return operation == "RenameToNew" && IsInJournal(path);
}

// The name of an entry becomes durable: that of the lowest folder, as "journal/0000/00".
inline bool IsSyncOfEntry(const std::string& operation, const std::string& path) {
  constexpr size_t kLowestFolder = std::string_view("/journal/0000/00").size();
  return operation == "SyncDirectory" && IsInJournal(path) && path.size() - path.rfind("/journal/") == kLowestFolder;
}

// For FailingFileSystem::SetRule: there is no room for the names of entries, except those that commit a step. The
// thread that commits a step is the one that has made the step's folder.
inline storage::FailingFileSystem::Rule NoRoomForEntries() {
  return [saver = std::thread::id()](const storage::FailingFileSystem::Call& call) mutable {
    const std::thread::id caller = std::this_thread::get_id();
    if (call.operation == "CreateDirectory" && call.path.find("/steps/") != std::string::npos) saver = caller;
    return caller != saver && IsNamingOfEntry(call.operation, call.path)
               ? absl::ResourceExhaustedError("rename to " + call.path + ": No space left on device (ENOSPC)")
               : absl::OkStatus();
  };
}

// No process may hold the store. The shards are left then.
inline void LoseJournalAndIndex(const std::string& store) {
  std::filesystem::remove_all(store + "/journal");
  std::filesystem::remove_all(store + "/index");
}

// The first entry is not readable any more. With a short file the damage has no doubt: no later entry carries it.
inline void DamageJournal(const std::string& store) {
  std::ofstream(store + "/journal/0000/00/0000000001") << "garbage";
}

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_JOURNAL_CALLS_H_
