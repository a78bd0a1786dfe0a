// What may happen to a store while a crash comes.

#ifndef TIDEMARK_TESTS_CRASH_SCENARIOS_H_
#define TIDEMARK_TESTS_CRASH_SCENARIOS_H_

#include <cstdint>

#include "tests/crash/enumeration.h"

namespace tidemark::crash {

Scenario OpenEmpty();               // an empty directory becomes a store, and gets its first step
Scenario SaveSteps();               // steps that share chunks
Scenario CrossFolders();            // the same, where the journal goes on in its next folder
Scenario Overwrite();               // of steps, also one that another refers to; over the file of a replaced one
Scenario ReportMetrics();           // by the trainer and by workers
Scenario PinSteps();                // and tag them, move a tag, unpin them, and overwrite a pinned one
Scenario AskAsTool();               // pins, unpins and deletions of a tool, before and behind others of the same step
Scenario Retain();                  // retention deletes steps, with and without others that refer to them
Scenario RetainLeased();            // steps that an evaluator holds outlive their time, and go when it is done
Scenario RetainOnAFullDisk();       // deletions that need no room make some
Scenario RebuildWithTheIndex();     // the journal has lost its end, and the index has it
Scenario RebuildWithoutJournal();   // the journal is gone, and the index knows all of it
Scenario RebuildFromShards();       // neither can be read
Scenario Sweep();                   // a kill has left attempts that are complete, incomplete and damaged
Scenario Repair();                  // of a store with damaged steps, leftovers, and a journal that cannot be read
Scenario SaveOnAFailingDisk();      // attempts that are given up, and commits that end in kUnknown
Scenario DeleteAfterFailedSaves();  // of the steps at which they were, or of their pins
Scenario GoBack();                  // a run discards steps, committed ones and unfinished ones, and saves them anew
Scenario LiveAtRandom(uint64_t seed);  // some of all this, in any order
Scenario CloseAndReopen();             // in good order

// All of these. `seed`: of what is drawn.
using MakeScenario = Scenario (*)(uint64_t seed);
template <Scenario (*kMake)()>
Scenario WithoutSeed(uint64_t) {
  return kMake();
}
inline constexpr MakeScenario kScenarios[] = {
    WithoutSeed<OpenEmpty>,
    WithoutSeed<SaveSteps>,
    WithoutSeed<CrossFolders>,
    WithoutSeed<Overwrite>,
    WithoutSeed<ReportMetrics>,
    WithoutSeed<PinSteps>,
    WithoutSeed<AskAsTool>,
    WithoutSeed<Retain>,
    WithoutSeed<RetainLeased>,
    WithoutSeed<RetainOnAFullDisk>,
    WithoutSeed<RebuildWithTheIndex>,
    WithoutSeed<RebuildWithoutJournal>,
    WithoutSeed<RebuildFromShards>,
    WithoutSeed<Sweep>,
    WithoutSeed<Repair>,
    WithoutSeed<SaveOnAFailingDisk>,
    WithoutSeed<DeleteAfterFailedSaves>,
    WithoutSeed<GoBack>,
    LiveAtRandom,
    WithoutSeed<CloseAndReopen>,
};

}  // namespace tidemark::crash

#endif  // TIDEMARK_TESTS_CRASH_SCENARIOS_H_
