// One process's way of appending to a journal that others may append to at the same time, as a state machine.
//
// An append takes these steps. The caller carries out each step and reports its result:
//   kWrite  write file() to a file that has no number yet, and sync it; then open the journal's folder
//   kName   give the file the number by a call that fails if the name exists
//   kRead   list the journal past all caches, and read the files from view.established() + 1 on
//   kSync   sync the folder through the descriptor that was opened before the naming
// The steps follow these rules. A test shows that each rule is needed:
// - An entry carries what its writer has read and does not know to be durable. So an entry that is durable brings with
//   it all that it was checked against, and a number that a power loss took is explained by a later entry.
// - After the naming the journal is read again. It tells whether the number is ours whatever the call answered, and
//   whether it had been taken, lost and carried by an entry that this process had not seen. If it is not ours, the fact
//   is checked against what was read, and the next number is tried.
// - Only a sync that works acknowledges. The descriptor is opened before the naming, because the kernel reports a
//   failed write-back once, to those descriptors that were open.
// - A failed sync voids nothing, because others may have read the entry. An entry without facts follows, which carries
//   it: it settles the entry. Settling ends with a sync that works, or when the caller answers kWrite with an error.
//
// Pure: no I/O, no clock, no thread.

#ifndef TIDEMARK_STORAGE_JOURNAL_APPENDER_H_
#define TIDEMARK_STORAGE_JOURNAL_APPENDER_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "storage/journal/entry.h"
#include "storage/journal/journal_view.h"

namespace tidemark::storage {

// What is to be appended.
struct AppendDraft {
  enum class Kind {
    kAnybody,      // counts always
    kHolder,       // counts in `epoch` only; refused with kAborted once a newer one has begun
    kBeginsEpoch,  // begins the epoch after the newest one, or `epoch`, whichever is higher
    kSettles,      // no facts: makes durable what the view knows
  };
  Kind kind = Kind::kAnybody;
  EntryId id;  // random
  uint64_t epoch = 0;
  std::vector<std::string> facts;

  friend bool operator==(const AppendDraft&, const AppendDraft&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const AppendDraft& draft) {
    return H::combine(std::move(h), draft.kind, draft.id.bytes, draft.epoch, draft.facts);
  }
};

// Value type: a test that explores what processes can do copies and compares it. Thread-compatible.
class Appender {
 public:
  enum class Step { kNone, kWrite, kName, kRead, kSync };

  enum class Result {
    kPending,
    kEstablished,  // the entry is durable, at place()
    kRefused,      // nothing was appended: status() is what the check, or the fence, said
    kFailed,       // nothing was appended: status() is the error of a step
    kUnknown,      // the entry may be named; status() is why it is not known to be durable; the next append settles it
  };

  // What must hold of everything before the entry for the fact to make sense. Asked again for each number that is
  // tried. Its error refuses the append.
  using FactCheck = absl::FunctionRef<absl::Status(const JournalView&)>;

  explicit Appender(JournalView view = {}) : view_(std::move(view)) {}

  const JournalView& view() const { return view_; }
  // For what is learned between appends, or from a segment that a reading finds. Precondition: step() is kNone or
  // kRead.
  JournalView& view() { return view_; }

  // Precondition: step() is kNone. The first step, or none if the append is refused.
  Step Begin(AppendDraft draft, FactCheck check);

  Step step() const { return step_; }
  const std::string& file() const { return file_; }     // of kWrite
  EntryNumber number() const { return entry_.number; }  // of kName

  // The answers, each to its step. The next step, or kNone where result() tells the outcome.
  Step Written(const absl::Status& status);
  Step Named(const absl::Status& status);
  // As JournalView::Learn takes them.
  Step Read(const absl::StatusOr<std::vector<std::optional<std::string>>>& files, FactCheck check);
  Step Synced(const absl::Status& status, FactCheck check);

  Result result() const { return result_; }
  const absl::Status& status() const { return status_; }
  // Of the draft's entry, once it is established.
  const JournalPlace& place() const { return place_; }

  friend bool operator==(const Appender&, const Appender&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Appender& appender) {
    return H::combine(std::move(h), appender.view_, appender.draft_, appender.settlings_, appender.entry_,
                      appender.file_, appender.named_.raw_code(), appender.step_, appender.result_,
                      appender.status_.raw_code(), appender.place_);
  }

 private:
  Step Try(FactCheck check);
  // Whether the draft's entry, or what settles it, is durable by what the view knows.
  bool IsSettled();
  Step End(Result result, absl::Status status = absl::OkStatus());
  bool IsNamed() const { return view_.Find(draft_.id) != nullptr; }

  JournalView view_;
  AppendDraft draft_;
  uint64_t settlings_ = 0;  // entries that were written to settle the draft's
  JournalEntry entry_;      // of the present try: the draft's, or one that settles it
  std::string file_;
  absl::Status named_;  // what the naming of entry_ answered
  Step step_ = Step::kNone;
  Result result_ = Result::kPending;
  absl::Status status_;
  JournalPlace place_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_JOURNAL_APPENDER_H_
