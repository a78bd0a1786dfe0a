#include "storage/io/lock_note.h"

#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {
namespace {

TEST(LockNote, IsOnePrintableLine) {
  EXPECT_EQ(PrintableNote("{\"host\":\"n\xc3\xb6rd\"}\n"), "{\"host\":\"n\xc3\xb6rd\"}");
  EXPECT_EQ(PrintableNote("\x1b[31m\n\xff\n"), "\\x1b[31m\\n\\xff");
  EXPECT_EQ(PrintableNote(""), "");
}

TEST(LockNote, IsCutWhereItIsTooLong) {
  EXPECT_EQ(PrintableNote(std::string(kNoteBytesMax, 'x') + "y"), std::string(kNoteBytesMax, 'x'));
}

TEST(LockNote, SaysWhoHoldsTheLock) {
  EXPECT_THAT(LockIsHeld("/s/LOCK", "process 17\n"),
              StatusIs(absl::StatusCode::kUnavailable, "lock /s/LOCK: held by process 17"));
  EXPECT_THAT(LockIsHeld("/s/LOCK", "\n"),
              StatusIs(absl::StatusCode::kUnavailable, "lock /s/LOCK: held by a process that wrote no note"));
}

}  // namespace
}  // namespace tidemark::storage
