// The golden store of the first format on a disk in memory, and what it must say when it is converted.

#ifndef TIDEMARK_TESTS_STORAGE_STORE_FIRST_FORMAT_CONVERT_TESTING_H_
#define TIDEMARK_TESTS_STORAGE_STORE_FIRST_FORMAT_CONVERT_TESTING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/records/metric_report.h"
#include "storage/store/first_format/report_files.h"
#include "storage/store/first_format/store_request.h"
#include "storage/store/garbage.h"
#include "storage/store/store_identity.h"
#include "tests/format/golden_store.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/store/first_format/written_files.h"
#include "tests/storage/store/store_testing.h"
#include "tests/storage/store/test_store.h"

namespace tidemark::storage {

inline const StoreLayout kLayout("/store");

inline StepInfo InfoOf(const Store& store, int64_t step) {
  const auto record = store.catalog().Find(step);
  EXPECT_THAT(record, IsOk()) << step;
  EXPECT_TRUE(record.ok() && record->has_value()) << step;
  return record.ok() && record->has_value() ? (*record)->info : StepInfo{};
}

// What golden/README.md lists.
inline void ExpectGoldenSteps(Store& store, FileSystem& files) {
  EXPECT_EQ(InfoOf(store, 5).state, StepState::kDeleted);
  EXPECT_EQ(InfoOf(store, 5).reason, "the oldest");
  EXPECT_THAT(ReadValue(store, 6, files), IsOkAndHolds(50)) << "its chunk is in a file of step 5";

  EXPECT_THAT(ReadValue(store, 10, files), IsOkAndHolds(100));
  const StepInfo ten = InfoOf(store, 10);
  EXPECT_TRUE(ten.pinned);
  EXPECT_EQ(ten.pin_note, "for the \"paper\"");
  EXPECT_THAT(ten.tags, testing::ElementsAre("paper", "v1.0"));
  EXPECT_EQ(ten.metrics, (Metrics{{"loss", 100}, {"validation/loss", 0.5}, {"validation/accuracy", 0.75}}));
  ASSERT_THAT(ten.evaluations, testing::SizeIs(2));
  EXPECT_EQ(ten.evaluations[0].evaluator, "health");
  EXPECT_EQ(ten.evaluations[0].unhealthy, "the norm of layer 3 jumped");
  EXPECT_EQ(ten.evaluations[1].worker, "trainer");
  EXPECT_EQ(ten.evaluations[1].reported, absl::FromUnixSeconds(1'790'000'010));
  EXPECT_EQ(ten.evaluations[1].took, absl::Seconds(3));
  EXPECT_EQ(ten.user_metadata, "{\"epoch\":1}");
  EXPECT_EQ(ten.created, absl::FromUnixSeconds(1'790'000'010));
  const auto phases = store.catalog().Phases(10, ten.attempt);
  ASSERT_THAT(phases, IsOk());
  ASSERT_THAT(*phases, testing::SizeIs(1));
  EXPECT_EQ((*phases)[0].name, "copy");
  EXPECT_EQ((*phases)[0].bytes, 8u);

  EXPECT_THAT(ReadValue(store, 20, files), IsOkAndHolds(100)) << "its chunk is in a file of step 10";
  EXPECT_THAT(InfoOf(store, 20).tags, testing::ElementsAre("baseline"));
  EXPECT_TRUE(InfoOf(store, 20).pinned);

  EXPECT_EQ(InfoOf(store, 30).state, StepState::kDeleted);
  EXPECT_EQ(InfoOf(store, 30).metrics.at("validation/loss"), 0.25);

  EXPECT_THAT(ReadValue(store, 35, files), IsOkAndHolds(350));

  EXPECT_EQ(InfoOf(store, 40).state, StepState::kDamaged);
  EXPECT_EQ(InfoOf(store, 40).reason, "chunk 0 at offset 4096: its digest differs");

  EXPECT_THAT(ReadValue(store, 50, files), IsOkAndHolds(501));
  const StepInfo fifty = InfoOf(store, 50);
  EXPECT_EQ(fifty.kept, "one of the latest 3");
  ASSERT_FALSE(fifty.evaluations.empty());
  EXPECT_EQ(fifty.evaluations[0].outcome, Evaluation::Outcome::kFailed);
  EXPECT_EQ(fifty.evaluations[0].reason, "out of memory");

  EXPECT_EQ(InfoOf(store, 55).state, StepState::kUnsaved);
  EXPECT_EQ(InfoOf(store, 55).metrics.at("loss"), 5.5);
  EXPECT_EQ(InfoOf(store, 60).state, StepState::kFailed);
  EXPECT_THAT(InfoOf(store, 60).reason, testing::HasSubstr("ENOSPC"));
  const auto modes = store.catalog().RecordedBestModes();
  ASSERT_THAT(modes, IsOk());
  EXPECT_THAT(*modes, testing::UnorderedElementsAre(testing::Pair("validation/loss", BestMode::kLowest),
                                           testing::Pair("validation/accuracy", BestMode::kHighest)));
}

// What lies in its inbox.
inline void ExpectGoldenInbox(Store& store) {
  const StepInfo fifty = InfoOf(store, 50);
  EXPECT_EQ(fifty.metrics.at("worker/bleu"), 31.5);
  EXPECT_THAT(fifty.tags, testing::ElementsAre("candidate"));
  EXPECT_EQ(InfoOf(store, 35).pin_note, "wanted after all");
  const auto requests = store.catalog().Requests();
  ASSERT_THAT(requests, IsOk());
  ASSERT_THAT(*requests, testing::SizeIs(1));
  EXPECT_EQ((*requests)[0].step, 50);
  EXPECT_EQ((*requests)[0].attempt, fifty.attempt);
  EXPECT_EQ((*requests)[0].reason, "asked for");
  EXPECT_EQ((*requests)[0].asker, "ann on a node");
  EXPECT_EQ((*requests)[0].asked, absl::FromUnixSeconds(1'790'000'102));
}

// Nothing is left of the first format, and the store goes on.
inline void ExpectGoesOn(Store& store, FileSystem& files) {
  int format = 0;
  EXPECT_THAT(ReadStoreIdentity(files, store.layout(), &format), IsOk());
  EXPECT_EQ(format, kStoreFormat);
  for (const std::string& path : {store.layout().manifest(), store.layout().inbox(), store.layout().reserve()}) {
    EXPECT_THAT(files.TypeOf(path), StatusIs(absl::StatusCode::kNotFound, testing::_)) << path;
  }
  const auto folders = files.ListDirectory(store.layout().steps());
  ASSERT_THAT(folders, IsOk());
  EXPECT_THAT(*folders, testing::SizeIs(8));
  EXPECT_THAT(ReadValue(store, 70, files), IsOkAndHolds(700)) << "whole, so it may have been acknowledged";
  EXPECT_THAT(TrySave(store, 70, 701, files), IsOk());
  EXPECT_THAT(ReadValue(store, 70, files), IsOkAndHolds(701));
  const StepInfo seventy = InfoOf(store, 70);
  EXPECT_GT(seventy.sequence, InfoOf(store, 50).sequence);
  EXPECT_LT(EpochOf(AttemptId{*FromHex(seventy.attempt)}), kEpochMax);
}

inline void ExpectConverted(Store& store, FileSystem& files) {
  ExpectGoldenSteps(store, files);
  ExpectGoldenInbox(store);
  ExpectGoesOn(store, files);
}

// Copies of the golden store on a disk in memory.
class ConvertTest : public testing::Test {
 protected:
  ConvertTest() { MakeGoldenStore(disk_, "/store"); }

  absl::StatusOr<std::unique_ptr<Store>> TryOpen(FileSystem& files) {
    warnings_.clear();
    return OpenStore("/store", &warnings_, files);
  }
  std::unique_ptr<Store> Open() {
    auto store = TryOpen(disk_);
    EXPECT_THAT(store, IsOk());
    return store.ok() ? *std::move(store) : nullptr;
  }

  // A whole attempt at the step that the manifest does not have.
  ShardIdentity WriteAttempt(int64_t step, int64_t value, uint64_t sequence, AttemptId attempt = {RandomBytes16()}) {
    const ShardIdentity identity{
        .store = *ReadStoreIdentity(disk_, kLayout), .step = step, .attempt = attempt, .sequence = sequence};
    EXPECT_THAT(disk_.CreateDirectory(kLayout.attempt(step, attempt)), IsOk());
    EXPECT_THAT(WriteShard(kLayout, identity, value, disk_), IsOk());
    return identity;
  }
  // Leaves half of the attempt's shard, as a save that was cut short.
  void CutShort(const StepFolder& folder) {
    const std::string shard = kLayout.shard(folder.step, folder.attempt, 0, 1);
    const auto bytes = ReadSmallFile(disk_, shard, 1 << 20);
    ASSERT_THAT(bytes, IsOk());
    PutFile(disk_, shard, bytes->substr(0, bytes->size() / 2));
  }

  std::string InFolder(int64_t step, const std::string& name) const {
    const StepFolder folder = GoldenFolder(step);
    return kLayout.attempt(folder.step, folder.attempt) + "/" + name;
  }
  // To be delivered, of an evaluator of that name.
  MetricReport Report(int64_t step, std::string evaluator) {
    MetricReport report{
        .store = *ReadStoreIdentity(disk_, kLayout), .step = step, .attempt = GoldenFolder(step).attempt};
    report.evaluation = {.evaluator = std::move(evaluator), .metrics = {{"loss", 1}}};
    return report;
  }
  void Deliver(const MetricReport& report) {
    PutFile(disk_, InboxPath(kLayout, InboxFileName(report.step, report.attempt, report.evaluation.evaluator)),
            EncodeMetricReport(report));
  }
  void Ask(StoreRequest::Kind kind, StepFolder about, std::string text, int64_t second) {
    const std::string bytes = EncodeStoreRequest({.kind = kind,
                                                  .store = *ReadStoreIdentity(disk_, kLayout),
                                                  .step = about.step,
                                                  .attempt = about.attempt,
                                                  .text = std::move(text),
                                                  .asker = "a test",
                                                  .asked = absl::FromUnixSeconds(second)});
    PutFile(disk_, InboxPath(kLayout, RequestFileName(about, bytes)), bytes);
  }

  SimulatedDisk disk_;
  std::vector<std::string> warnings_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_STORE_FIRST_FORMAT_CONVERT_TESTING_H_
