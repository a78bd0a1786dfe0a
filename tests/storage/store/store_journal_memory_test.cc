// A journal and its catalog where memory cannot be allocated, once, at any allocation that a call makes. What the
// catalog says afterwards is what the journal says, and so is what its index says at the next opening.

#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/rebuild.h"
#include "storage/store/step_changes.h"
#include "storage/store/store_journal.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_allocations.h"
#include "tests/storage/io/sanitizers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark::storage {
namespace {

constexpr StoreId kScarceStore{{5}};

class StoreJournalMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    if (kAddressSanitizer) GTEST_SKIP() << "an object of RocksDB through which an exception has passed is a leak";
    if (kThreadSanitizer) GTEST_SKIP() << "one thread runs it";
    PrepareToFailAllocations();
  }

  std::unique_ptr<StoreJournal> Open(bool holder) {
    auto journal = StoreJournal::Open(PosixFileSystem(), layout_, kScarceStore,
                                      {.holder = holder, .warn = [](std::string_view) {}});
    EXPECT_THAT(journal, IsOk());
    return journal.ok() ? *std::move(journal) : nullptr;
  }

  static absl::Status Commit(StoreJournal& journal, int64_t step) {
    StepRecord record;
    record.info.step = step;
    record.info.attempt = ToHex(AttemptId{{static_cast<uint8_t>(step)}}.bytes);
    record.info.sequence = static_cast<uint64_t>(step);
    return journal.Change([&](const StepCatalog& catalog) {
      return CommitFacts(catalog, record, nullptr, [](std::string_view) {});
    });
  }

  static absl::Status Pin(StoreJournal& journal, int64_t step, std::string_view note) {
    return journal.Change([&](const StepCatalog& catalog) { return PinFacts(catalog, step, note, std::nullopt); });
  }

  // Compares with a catalog that is read from the whole journal.
  bool SaysWhatTheJournalSays(StoreJournal& journal) {
    const absl::StatusOr<bool> same = SaysTheSame(journal.catalog(), Open(/*holder=*/false)->catalog());
    EXPECT_THAT(same, IsOk());
    return same.ok() && *same;
  }

  // Another process appends a note on step 1, and `act` is called with a journal, and with the note. Its n-th
  // allocation fails, for one n in eight; what it then returns is given to `check`.
  void FailEachAllocation(bool holder,
                          const std::function<absl::Status(StoreJournal&, const std::string& note)>& act,
                          const std::function<void(const absl::Status&, const std::string& note)>& check) {
    const auto stride = static_cast<int64_t>(OneOf(8, 8));
    const uint32_t seed = SeedOfCases();
    int64_t allowed = seed % stride;
    std::unique_ptr<StoreJournal> other = Open(/*holder=*/true);
    for (const int64_t step : {1, 2, 3}) ASSERT_THAT(Commit(*other, step), IsOk());
    if (holder) other.reset();
    for (bool failed = true; failed && !HasFailure(); allowed += stride) {
      SCOPED_TRACE(fmt::format("seed {}, after {} allocations", seed, allowed));
      // The index is that of the round before.
      const std::unique_ptr<StoreJournal> journal = Open(holder);
      EXPECT_TRUE(SaysWhatTheJournalSays(*journal));
      const std::string note = fmt::format("a note of round {} that needs memory of its own", allowed);
      ASSERT_THAT(Pin(other == nullptr ? *Open(/*holder=*/false) : *other, 1, note), IsOk());
      absl::Status status;
      allocations_until_failure = allowed;
      try {
        status = act(*journal, note);
      } catch (const std::bad_alloc&) {
        status = absl::Status(absl::StatusCode::kResourceExhausted, "");
      }
      failed = std::exchange(allocations_until_failure, INT64_MAX) < 0;
      check(status, note);
      // A change of its own does not jump over what the catalog lacks.
      EXPECT_THAT(Pin(*journal, 2, note), IsOk());
      EXPECT_TRUE(SaysWhatTheJournalSays(*journal));
    }
    EXPECT_GT(allowed, 100);
  }

  const TestDirectory directory_ = TestDirectory::InMemory();
  const StoreLayout layout_{directory_.path()};
};

absl::Status LookFor(StoreJournal& journal, const std::string&) { return journal.Look().status(); }

TEST_F(StoreJournalMemoryTest, ALookOfTheHolderLosesNothing) {
  FailEachAllocation(/*holder=*/true, LookFor, [](const absl::Status&, const std::string&) {});
}

TEST_F(StoreJournalMemoryTest, ALookOfAToolLosesNothing) {
  FailEachAllocation(/*holder=*/false, LookFor, [](const absl::Status&, const std::string&) {});
}

TEST_F(StoreJournalMemoryTest, AChangeThatIsThereHasNotFailed) {
  FailEachAllocation(
      /*holder=*/true, [](StoreJournal& journal, const std::string& note) { return Pin(journal, 3, note); },
      [this](const absl::Status& status, const std::string& note) {
        const auto record = Open(/*holder=*/false)->catalog().Find(3);
        ASSERT_THAT(record, IsOk());
        const bool is_there = (*record)->info.pin_note == note;
        EXPECT_TRUE(absl::IsUnknown(status) || is_there == status.ok()) << status;
      });
}

}  // namespace
}  // namespace tidemark::storage
