// What may happen to a store while a crash comes.

#ifndef TIDEMARK_TESTS_CRASH_SCENARIOS_H_
#define TIDEMARK_TESTS_CRASH_SCENARIOS_H_

#include <cstdint>

#include "tests/crash/enumeration.h"

namespace tidemark::crash {

Scenario OpenEmpty();                  // an empty directory becomes a store, and gets its first step
Scenario SaveSteps();                  // steps that share chunks
Scenario Overwrite();                  // of steps, one of which another one refers to; over the file of a replaced one
Scenario ReportMetrics();              // by the trainer and by workers
Scenario PinSteps();                   // and tag them, move a tag, let go of them, and overwrite a pinned one
Scenario AskByInbox();                 // to pin, unpin and delete, each before and behind others of the same step
Scenario Retain();                     // retention deletes steps, with and without others that refer to them
Scenario RetainLeased();               // steps that an evaluator holds outlive their time, and go when it is done
Scenario RebuildMissing();             // the manifest is gone
Scenario RebuildDamaged();             // the manifest cannot be read
Scenario Recover();                    // a kill has left attempts that are complete, incomplete and damaged
Scenario Repair();                     // of a store with damaged steps, leftovers, and a manifest that cannot be read
Scenario SaveOnAFailingDisk();         // attempts that are given up, and commits of which nobody knows what became
Scenario DeleteAfterFailedSaves();     // of the steps at which they were, or of their pins
Scenario GoBack();                     // a run discards steps, committed ones and unfinished ones, and saves them anew
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
    WithoutSeed<Overwrite>,
    WithoutSeed<ReportMetrics>,
    WithoutSeed<PinSteps>,
    WithoutSeed<AskByInbox>,
    WithoutSeed<Retain>,
    WithoutSeed<RetainLeased>,
    WithoutSeed<RebuildMissing>,
    WithoutSeed<RebuildDamaged>,
    WithoutSeed<Recover>,
    WithoutSeed<Repair>,
    WithoutSeed<SaveOnAFailingDisk>,
    WithoutSeed<DeleteAfterFailedSaves>,
    WithoutSeed<GoBack>,
    LiveAtRandom,
    WithoutSeed<CloseAndReopen>,
};

}  // namespace tidemark::crash

#endif  // TIDEMARK_TESTS_CRASH_SCENARIOS_H_
