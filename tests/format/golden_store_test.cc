// A user's first opening of a store that an older library wrote. Of one of the first format, readers say what to do,
// and a trainer converts it. One whose step facts list their shards is read as it is.

#include "tests/format/golden_store.h"

#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/store/store_identity.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/state.h"
#include "tidemark/step_selector.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using absl::StatusCode;
using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class GoldenStoreTest : public testing::Test {
 protected:
  GoldenStoreTest() { storage::MakeGoldenStore(storage::PosixFileSystem(), path_); }

  absl::StatusOr<std::unique_ptr<AsyncCheckpointer>> OpenTrainer() {
    return AsyncCheckpointer::Open({.directory = path_});
  }

  const storage::TestDirectory home_;
  const std::string path_ = home_ / "store";
  int64_t value_ = 0;
};

TEST_F(GoldenStoreTest, AReaderSaysWhatToDoAndChangesNothing) {
  storage::FileSystem& files = storage::PosixFileSystem();
  const storage::StoreLayout layout(path_);
  // A conversion that was cut short has written format 2.
  for (const int format : {1, 2}) {
    const auto id = storage::ReadStoreIdentity(files, layout);
    ASSERT_THAT(id, IsOk());
    if (format == 2) storage::PutFile(files, layout.identity(), storage::EncodeStoreIdentity(*id));
    const storage::FileTree before = storage::ReadTree(files, path_);
    EXPECT_THAT(StoreReader::Open(path_),
                StatusIs(StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("an older version of Tidemark wrote the store"), HasSubstr("with a trainer"),
                               HasSubstr("checkpoint-inspect repair"))));
    const storage::FileTree after = storage::ReadTree(files, path_);
    EXPECT_EQ(before.files, after.files);
    EXPECT_EQ(before.directories, after.directories);
  }
}

TEST_F(GoldenStoreTest, ATrainerResumesFromItsLatestStepAndReadersSeeTheRest) {
  State state;
  state.AddValue("value", &value_);
  {
    auto trainer = OpenTrainer();
    ASSERT_THAT(trainer, IsOk());
    const auto next = (*trainer)->Resume(state);
    ASSERT_THAT(next, IsOk());
    EXPECT_EQ(*next, 71);
    EXPECT_EQ(value_, 700);
    value_ = 7100;
    const auto saved = (*trainer)->Save(71, state);
    ASSERT_THAT(saved, IsOk());
    EXPECT_THAT((*trainer)->Close(), IsOk());
  }
  const auto reader = StoreReader::Open(path_);
  ASSERT_THAT(reader, IsOk());
  EXPECT_THAT((*reader)->journal_problem(), IsOk());
  for (const auto& [selector, value] :
       {std::pair(StepSelector::Latest(), 7100), std::pair(StepSelector(6), 50),
        std::pair(StepSelector::Tag("paper"), 100), std::pair(StepSelector::Tag("baseline"), 100),
        std::pair(StepSelector::Best("worker/bleu"), 501)}) {
    value_ = 0;
    ASSERT_THAT((*reader)->Restore(selector, state), IsOk());
    EXPECT_EQ(value_, value);
  }
}

class GoldenJournalTest : public testing::Test {
 protected:
  GoldenJournalTest() {
    storage::WriteTree(storage::PosixFileSystem(), path_, storage::GoldenStore("store-2"));
    state_.AddTensor("weight", Dtype::kFloat32, {4}, weight_.data());
  }

  // What a reader finds, who also reads every byte.
  void ExpectSound() {
    const auto reader = StoreReader::Open(path_);
    ASSERT_THAT(reader, IsOk());
    EXPECT_THAT((*reader)->journal_problem(), IsOk());
    for (const StepSelector& selector : {StepSelector::Tag("paper"), StepSelector::Best("loss")}) {
      weight_ = {};
      ASSERT_THAT((*reader)->Restore(selector, state_), IsOk());
      EXPECT_THAT(weight_, ElementsAre(1, 2, 3, 4));
    }
    for (const int64_t step : {10, 20}) {
      const auto report = (*reader)->Verify(step);
      ASSERT_THAT(report, IsOk());
      EXPECT_THAT(report->damage, IsEmpty()) << step;
    }
  }

  const storage::TestDirectory home_;
  const std::string path_ = home_ / "store";
  std::array<float, 4> weight_{};
  State state_;
};

TEST_F(GoldenJournalTest, IsReadAndWrittenOn) {
  ExpectSound();
  {
    auto trainer = AsyncCheckpointer::Open({.directory = path_});
    ASSERT_THAT(trainer, IsOk());
    const auto next = (*trainer)->Resume(state_);
    ASSERT_THAT(next, IsOk());
    EXPECT_EQ(*next, 21);
    EXPECT_THAT(weight_, ElementsAre(1, 2, 3, 4));
    EXPECT_THAT((*trainer)->ReportMetrics(20, "late", {{"loss", 0.125}}).Wait(), IsOk());
    EXPECT_THAT((*trainer)->Close(), IsOk());
  }
  ExpectSound();
}

}  // namespace
}  // namespace tidemark
