// A store under every single fault of its disk: what it acknowledges is there afterwards, what it refuses
// is not, or it says that it does not know; and the next change works.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/fault_sweep.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/store/store_testing.h"

namespace tidemark::storage {
namespace {

class StoreFaultsTest : public testing::Test {
 protected:
  // A store with steps 1 (pinned), 2 and 3, in a directory of its own.
  void Prepare() {
    store_.reset();
    path_ = fmt::format("/store-{}", ++stores_);
    store_ = *OpenStore(path_, &warnings_, files_);
    SaveStep(*store_, 1, 100, files_);
    SaveStep(*store_, 2, 200, files_);
    SaveStep(*store_, 3, 300, files_);
    ASSERT_THAT(store_->Pin(1, "kept"), IsOk());
  }

  // On a healthy disk again: the same process goes on, and the next one finds what was acknowledged.
  void CheckSound(const absl::Status& status, const InjectedFault& fault) {
    if (!status.ok()) {
      EXPECT_TRUE(fault.IsNamedIn(status)) << status;
    }
    goes_on_ = store_ != nullptr;
    if (goes_on_) {
      EXPECT_THAT(TrySave(*store_, 9, 900, files_), IsOk());
      EXPECT_THAT(ReadValue(*store_, 9, files_), IsOkAndHolds(900));
      store_.reset();
    }
    auto reopened = OpenStore(path_, &warnings_, files_);
    ASSERT_THAT(reopened, IsOk());
    const bool went_on = store_ == nullptr && goes_on_;
    store_ = *std::move(reopened);
    EXPECT_THAT(ReadValue(*store_, 3, files_), IsOkAndHolds(300));
    if (went_on) {
      EXPECT_THAT(ReadValue(*store_, 9, files_), IsOkAndHolds(900));
    }
    EXPECT_THAT(ReadValue(*store_, 1, files_), IsOkAndHolds(100));
    EXPECT_TRUE(unpins_ || store_->catalog().Find(1)->value().info.pinned);
    EXPECT_THAT(store_->SweepUncommitted(), IsOk());
  }

  FaultFigures Sweep(std::string name, std::function<absl::Status()> act,
                     std::function<void(const absl::Status&, const InjectedFault&)> check) {
    return SweepFaults(files_,
                       {.name = std::move(name),
                        .prepare = [this] { Prepare(); },
                        .act = std::move(act),
                        .check =
                            [&](const absl::Status& status, const InjectedFault& fault) {
                              CheckSound(status, fault);
                              if (store_ != nullptr) check(status, fault);
                              store_.reset();
                            }},
                       FaultsToRun(4));
  }

  SimulatedDisk disk_;
  FailingFileSystem files_{disk_};
  int stores_ = 0;
  std::string path_;
  std::vector<std::string> warnings_;
  std::unique_ptr<Store> store_;
  bool unpins_ = false;   // step 1 may lose its pin
  bool goes_on_ = false;  // the process that met the fault has saved step 9 since
};

TEST_F(StoreFaultsTest, ASaveIsCommittedOrItIsNot) {
  const FaultFigures figures = Sweep(
      "a save", [this] { return TrySave(*store_, 4, 400, files_); },
      [this](const absl::Status& status, const InjectedFault&) {
        const absl::StatusOr<int64_t> value = ReadValue(*store_, 4, files_);
        if (status.ok() || value.ok()) {
          EXPECT_THAT(value, IsOkAndHolds(400));
        }
        EXPECT_THAT(ReadValue(*store_, 2, files_), IsOkAndHolds(200));
      });
  EXPECT_TRUE(figures.any_reported());
}

TEST_F(StoreFaultsTest, AnOverwriteLeavesTheOldContentsOrTheNew) {
  const FaultFigures figures = Sweep(
      "an overwrite",
      [this] {
        const absl::Status status = TrySave(*store_, 2, 201, files_);
        return status.ok() ? store_->RemoveDeleted({}).status() : status;
      },
      [this](const absl::Status& status, const InjectedFault&) {
        const absl::StatusOr<int64_t> value = ReadValue(*store_, 2, files_);
        EXPECT_THAT(value, testing::AnyOf(IsOkAndHolds(200), IsOkAndHolds(201)));
        if (status.ok()) {
          EXPECT_THAT(value, IsOkAndHolds(201));
        }
      });
  EXPECT_TRUE(figures.any_reported());
}

TEST_F(StoreFaultsTest, ADeletionHappensOrItDoesNot) {
  const FaultFigures figures = Sweep(
      "a deletion",
      [this] {
        const StepInfo info = store_->catalog().Find(2)->value().info;
        const auto noted =
            store_->NoteSteps({{.step = 2, .attempt = info.attempt, .deleted = true, .reason = "a rule's"}});
        return noted.ok() ? store_->RemoveDeleted({}).status() : noted.status();
      },
      [this](const absl::Status& status, const InjectedFault&) {
        const StepState state = store_->catalog().Find(2)->value().info.state;
        if (status.ok()) {
          EXPECT_EQ(state, StepState::kDeleted);
        }
        if (state == StepState::kCommitted) {
          EXPECT_THAT(ReadValue(*store_, 2, files_), IsOkAndHolds(200));
        }
      });
  EXPECT_TRUE(figures.any_reported());
}

// Step 2 gets a tag, and step 1 loses its pin.
TEST_F(StoreFaultsTest, PinsAndTagsChangeWhollyOrNotAtAll) {
  absl::Status tagged, unpinned;
  unpins_ = true;
  const FaultFigures figures = Sweep(
      "a tag and a pin",
      [&] {
        tagged = store_->Tag(2, "v1");
        unpinned = store_->Unpin(1);
        absl::Status status = tagged;
        status.Update(unpinned);
        return status;
      },
      [&](const absl::Status&, const InjectedFault& fault) {
        EXPECT_TRUE(tagged.ok() || fault.IsNamedIn(tagged)) << tagged;
        const StepInfo one = store_->catalog().Find(1)->value().info;
        const StepInfo two = store_->catalog().Find(2)->value().info;
        EXPECT_EQ(one.pin_note, one.pinned ? "kept" : "");
        EXPECT_TRUE(!unpinned.ok() || !one.pinned);
        EXPECT_EQ(two.pinned, !two.tags.empty());
        EXPECT_TRUE(!tagged.ok() || two.pinned);
      });
  EXPECT_TRUE(figures.any_reported());
}

TEST_F(StoreFaultsTest, AnOpeningFindsEverythingOrSaysWhatFailed) {
  const FaultFigures figures = Sweep(
      "an opening",
      [this] {
        store_.reset();
        auto opened = OpenStore(path_, &warnings_, files_);
        if (!opened.ok()) return opened.status();
        EXPECT_THAT(ReadValue(**opened, 2, disk_), IsOkAndHolds(200));
        store_ = *std::move(opened);
        return store_->SweepUncommitted();
      },
      [this](const absl::Status&, const InjectedFault&) {
        EXPECT_THAT(ReadValue(*store_, 2, files_), IsOkAndHolds(200));
      });
  EXPECT_TRUE(figures.any_reported());
}

}  // namespace
}  // namespace tidemark::storage
