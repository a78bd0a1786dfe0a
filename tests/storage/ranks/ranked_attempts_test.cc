// Several ranks save steps together, and one of them fails, is late, or is not there.

#include "storage/ranks/ranked_attempts.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/ranks/ranked_job.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// For tests in which a deadline must not pass, and for those in which it must.
RankedAttemptsOptions Patient() { return {.vote_timeout = absl::Minutes(5)}; }
RankedAttemptsOptions Impatient() { return {.vote_timeout = absl::Seconds(2), .outcome_margin = absl::Seconds(1)}; }

bool IsRank(uint32_t rank, uint32_t one) { return rank == one; }

TEST(RankedAttemptsTest, EveryRankIsToldThatTheStepIsCommitted) {
  for (const uint32_t world_size : {1u, 2u, 5u}) {
    RankedJob job(world_size);
    job.OpenRanks(Patient());
    for (const int64_t step : {10, 20, 20}) {
      EXPECT_THAT(job.Save(step), Each(IsOk())) << step;
      EXPECT_THAT(job.Check(step), IsOk()) << step;
    }
    EXPECT_EQ(job.attempts_in_steps(), 2u);  // the one that was replaced is gone
    const auto record = job.store().catalog().Find(20);
    EXPECT_EQ((*record)->info.entry_count, world_size);
    EXPECT_EQ((*record)->info.world_size, world_size);
  }
}

TEST(RankedAttemptsTest, ARankThatCannotWriteAbortsTheStepForAll) {
  for (const uint32_t bad : {0u, 2u}) {
    RankedJob job(3);
    job.OpenRanks(Patient());
    ASSERT_THAT(job.Save(10), Each(IsOk()));
    job.files(bad).SetRule([](const FailingFileSystem::Call& call) {
      return absl::StrContains(call.path, "/shard-") && call.operation == "QueueWrite"
                 ? absl::ResourceExhaustedError("the disk is full")
                 : absl::OkStatus();
    });
    const std::vector<absl::Status> told = job.Save(20);
    for (uint32_t rank = 0; rank < 3; ++rank) {
      EXPECT_THAT(told[rank], StatusIs(StatusCode::kAborted, AllOf(HasSubstr("rank " + std::to_string(bad) + ":"),
                                                                   HasSubstr("the disk is full"))));
    }
    job.files(bad).SetRule(nullptr);
    EXPECT_EQ(job.attempts_in_steps(), 1u);
    EXPECT_THAT(job.Check(10), IsOk());
    EXPECT_THAT(job.Save(20), Each(IsOk()));
    EXPECT_THAT(job.Check(20), IsOk());
  }
}

TEST(RankedAttemptsTest, ASyncThatFailsIsANo) {
  for (const std::string path : {"/store/steps", "/store/steps/"}) {  // steps/, and an attempt's folder
    RankedJob job(2);
    job.OpenRanks(Patient());
    job.files(1).SetRule([&](const FailingFileSystem::Call& call) {
      const bool is_it = path.ends_with('/') ? absl::StartsWith(call.path, path) : call.path == path;
      return is_it && call.operation == "SyncDirectory" ? absl::InternalError("EIO") : absl::OkStatus();
    });
    EXPECT_THAT(job.Save(10), Each(StatusIs(StatusCode::kAborted, AllOf(HasSubstr("rank 1:"), HasSubstr("EIO")))));
    job.files(1).SetRule(nullptr);
    EXPECT_THAT(job.Save(10), Each(IsOk()));
  }
}

TEST(RankedAttemptsTest, ARankThatCannotBeginIsANo) {
  RankedJob job(3);
  job.OpenRanks(Patient());
  job.files(2).FailOperation("CreateDirectory", absl::PermissionDeniedError("not allowed"));
  const std::vector<absl::Status> told = job.Save(10);
  EXPECT_THAT(told[0], StatusIs(StatusCode::kAborted, AllOf(HasSubstr("rank 2:"), HasSubstr("not allowed"))));
  EXPECT_THAT(told[1], StatusIs(StatusCode::kAborted, AllOf(HasSubstr("rank 2:"), HasSubstr("not allowed"))));
  EXPECT_THAT(told[2], StatusIs(StatusCode::kAborted, AllOf(HasSubstr("rank 2:"), HasSubstr("not allowed"))));
}

