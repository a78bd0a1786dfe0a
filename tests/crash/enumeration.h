// Crash states of whole stores. What is here:
//
//   scenarios.h        what a run, its workers and its tools do to a store (open, save, overwrite, report, pin, delete,
//                      rebuild, repair, close), by production code, on a simulated disk
//   stage.h            the operations that scenarios are made of; they write down what has been promised
//   oracle.h           what a store must hold, from these promises alone
//   reopening.h        production code opens what a crash has left; held against the oracle
//   enumeration.h      the states: every crash of a scenario, and what more may befall the store then
//   failing_disk.h     a disk on which operations fail
//   disordered_disk.h  a disk on which an operation is left out, comes too late or is taken for done: the enumeration
//                      must notice
//
// A crash has a name, "41-38-40:ff": before operation 41, without 38, and without the sectors ff of the write 40.
// "41!" is one after which the index is lost as well (crash_names.h has the other fates of an index), and "41/17-16"
// one before operation 41 and another one of what production code did to the disk then. The environment:
//
//   TIDEMARK_CRASH_SEED    which states are looked at where there are too many; else always the same, so that a
//                          change fails by what it changes. long.sh takes any
//   TIDEMARK_CRASH_STATES  how many of each scenario; else as many as the suite has time for
//   TIDEMARK_CRASH         this crash alone; with --gtest_filter for its scenario and, for a random one, the seed
//
// A log has the same operations in the same order every time; only the ids and times in them differ. That takes options
// with which one thread does what several could do at once (SmallOptions), waiting for what is done in the background
// (Stage), and compactions that are held until a store is open (OpenOrderly).

#ifndef TIDEMARK_TESTS_CRASH_ENUMERATION_H_
#define TIDEMARK_TESTS_CRASH_ENUMERATION_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/crash/oracle.h"
#include "tests/crash/stage.h"
#include "tests/storage/io/crash_states.h"
#include "tests/storage/io/simulated_disk.h"

namespace tidemark::crash {

struct Scenario {
  std::string name;
  // Whether there is a journal that can be read, or none was made yet: no crash alone makes it one that must be made
  // anew. False: not before the mark kJournalIsSound.
  bool journal_is_sound = true;
  // Until that mark nothing but the shards can say what was done before.
  bool facts_are_lost = false;
  std::function<void(Stage&)> prepare;               // what was there before; null: an empty disk
  std::function<void(storage::FileSystem&)> damage;  // and what befell it then; null: nothing
  std::function<void(Stage&)> drive;                 // of this every crash is looked at
};

// A scenario as it was played.
struct Recording {
  bool journal_is_sound = true;
  bool facts_are_lost = false;
  Oracle before;
  storage::DiskLog log;
};

// Puts another file system in front of the disk that a scenario is driven on.
using Disorder = std::function<std::unique_ptr<storage::FileSystem>(storage::FileSystem& disk)>;

Recording Play(const Scenario& scenario, const Disorder& disorder = nullptr);

// A state in which a promise is broken.
struct Finding {
  std::string crash;        // its name
  std::string description;  // its operations, and what was promised before
  std::vector<std::string> violations;
  std::vector<std::string> warnings;
  storage::DiskImage image;
};

struct EnumerationOptions {
  uint64_t seed = 0;
  size_t states = 0;            // at most so many
  size_t findings = 3;          // stops at so many
  bool further = true;          // what more may befall a store after the crash: another index, another crash
  Disorder disorder = nullptr;  // in front of the disk on which a store is opened after a crash
  // Findings for which it is false are no findings. Null: all are.
  std::function<bool(const Finding&)> counts = nullptr;
  std::function<void(size_t looked_at)> progress = nullptr;
};

// How many distinct states were looked at, and what was found.
struct Enumeration {
  size_t possible = 0;   // after one crash, with the samples that were drawn
  size_t crashed = 0;    // of these
  size_t indexed = 0;    // of these, with another fate of the index
  size_t recovered = 0;  // after another crash, of the reopening
  // The last reopening looked at had no other crash to be drawn: of a scenario of few operations there are only so
  // many.
  bool exhausted = false;
  std::vector<Finding> findings;

  size_t states() const { return crashed + indexed + recovered; }
};

// Looks at the states that crashes of the scenario could leave, and at what may befall these: for some another fate of
// the index, for each the same number of crashes of the reopening. Half of `states` or more are of these. Where
// there are too many of the first: at every prefix those without loss and those with all of it, and of the others the
// same number; where there are more prefixes than that, at as many of them, in the same distances.
Enumeration Enumerate(const Recording& recording, const EnumerationOptions& options);

// Looks at the one state that a crash of that name leaves. What it finds is in `findings`. `disorder`: as it was when
// the crash got its name.
Enumeration Reenact(const Recording& recording, std::string_view crash, const Disorder& disorder = nullptr);

// Fails the test with all that is needed to look into the finding, whose disk is left in a directory that stays.
void Report(const Finding& finding, std::string_view scenario, uint64_t seed);

// The variable TIDEMARK_CRASH_SEED, or 1.
uint64_t CrashSeed();

}  // namespace tidemark::crash

#endif  // TIDEMARK_TESTS_CRASH_ENUMERATION_H_
