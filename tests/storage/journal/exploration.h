// Explores what several processes can do to a journal: every interleaving of their steps, with syncs that fail, power
// losses, old listings and calls that deny their own success. The processes run the code that appends and reads
// (Appender, JournalView); the disk is a model.
//
// The model of the disk. A name in the journal's folder is in one of three states: visible; visible after a sync that
// failed, which is uncertain for good; durable. A sync that works makes durable what is visible and certain. A failed
// sync is reported once to each descriptor that was open. Power loss removes any subset of the names that are not
// durable, and ends all processes; others start afterwards. A process that dies needs no event of its own: it is one
// that takes no further step.

#ifndef TIDEMARK_TESTS_STORAGE_JOURNAL_EXPLORATION_H_
#define TIDEMARK_TESTS_STORAGE_JOURNAL_EXPLORATION_H_

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tests/storage/search.h"

namespace tidemark::storage {

// A process is the list of what it does.
enum class Deed {
  kBeginEpoch,
  kCommit,  // a step of its own
  kDelete,  // the first process's step, if that is committed
  kReport,  // on the first process's step, if that is committed and not deleted
  kTell,    // reads the journal; tells of each commit whether it is there, and settles what is not durable
};

// A rule that the exploration breaks, to show that it is needed.
enum class LeftOut {
  kNothing,
  kCarry,              // entries carry nothing, and state that everything before them is durable
  kEpochCarries,       // the same for those that begin an epoch
  kDescriptorFirst,    // the folder is opened after the naming
  kExclusiveName,      // a name that exists is replaced
  kOwnId,              // a process does not know its own entry again if the naming said that the name exists
  kCheckAgain,         // the fact is checked for the first number only
  kReadAgain,          // the reading after the naming ends with the number that was named
  kFence,              // a holder goes on although a newer epoch has begun, and its entries count
  kAcknowledgeSynced,  // an append ends before its sync
  kTellEstablished,    // a reader tells what it sees
};
std::ostream& operator<<(std::ostream& out, LeftOut rule);

struct Exploration {
  std::vector<std::vector<Deed>> processes;
  std::vector<std::vector<Deed>> after_power_loss;  // who starts then
  int failed_syncs = 1;                             // at most
  int power_losses = 1;
  int old_listings = 0;
  int denials = 1;  // namings that worked and answer that the name exists
  LeftOut left_out = LeftOut::kNothing;
  size_t states_max = 1'000'000;  // the exploration ends there
  uint32_t seed = 1;              // of the order in which states are explored; of all states it changes nothing
};

// Ends at the first violation of:
// - what was told to be committed or appended counts in every later reading of the journal, whatever is lost with the
//   power;
// - what was told not to be never counts;
// - a report counts only where the step that it is on is committed before it, and not deleted between them;
// - every reading is whole.
Explored Explore(const Exploration& exploration);

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_JOURNAL_EXPLORATION_H_