TEST(RankedAttemptsTest, TheFoldersAreOpenBeforeAShardIsMade) {
  RankedJob job(2);
  job.OpenRanks(Patient());
  job.files(1).Reset();
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  bool has_steps = false, has_folder = false, has_shard = false;
  for (const FailingFileSystem::Call& call : job.files(1).calls()) {
    if (call.operation == "OpenDirectory") (call.path == "/store/steps" ? has_steps : has_folder) = true;
    if (call.operation == "CreateDirectory" && absl::StartsWith(call.path, "/store/steps")) {
      EXPECT_TRUE(has_steps);
    }
    if (call.operation == "Create" && absl::StrContains(call.path, "/shard-")) {
      has_shard = true;
      EXPECT_TRUE(has_steps && has_folder);
    }
  }
  EXPECT_TRUE(has_shard);
}

TEST(RankedAttemptsTest, ARankThatIsNotThereAbortsTheStepAtTheDeadline) {
  RankedJob job(3);
  job.OpenRanks({.vote_timeout = absl::Seconds(2), .outcome_margin = absl::Minutes(5)});
  const std::vector<absl::Status> told = job.Save(10, [](uint32_t rank) { return !IsRank(rank, 2); });
  for (const uint32_t rank : {0u, 1u}) {
    EXPECT_THAT(told[rank], StatusIs(StatusCode::kAborted, "no vote of rank 2 came before the deadline"));
  }
}

TEST(RankedAttemptsTest, ARankThatMissedAStepSavesTheNextOne) {
  RankedJob job(2);
  job.OpenRanks(Patient());
  job.EndWithin(absl::Seconds(1));
  EXPECT_THAT(job.Save(10, [](uint32_t rank) { return IsRank(rank, 0); })[0],
              StatusIs(StatusCode::kAborted, "no vote of rank 1 came before the deadline"));
  job.EndWithin(absl::InfiniteDuration());
  EXPECT_THAT(job.Save(20), Each(IsOk()));
  EXPECT_THAT(job.Check(20), IsOk());
}

// It made its folder again after that was removed, and cleans up behind itself.
TEST(RankedAttemptsTest, ALateRankFindsTheOutcome) {
  RankedJob job(2);
  job.OpenRank(0, Impatient());
  job.OpenRank(1, Patient());
  ASSERT_FALSE(job.Save(10, [](uint32_t rank) { return IsRank(rank, 0); })[0].ok());
  EXPECT_THAT(job.Save(10, [](uint32_t rank) { return IsRank(rank, 1); })[1],
              StatusIs(StatusCode::kAborted, "no vote of rank 1 came before the deadline"));
  EXPECT_EQ(job.attempts_in_steps(), 0u);
}

TEST(RankedAttemptsTest, RanksWithoutACoordinatorAreToldThatItIsUnknown) {
  RankedJob job(3);
  job.OpenRanks(Impatient());
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<absl::Status> told = job.Save(10, [](uint32_t rank) { return !IsRank(rank, 0); });
  EXPECT_THAT(told[1], StatusIs(StatusCode::kUnknown, HasSubstr("the deadline has passed")));
  EXPECT_THAT(told[2], StatusIs(StatusCode::kUnknown, HasSubstr("the deadline has passed")));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
}

TEST(RankedAttemptsTest, RanksThatDisagreeAreNamed) {
  RankedJob structure(2);
  structure.OpenRanks(Patient());
  absl::Status of_rank_0;
  std::thread other_rank([&] { of_rank_0 = structure.SaveOne(0, 10); });
  const auto differ = StatusIs(StatusCode::kAborted, HasSubstr("rank 1 and rank 0 differ in the entries that match"));
  EXPECT_THAT(structure.SaveOne(1, 10, Digest128{{1}}), differ);
  other_rank.join();
  EXPECT_THAT(of_rank_0, differ);
  EXPECT_THAT(structure.Save(20), Each(IsOk()));
  RankedJob size(2);
  size.OpenRank(0, Patient());
  RankedAttemptsOptions other = Patient();
  other.world_size = 3;
  size.OpenRank(1, other);
  EXPECT_THAT(size.Save(10),
              Each(StatusIs(StatusCode::kAborted, HasSubstr("rank 1 is one of 3 ranks, rank 0 one of 2"))));
}

