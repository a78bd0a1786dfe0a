// What a store must hold after a crash, as a plain list of what was promised before says it. Shares no code with the
// store: it knows steps, contents and metrics by number and name, and nothing of files.
//
// A test says what it is about to do and what has been promised in marks, which stand in the disk's log between the
// operations ("saving 3 17", "saved 3 17"). What was begun and not promised may be there or not, each wholly.

#ifndef TIDEMARK_TESTS_CRASH_ORACLE_H_
#define TIDEMARK_TESTS_CRASH_ORACLE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tidemark/step_info.h"

namespace tidemark::crash {

// Marks. A content is a number that a test gives to what it saves; the bytes follow from step and content.
std::string Saving(int64_t step, int64_t content);
std::string Saved(int64_t step, int64_t content);
std::string Refused(int64_t step, int64_t content);  // it is not there, and never will be
std::string Deleting(int64_t step);                  // it may be deleted from now on
std::string LetGo(int64_t step);                     // it is, and so are its files
// The run goes back to a step: all behind it may be gone from now on, the highest ones first.
std::string Discarding(int64_t after);
// They are, also what was begun there and not promised. Their files may still be there.
std::string Discarded(int64_t after);
// Its only copy was damaged: it never restores again, and may count as committed until somebody reads it, but not as
// the latest step. It is not forgotten, and its files stay. Nothing is saved at it any more.
std::string Damaged(int64_t step);
std::string Reporting(int64_t step, std::string_view metric, double value);
std::string Reported(int64_t step, std::string_view metric, double value);
std::string Pinning(int64_t step, bool pin);
std::string Pinned(int64_t step, bool pin);
// A tag pins, and goes with the pin.
std::string Tagging(int64_t step, std::string_view name, bool tag);
std::string Tagged(int64_t step, std::string_view name, bool tag);
// A store has been opened: whatever its journal was before, from now on no crash alone makes it one that must be made
// anew. Says nothing of steps.
inline constexpr std::string_view kJournalIsSound = "journal-is-sound";

// The metric "loss" that is given with a save.
double LossOf(int64_t step, int64_t content);

// A step as a store that was opened again shows it.
struct SeenStep {
  int64_t step = 0;
  StepState state = StepState::kCommitted;
  Metrics metrics;
  bool pinned = false;
  std::vector<std::string> tags;
  absl::Status restored;           // what restoring the step said
  std::optional<int64_t> content;  // that was restored; nullopt: bytes that were never saved at that step
};

struct Seen {
  std::vector<SeenStep> steps;  // all that the store knows, and those that the oracle has heard of
  absl::Status found_latest;    // what LatestStep said
  int64_t latest = -1;
  absl::Status restored_latest;  // what RestoreLatest said
  int64_t restored_step = -1;    // the step that it took
  std::optional<int64_t> restored_content;
  std::set<int64_t> with_shards;  // that have one in steps/ or in quarantine/
};

// A value.
class Oracle {
 public:
  // Takes in a mark.
  void Hear(std::string_view mark);

  // The journal is lost, and so is the index that had the same, so only the shards say what was saved. Metrics, pins
  // and tags may be missing or older ones, deleted steps may be back whose files were there, and a damaged one may be
  // forgotten. All this holds until a mark says otherwise. Steps that were saved are there all the same.
  void LoseJournal();

  // What a store that shows this has broken of its promises; each begins with the invariant's name.
  std::vector<std::string> Violations(const Seen& seen) const;

  // Marks of what has been open until now and is not any more, since somebody has seen it.
  std::vector<std::string> MarksOf(const Seen& seen) const;

  // Every step that was ever begun.
  std::set<int64_t> steps() const;

 private:
  // What may be in a place; nullopt: nothing.
  using Values = std::set<std::optional<double>>;
  struct Step {
    using Contents = std::map<int64_t, std::map<std::string, Values>>;
    Contents contents;   // those that may be there, and the metrics of each
    Contents discarded;  // those that may be there only if the journal was lost
    bool may_be_absent = true;
    bool being_discarded = false;  // it was promised before
    bool damaged = false;
    bool may_be_forgotten = false;  // of a damaged one
    bool may_be_lost = false;       // of one that was deleted, where a record may be back whose files are gone
    bool was_pinned = false;
    Contents::mapped_type said;  // of each metric every value that any content ever had
    std::set<bool> pinned = {false};
    std::map<std::string, std::set<bool>> tags;  // of each name whether the step may have it, and may lack it
  };

  void HearOfDiscard(int64_t after, bool promised);
  static void HearOfTag(Step& step, const std::string& name, bool tag, bool promised);
  static void TagViolations(const Step& step, const SeenStep& seen, std::vector<std::string>& violations);
  void OrderViolations(const std::set<int64_t>& committed, std::vector<std::string>& violations) const;
  static void DamageViolations(const Step& step, const SeenStep& seen, std::vector<std::string>& violations);
  void ViolationsAt(const Step& step, const SeenStep& seen, std::vector<std::string>& violations) const;

  std::map<int64_t, Step> steps_;
};

}  // namespace tidemark::crash

#endif  // TIDEMARK_TESTS_CRASH_ORACLE_H_
