// A store's journal on the disk: reads what is new, and appends. Several processes, and several handles in one process,
// may do both at the same time.
//
// What a reader learns of an entry: it is *visible* once it is there, and *established* once it is known to survive
// power loss. What is only visible may be shown. Nothing that lasts may follow from it, except an entry that carries
// it.

#ifndef TIDEMARK_STORAGE_JOURNAL_JOURNAL_H_
#define TIDEMARK_STORAGE_JOURNAL_JOURNAL_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "storage/io/file_system.h"
#include "storage/journal/appender.h"
#include "storage/journal/entry.h"
#include "storage/journal/journal_files.h"
#include "storage/journal/journal_spares.h"
#include "storage/journal/journal_view.h"

namespace tidemark::storage {

struct JournalOptions {
  bool create = false;  // makes the folder if there is none
  // This handle is the holder's: it keeps spare files and packs segments (Maintain).
  // What it misses it looks for past the caches of a file server (LookPastCaches).
  bool holds = false;
};

// How an append ended.
struct Appended {
  // Never kPending. With kUnknown the entry may be there, and later entries carry it: a later append or Settle that
  // ends with kEstablished tells, since Look then visits the entry of this id or not.
  Appender::Result result = Appender::Result::kFailed;
  // Ok for kEstablished. For kRefused: what the check said, or kAborted if a newer epoch has begun. Else the error.
  absl::Status status;
  EntryId id;          // of the entry
  JournalPlace place;  // of the entry, if it is established

  bool ok() const { return result == Appender::Result::kEstablished; }
};

// Thread-safe; a call waits for the one before it to end, an append for its syncs.
class Journal {
 public:
  // Opens the folder `directory`. `from`: the last entry that the caller has applied, which is established; or
  // JournalPlace(), the beginning. `files` is not owned. Errors: those of FileSystem, and
  // - kNotFound: there is no such folder, and it was not to be made.
  // - kOutOfRange: the journal does not have the entry `from`, or has another one in its place. What was applied is of
  //   another journal, or ahead of this one: drop it, and open from the beginning.
  // - kDataLoss: the entry is damaged, so that it cannot be told.
  // - kUnimplemented: an entry was written by a newer version.
  static absl::StatusOr<std::unique_ptr<Journal>> Open(FileSystem& files, std::string directory,
                                                       const JournalPlace& from, const JournalOptions& options = {});

  // `is_established`: the entry survives power loss, and will never be another one. Runs on the caller's thread, and
  // must not call the journal.
  using Visit = absl::FunctionRef<void(const KnownEntry& entry, bool is_established)>;

  // Reads what is new. Visits, in order: each entry that is established and was not visited as such before, once; then
  // those that are only visible, in every call until they are established, since they may turn out to be other ones.
  // Costs one open of a name that is not there if nothing is new. Memory: the entries of one part of the journal (a
  // segment at most), and those that are only visible. Errors: those of FileSystem, and
  // - kDataLoss: an entry is missing or damaged, and no later one carries it. The message names it. What was visited
  //   before it stands.
  // - kUnimplemented: an entry was written by a newer version.
  absl::Status Look(Visit visit);

  // Which room of a full disk an append may take.
  enum class Room {
    kAny,      // a spare file as long as there are more than a few; then the disk's
    kReserve,  // the last spare files too: for entries that free room
  };

  // Appends an entry. On a full disk it is kFailed with kResourceExhausted, unless the holder's handle has a spare file
  // for it, which takes 4,096 bytes. `draft.id` is a random one, or zeros: then one is drawn. `check` says whether the
  // facts make sense after everything before the entry: what Look has visited as established, and view.entries() after
  // that. It runs on the caller's thread, once for each number that is tried, and must not call the journal. Look
  // first: entries that were not visited stay in memory. After kUnknown the next append, whatever it is, carries the
  // entry.
  Appended Append(AppendDraft draft, Appender::FactCheck check, Room room = Room::kAny);

  // Makes established what is visible, by an entry without facts. Does nothing if everything visible is established.
  Appended Settle();

  // Gets ready for the next appends: makes spare files (4 at first, then two in each call, up to 16) and the next
  // folder; packs a segment whose entries are all established. To be called after each append, on a thread that
  // may be slow: it syncs files, and packing takes 0.2 to 3 s. Appends go on beside it. Does nothing unless the
  // handle is the holder's and has looked or appended. An error is that of the first step that failed, and loses
  // nothing.
  absl::Status Maintain() ABSL_LOCKS_EXCLUDED(mutex_, maintenance_);

  // Whether another folder is in the place of the one that was opened: the journal was made anew. kNotFound: there is
  // none. Appends fail with kFailedPrecondition then.
  absl::StatusOr<bool> IsReplaced() const ABSL_LOCKS_EXCLUDED(mutex_);

  // All entries up to `place` survive power loss, as another handle has found out. Ignored unless a look has seen that
  // entry; the next look then visits them as established.
  void LearnEstablished(const JournalPlace& place) ABSL_LOCKS_EXCLUDED(mutex_);

  // From now on no old listing of a file server is believed where an entry is missing. To look past it a file is made
  // and removed, so this is for who appends.
  void LookPastCaches() ABSL_LOCKS_EXCLUDED(mutex_);
  // The next Look finds all that others have appended by now. Best effort, as storage/io/fresh_look.h.
  void LookAfresh() ABSL_LOCKS_EXCLUDED(mutex_);

  // What is known from the last call.
  JournalPlace last() const;

 private:
  Journal(FileSystem& files, std::string directory, std::unique_ptr<Directory> opened, const FileId& folder,
          const JournalPlace& from, bool holds);

  absl::StatusOr<bool> IsInAnotherFolder() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckPlace() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // After an exception: forgets what may have been learned in part. The next call reads it again.
  void ForgetVisible() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  absl::Status ReadNew(absl::FunctionRef<void()> learned) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Appended AppendLocked(AppendDraft draft, Appender::FactCheck check, Room room) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::string> WriteEntry(EntryNumber number, const std::string& bytes, Room room)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status MakeSpares() ABSL_EXCLUSIVE_LOCKS_REQUIRED(maintenance_) ABSL_LOCKS_EXCLUDED(mutex_);
  absl::Status PackNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(maintenance_) ABSL_LOCKS_EXCLUDED(mutex_);
  // Every file after what is established, past caches.
  absl::StatusOr<std::vector<std::optional<std::string>>> ReadAfterNaming(EntryNumber number)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Drive(const AppendDraft& draft, Appender::FactCheck check, Room room) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::unique_ptr<Directory> opened_;  // so that no other folder gets the identity of this one
  const FileId folder_;                      // the journal's, as it was opened
  const bool holds_;

  absl::Mutex maintenance_ ABSL_ACQUIRED_BEFORE(mutex_);
  EntryNumber packed_ ABSL_GUARDED_BY(maintenance_) = 0;  // all entries up to it are in segments
  EntryNumber packing_failed_at_ ABSL_GUARDED_BY(maintenance_) = 0;

  mutable absl::Mutex mutex_;
  JournalFiles files_ ABSL_GUARDED_BY(mutex_);
  Appender appender_ ABSL_GUARDED_BY(mutex_);
  bool has_listed_ ABSL_GUARDED_BY(mutex_) = false;  // the whole journal, once
  JournalSpares spares_ ABSL_GUARDED_BY(mutex_);
  bool has_found_left_ ABSL_GUARDED_BY(mutex_) = false;  // the spares of the holder before
  EntryNumber visited_ ABSL_GUARDED_BY(mutex_);          // as established, up to this one
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_JOURNAL_JOURNAL_H_
