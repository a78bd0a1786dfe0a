// A step that was deleted, its files with it, as retention does.

#ifndef TIDEMARK_TESTS_SNAPSHOT_STEP_DELETION_H_
#define TIDEMARK_TESTS_SNAPSHOT_STEP_DELETION_H_

#include <string>

#include "gtest/gtest.h"
#include "storage/store/store.h"
#include "tests/storage/io/status_matchers.h"
#include "tidemark/step_info.h"

namespace tidemark {

// Precondition: nobody holds the store.
inline void DeleteStep(const std::string& directory, const StepInfo& info) {
  auto store = storage::Store::Open(storage::PosixFileSystem(),
                                    {.directory = directory, .warn = [](std::string_view) {}, .read = {}});
  ASSERT_THAT(store, storage::IsOk());
  ASSERT_THAT((*store)->NoteSteps({{.step = info.step, .attempt = info.attempt, .deleted = true, .reason = "too old"}}),
              storage::IsOk());
  ASSERT_THAT((*store)->RemoveDeleted({}), storage::IsOk());
}

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_STEP_DELETION_H_