// The new holder is on a machine that the lock of the old one does not reach.
TEST(RankedAttemptsTest, ANewHolderEndsTheEpochOfTheOldOne) {
  RankedJob job(3);
  job.OpenRanks(Patient());
  ASSERT_THAT(job.Save(10), Each(IsOk()));
  const std::unique_ptr<FileSystem> client = job.disk().NewClient();
  std::string warnings;
  const std::unique_ptr<Store> newer = OpenSoundStore(RankedJob::kDirectory, &warnings, *client);
  // Its coordinator makes the folder of statements anew. The ranks of the old epoch read the journal.
  RankedAttemptsOptions options = Patient();
  options.world_size = 1;
  options.warn = [](std::string_view) {};
  auto next = RankedAttempts::OpenCoordinator(*client, *newer, options);
  ASSERT_THAT(next, IsOk());
  EXPECT_THAT(SaveShard(**next, *client, job.layout(), 20, 7), IsOk());
  const std::vector<absl::Status> told = job.Save(30, [](uint32_t rank) { return !IsRank(rank, 0); });
  for (const uint32_t rank : {1u, 2u}) {
    EXPECT_THAT(told[rank], StatusIs(StatusCode::kAborted, HasSubstr("another process has opened the store")));
  }
}

TEST(RankedAttemptsTest, ACoordinatorThatWasReplacedCommitsNothing) {
  RankedJob job(1);
  job.OpenRanks(Patient());
  const std::unique_ptr<FileSystem> client = job.disk().NewClient();
  std::string warnings;
  const std::unique_ptr<Store> newer = OpenSoundStore(RankedJob::kDirectory, &warnings, *client);
  EXPECT_THAT(job.Save(10)[0], StatusIs(StatusCode::kAborted, HasSubstr("another process has opened the store")));
}

// As if the coordinator had died right behind its append: the entry is there, and is not known to be durable.
TEST(RankedAttemptsTest, ARankSettlesACommitThatItOnlySees) {
  RankedJob job(2);
  job.OpenRanks(Impatient());
  job.files(0).SetRule([](const FailingFileSystem::Call& call) {
    const bool is_sync = call.operation == "SyncDirectory" && absl::StartsWith(call.path, "/store/journal");
    return is_sync ? absl::InternalError("EIO") : absl::OkStatus();
  });
  const std::vector<absl::Status> told = job.Save(10);
  EXPECT_THAT(told[0], StatusIs(StatusCode::kUnknown, HasSubstr("the deadline has passed")));
  EXPECT_THAT(told[1], IsOk());
  // Once its disk works again the coordinator finds out, and goes on.
  job.files(0).SetRule(nullptr);
  EXPECT_THAT(job.Save(20), Each(IsOk()));
  EXPECT_THAT(job.Check(10), IsOk());
  EXPECT_THAT(job.Check(20), IsOk());
}

// Its first process may have voted yes on a shard that the second one would write over.
TEST(RankedAttemptsTest, ARankThatWasStartedAgainNeedsANewSession) {
  RankedJob job(2);
  job.OpenRanks(Patient());
  RankedAttemptsOptions options = Patient();
  options.rank = 1;
  options.world_size = 2;
  EXPECT_THAT(RankedAttempts::OpenParticipant(job.files(1), job.layout(), job.store().Held(), options),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("rank 1 takes part already")));
}

TEST(RankedAttemptsTest, RanksThatShareNoStoreAreRefused) {
  RankedJob job(2);
  RankedAttemptsOptions options = Patient();
  options.rank = 1;
  options.world_size = 2;
  const StoreLayout elsewhere("/elsewhere");
  EXPECT_THAT(RankedAttempts::OpenParticipant(job.files(1), elsewhere, job.store().Held(), options),
              StatusIs(StatusCode::kNotFound, HasSubstr("/elsewhere")));
  std::string warnings;
  const std::unique_ptr<Store> other = OpenSoundStore("/other", &warnings, job.files(1));
  EXPECT_THAT(RankedAttempts::OpenParticipant(job.files(1), other->layout(), job.store().Held(), options),
              StatusIs(StatusCode::kOutOfRange, HasSubstr("/other/journal")));
}

TEST(RankedAttemptsTest, StepsThatHaveNoIdAreRefused) {
  RankedJob job(1);
  job.OpenRanks(Patient());
  EXPECT_THAT(job.rank(0).BeginAttempt(-1), StatusIs(StatusCode::kInvalidArgument, HasSubstr("step -1")));
  EXPECT_THAT(job.rank(0).BeginAttempt(RankedAttempts::kRankedStepMax + 1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("expected 0 to")));
  EXPECT_THAT(job.rank(0).BeginAttempt(RankedAttempts::kRankedStepMax), IsOk());
}

TEST(RankedAttemptsTest, AnAttemptEndsOnce) {
  RankedJob job(1);
  job.OpenRanks(Patient());
  const absl::StatusOr<ShardIdentity> identity = job.rank(0).BeginAttempt(10);
  ASSERT_THAT(identity, IsOk());
  EXPECT_THAT(job.rank(0).BeginAttempt(20),
              StatusIs(StatusCode::kFailedPrecondition, "step 20 is saved before the save of step 10 has ended"));
  EXPECT_THAT(job.rank(0).AbandonAttempt(*identity, absl::Now(), absl::InternalError("no")),
              StatusIs(StatusCode::kAborted, HasSubstr("INTERNAL: no")));
  EXPECT_THAT(job.rank(0).AbandonAttempt(*identity, absl::Now(), absl::InternalError("no")),
              StatusIs(StatusCode::kInternal, HasSubstr("was not begun here")));
  StepRecord record;
  record.info.step = 10;
  record.info.attempt = ToHex(identity->attempt.bytes);
  EXPECT_THAT(job.rank(0).CommitAttempt(record), StatusIs(StatusCode::kInternal, HasSubstr("was not begun here")));
}

TEST(RankedAttemptsTest, RanksThatThereAreNotAreRefused) {
  RankedJob job(2);
  const auto open = [&](uint32_t rank, uint32_t world_size, bool is_coordinator) {
    const RankedAttemptsOptions options = {.rank = rank, .world_size = world_size};
    return is_coordinator
               ? RankedAttempts::OpenCoordinator(job.files(0), job.store(), options).status()
               : RankedAttempts::OpenParticipant(job.files(1), job.layout(), job.store().Held(), options).status();
  };
  EXPECT_THAT(open(2, 2, false), StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 2 of 2")));
  EXPECT_THAT(open(0, 2, false), StatusIs(StatusCode::kInvalidArgument, HasSubstr("expected a rank from 1 on")));
  EXPECT_THAT(open(1, 2, true), StatusIs(StatusCode::kInvalidArgument, HasSubstr("expected rank 0")));
  EXPECT_THAT(open(0, kWorldSizeMax + 1, true), StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 0 of 1048577")));
}

// There is room for the vote once the shard is removed.
TEST(RankedAttemptsTest, ARankSaysOnAFullDiskThatItHasFailed) {
  for (const uint32_t bad : {0u, 1u}) {
    RankedJob job(2);
    job.OpenRanks(Patient());
    std::atomic<bool> is_full = false;
    job.files(bad).SetRule([&](const FailingFileSystem::Call& call) {
      if (call.operation == "RemoveFile" && absl::StrContains(call.path, "/shard-")) is_full = false;
      if (call.operation == "QueueWrite" && absl::StrContains(call.path, "/shard-")) is_full = true;
      const bool writes = call.operation == "QueueWrite" || call.operation == "Create" || call.operation == "WriteAt";
      return is_full && writes ? absl::ResourceExhaustedError("the disk is full") : absl::OkStatus();
    });
    // Rank 0 must remove the attempt's files before it can say why. Rank 1 may miss its folder then.
    const auto reason = testing::AnyOf(HasSubstr("the disk is full"), HasSubstr("No such file or directory"));
    EXPECT_THAT(job.Save(10), Each(StatusIs(StatusCode::kAborted, reason))) << bad;
    job.files(bad).SetRule(nullptr);
    EXPECT_THAT(job.Save(20), Each(IsOk()));
  }
}

TEST(RankedAttemptsTest, AShardThatIsLateIsANo) {
  RankedJob job(1);
  job.OpenRanks({.vote_timeout = absl::Milliseconds(1), .outcome_margin = absl::Milliseconds(1)});
  job.files(0).SetGate([](const std::string& operation, const std::string& path) {
    if (operation == "QueueWrite" && absl::StrContains(path, "/shard-")) absl::SleepFor(absl::Milliseconds(10));
  });
  EXPECT_THAT(job.Save(10)[0], StatusIs(StatusCode::kAborted, HasSubstr("not durable at the deadline")));
}

TEST(RankedAttemptsTest, ARankThatSavesAnotherStepIsNamed) {
  RankedJob job(2);
  job.OpenRank(0, {.vote_timeout = absl::Seconds(5)});
  job.OpenRank(1, {.vote_timeout = absl::Seconds(5), .outcome_margin = absl::Milliseconds(100)});
  std::thread other([&] { EXPECT_TRUE(absl::IsUnknown(job.SaveOne(1, 200))); });
  EXPECT_THAT(
      job.SaveOne(0, 100),
      StatusIs(StatusCode::kAborted, "no vote of rank 1 (which has voted on step 200) came before the deadline"));
  other.join();
}

// Where the directory was replaced, its files are another store's, also those of the same names.
TEST(RankedAttemptsTest, AReplacedStoreKeepsItsFiles) {
  RankedJob job(2);
  job.OpenRanks(Impatient());
  ASSERT_THAT(job.disk().Rename(RankedJob::kDirectory, "/moved"), IsOk());
  RankedJob::Others others(job);
  ASSERT_THAT(others.Save(10), Each(IsOk()));
  for (const absl::Status& told : job.Save(10)) {
    EXPECT_THAT(told, StatusIs(StatusCode::kFailedPrecondition, HasSubstr("was moved or replaced")));
  }
  EXPECT_THAT(CheckStep(job.disk(), others.store(), 10), IsOk());
}

// Its own session is the earlier one then.
TEST(RankedAttemptsTest, AReplacedHolderRemovesNoStatements) {
  RankedJob job(1);
  RankedJob::Others newer(job);
  const std::string statements = job.layout().directory() + "/ranks";
  const size_t sessions = job.disk().ListDirectory(statements)->size();
  EXPECT_THAT(RankedAttempts::OpenCoordinator(job.files(0), job.store(), {.warn = [](std::string_view) {}}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("another process has opened the store")));
  EXPECT_EQ(job.disk().ListDirectory(statements)->size(), sessions);
  EXPECT_THAT(newer.Save(10), Each(IsOk()));
}

// Rank 0 has removed the folder under it.
TEST(RankedAttemptsTest, ARankThatFailsBecauseAnotherHasFailedNamesTheOther) {
  RankedJob job(3);
  job.OpenRanks(Patient());
  const absl::StatusOr<ShardIdentity> late = job.rank(2).BeginAttempt(10);
  ASSERT_THAT(late, IsOk());
  job.files(1).SetRule([](const FailingFileSystem::Call& call) {
    return call.operation == "QueueWrite" ? absl::ResourceExhaustedError("the disk is full") : absl::OkStatus();
  });
  job.Save(10, [](uint32_t rank) { return rank != 2; });
  EXPECT_THAT(job.rank(2).AbandonAttempt(*late, absl::Now(), absl::NotFoundError("no such folder")),
              StatusIs(StatusCode::kAborted, AllOf(HasSubstr("rank 1"), HasSubstr("the disk is full"))));
}

TEST(RankedAttemptsTest, Rank0MayRefuseAStepThatEveryRankHasWritten) {
  RankedJob job(2);
  RankedAttemptsOptions options = Patient();
  ShardsDigest asked_of;
  options.check = [&](const StepRecord& merged) {
    asked_of = merged.shards;
    return merged.info.step == 10 ? absl::DataLossError("rows 3 to 5 are missing") : absl::OkStatus();
  };
  job.OpenRanks(options);
  EXPECT_THAT(job.Save(10), Each(StatusIs(StatusCode::kAborted, HasSubstr("rows 3 to 5 are missing"))));
  EXPECT_NE(asked_of, ShardsDigest());
  EXPECT_EQ(job.attempts_in_steps(), 0u);
  EXPECT_THAT(job.Save(20), Each(IsOk()));
}

TEST(RankedAttemptsTest, ADamagedStatementIsNone) {
  RankedJob job(2);
  job.OpenRanks(Patient());
  const std::string statements = job.layout().ranks(job.store().Held().session);
  PutFile(job.disk(), statements + "/outcomes", "damaged");
  PutFile(job.disk(), statements + "/vote-00001", "damaged");
  // Each is replaced when the next one is stated.
  EXPECT_THAT(job.Save(10), Each(IsOk()));
  PutFile(job.disk(), statements + "/vote-00001", "damaged");
  job.EndWithin(absl::Seconds(2));
  EXPECT_THAT(job.SaveOne(0, 20), StatusIs(StatusCode::kAborted, HasSubstr("no vote of rank 1")));
}

TEST(RankedAttemptsTest, TheNextSessionRemovesWhatEarlierOnesHaveStated) {
  SimulatedDisk disk;
  std::string warnings;
  for (int i = 0; i < 2; ++i) {
    const std::unique_ptr<Store> store = OpenSoundStore("/store", &warnings, disk);
    ASSERT_THAT(RankedAttempts::OpenCoordinator(disk, *store, {.warn = [](std::string_view) {}}), IsOk());
    EXPECT_EQ(disk.ListDirectory("/store/ranks")->size(), 1u);
    EXPECT_THAT(RankedAttempts::OpenCoordinator(disk, *store, {.warn = [](std::string_view) {}}),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("rank 0 takes part already")));
  }
}

// What the ranks were told agrees, and is true, now and after the next save, which all ranks make.
void ExpectKeptPromises(RankedJob& job, const std::vector<absl::Status>& told, int64_t step) {
  const auto is_committed = [](const absl::Status& status) { return status.ok(); };
  const bool any_committed = std::any_of(told.begin(), told.end(), is_committed);
  for (const absl::Status& status : told) {
    if (any_committed) {
      EXPECT_TRUE(status.ok() || absl::IsUnknown(status)) << status;
    }
  }
  const bool all_unknown = std::all_of(told.begin(), told.end(), absl::IsUnknown);
  EXPECT_THAT(job.Save(step + 1), Each(IsOk()));
  EXPECT_THAT(job.Check(step + 1), IsOk());
  const absl::Status found = job.Check(step);
  if (any_committed) {
    EXPECT_THAT(found, IsOk());
  } else if (!all_unknown) {
    EXPECT_TRUE(absl::IsNotFound(found)) << found;
  }
}

size_t CallsOfASave(uint32_t rank) {
  RankedJob job(2);
  job.OpenRanks(Patient());
  job.files(rank).Reset();
  EXPECT_THAT(job.Save(10), Each(IsOk()));
  return job.files(rank).calls().size();
}

// From that call on all its calls fail, as of a process that was cut off from its disk.
TEST(RankedAttemptsTest, ARankThatIsCutOffAtAnyCall) {
  for (const uint32_t cut_off : {0u, 1u}) {
    const size_t calls = CallsOfASave(cut_off);
    ASSERT_GT(calls, 20u);
    const size_t stride = OneOf(8, 24);
    for (size_t call = SeedOfCases() % stride; call < calls; call += stride) {
      SCOPED_TRACE(fmt::format("rank {} at call {} of {}", cut_off, call, calls));
      RankedJob job(2);
      job.OpenRanks(Patient());
      job.EndWithin(absl::Seconds(1));
      job.files(cut_off).Reset();
      job.files(cut_off).FailFrom(call, absl::InternalError("EIO"));
      const std::vector<absl::Status> told = job.Save(10);
      job.files(cut_off).Reset();
      job.EndWithin(absl::InfiniteDuration());
      ExpectKeptPromises(job, told, 10);
    }
  }
}

// It stands still at that call until the others have been told, and then goes on.
TEST(RankedAttemptsTest, ARankThatStandsStillAtAnyCall) {
  for (const uint32_t slow : {0u, 1u}) {
    const size_t calls = CallsOfASave(slow);
    const size_t stride = OneOf(8, 24);
    for (size_t call = SeedOfCases() % stride; call < calls; call += stride) {
      SCOPED_TRACE(fmt::format("rank {} at call {} of {}", slow, call, calls));
      RankedJob job(2);
      job.OpenRanks(Patient());
      job.EndWithin(absl::Seconds(1));
      absl::Notification others_were_told;
      std::atomic<size_t> passed = 0;
      job.files(slow).SetGate([&](const std::string&, const std::string&) {
        if (passed++ == call) others_were_told.WaitForNotification();
      });
      std::vector<absl::Status> told(2);
      std::thread slow_rank([&] { told[slow] = job.SaveOne(slow, 10); });
      told[1 - slow] = job.SaveOne(1 - slow, 10);
      others_were_told.Notify();
      slow_rank.join();
      job.files(slow).SetGate(nullptr);
      job.EndWithin(absl::InfiniteDuration());
      ExpectKeptPromises(job, told, 10);
    }
  }
}

}  // namespace
}  // namespace tidemark::storage
