// Two processes that both hold a store, because the lock of one does not reach the other, and a worker: clients of one
// file server, each with old listings. What they do is drawn, and each call may come in the middle of another one's.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "storage/shard/write/shard_writer.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/garbage.h"
#include "storage/store/store.h"
#include "tests/storage/io/crash_states.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/store/shared_store_oracle.h"
#include "tests/storage/store/sharing_client.h"
#include "tests/storage/store/store_testing.h"

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using testing::AnyOf;
using testing::HasSubstr;

// How often things came about in all cases, so that the test knows that it tests something.
using Counts = std::map<std::string, size_t>;

class SharedStoreCase {
 public:
  SharedStoreCase(uint32_t seed, Counts& counts) : random_(seed), counts_(counts) {
    const size_t age_max = Draw(2) == 0 ? 0 : 1 + Draw(200);
    for (const char* name : {"A", "B", "worker"}) {
      clients_.push_back(std::make_unique<SharingClient>(disk_, name, static_cast<uint32_t>(random_()), age_max));
      SharingClient& client = *clients_.back();
      client.files().SetGate([this, &client](const std::string&, const std::string& path) { Pass(client, path); });
    }
  }
  ~SharedStoreCase() { Close(); }

  void Run() {
    // What these looks show is old when the store is made.
    if (Draw(2) == 0) {
      ASSERT_THAT(disk_.CreateDirectory(kSharedStore), IsOk());
      for (const auto& client : clients_) client->files().ListDirectory(kSharedStore).IgnoreError();
    }
    Open(*clients_[0]);
    if (testing::Test::HasFailure()) return;
    layout_ = clients_[0]->store()->layout();
    id_ = clients_[0]->store()->id();
    if (Draw(3) == 0) FillFolder();
    const size_t operations = 5 + Draw(60);
    for (size_t i = 0; i < operations && !testing::Test::HasFailure(); ++i) {
      SharingClient& client = *clients_[Draw(clients_.size())];
      interrupted_ = Draw(2) == 0 ? &client : nullptr;
      calls_left_ = 1 + Draw(Draw(3) == 0 ? 300 : 60);
      Act(client);
      interrupted_ = nullptr;
      CheckFiles();
    }
    Close();
  }

  void Check() {
    oracle_.CheckDeletions();
    CheckWithNewHolder(disk_);
    // What a power loss leaves. The server has all names that it has answered for, and what was synced.
    const DiskLog log = disk_.log();
    std::unordered_set<uint64_t> seen;
    size_t states = 0;
    ForEachCrash(log,
                 {.begin = log.operations.size(), .all_subsets_up_to = 0, .samples = 3, .torn = 0, .seed = random_()},
                 seen, [&](const Crash& crash, const DiskImage& left) {
                   SCOPED_TRACE(crash.ToString(log));
                   SimulatedDisk after(left);
                   CheckWithNewHolder(after);
                   return ++states < 2 && !testing::Test::HasFailure();
                 });
  }

 private:
  size_t Draw(size_t count) { return random_() % count; }

  void Close() {
    std::shuffle(clients_.begin(), clients_.end(), random_);
    for (const auto& client : clients_) {
      client->CloseStore();
      client->CloseJournal();
    }
  }

  // Brings the journal to about the end of its first folder, or of its second.
  void FillFolder() {
    Save(*clients_[0]);
    const std::optional<SharedAttempt> attempt = DrawAttempt();
    const size_t entries = 64 * (1 + Draw(2)) - Draw(20);
    for (size_t i = 0; i < entries && attempt; ++i) Pin(*clients_[0], /*as_worker=*/false, *attempt);
  }

  // In front of every call of the client: here another one may do something.
  void Pass(SharingClient& client, const std::string& path) {
    if (std::this_thread::get_id() != thread_ || path.starts_with(index_)) return;
    if (interrupted_ != &client || --calls_left_ > 0) return;
    interrupted_ = nullptr;
    std::vector<SharingClient*> idle;
    for (const auto& other : clients_) {
      if (!busy_.contains(other.get())) idle.push_back(other.get());
    }
    if (idle.empty()) return;
    SharingClient& other = *idle[Draw(idle.size())];
    ++counts_["in the middle of another"];
    // Some are interrupted in turn.
    if (Draw(3) == 0) {
      interrupted_ = &other;
      calls_left_ = 1 + Draw(60);
    }
    // An opening is the most interesting of all.
    if (other.name() != "worker" && Draw(3) == 0) {
      Open(other);
    } else {
      Act(other);
    }
    interrupted_ = nullptr;
  }

  // Whether a holder has begun after that one for sure, or only maybe.
  bool IsFenced(const SharingClient& client, const Span& span) const {
    return std::any_of(openings_.begin(), openings_.end(),
                       [&](const auto& opening) { return Opened(client).IsBefore(opening) && opening.IsBefore(span); });
  }
  Span Opened(const SharingClient& client) const { return opened_.at(&client); }
  bool MayBeFenced(const SharingClient& client) const {
    return openings_under_way_ > 0 || std::any_of(openings_.begin(), openings_.end(), [&](const Span& opening) {
             return opening.begin != Opened(client).begin && !opening.IsBefore(Opened(client));
           });
  }

  void Open(SharingClient& client) {
    const bool is_busy = !busy_.insert(&client).second;
    ASSERT_FALSE(is_busy);
    client.CloseStore();
    Span span{.begin = clock_++};
    ++openings_under_way_;
    const absl::Status status = client.OpenStore();
    --openings_under_way_;
    span.end = clock_++;
    EXPECT_THAT(status, IsOk()) << client.name() << " opens";
    opened_[&client] = span;
    openings_.push_back(span);
    ++counts_["openings"];
    busy_.erase(&client);
  }

  void Act(SharingClient& client) {
    const bool as_worker = client.name() == "worker" || Draw(4) == 0;
    if (!as_worker && (client.store() == nullptr || Draw(25) == 0)) return Open(client);
    busy_.insert(&client);
    client.files().Reset();
    if (as_worker) {
      ActAsWorker(client);
    } else {
      ActAsHolder(client);
    }
    busy_.erase(&client);
  }

  void ActAsWorker(SharingClient& client) {
    if (client.journal() == nullptr || Draw(25) == 0) {
      client.CloseJournal();
      // What it sees may be older than the store.
      const absl::Status status = client.OpenJournal(*layout_, id_);
      ++counts_[fmt::format("opened by a worker: {}", absl::StatusCodeToString(status.code()))];
      EXPECT_THAT(status, AnyOf(IsOk(), StatusIs(StatusCode::kNotFound, HasSubstr(""))))
          << client.name() << " opens the journal";
      return;
    }
    const std::optional<SharedAttempt> attempt = DrawAttempt();
    switch (Draw(4)) {
      case 0:
      case 1:
        if (attempt) Pin(client, /*as_worker=*/true, *attempt);
        break;
      case 2:
        if (attempt) Report(client, /*as_worker=*/true, *attempt);
        break;
      case 3:
        EXPECT_THAT(client.journal()->Look(), IsOk()) << client.name() << " looks";
        break;
    }
  }

  void ActAsHolder(SharingClient& client) {
    const std::optional<SharedAttempt> attempt = DrawAttempt();
    switch (Draw(14)) {
      case 0:
        if (attempt) Pin(client, /*as_worker=*/false, *attempt);
        break;
      case 1:
        if (attempt) Report(client, /*as_worker=*/false, *attempt);
        break;
      case 2:
        EXPECT_THAT(client.store()->Look(), IsOk()) << client.name() << " looks";
        break;
      case 3:
      case 4:
      case 5:
      case 6:
        Save(client);
        break;
      case 7:
      case 8:
        if (attempt) Delete(client, *attempt);
        break;
      case 9:
        Removed(client, client.store()->SweepUncommitted(), "swept");
        break;
      case 10:
        Removed(client, client.store()->RemoveDeleted({}).status(), "removed");
        break;
      case 11:
      case 12:
        client.store()->Maintain().IgnoreError();
        break;
      case 13:
        client.CloseStore();
        break;
    }
  }

  // One of a step as it is now, as a rule.
  std::optional<SharedAttempt> DrawAttempt() {
    const std::vector<SharedAttempt> committed = oracle_.Committed();
    if (committed.empty()) return std::nullopt;
    const SharedAttempt attempt = committed[Draw(committed.size())];
    if (Draw(4) == 0) return attempt;
    return oracle_.Last(attempt.step, {Asked::Kind::kCommit}).back()->attempt;
  }

  // Calls `act` between the ticks of the clock.
  absl::Status Timed(Asked& asked, const std::function<absl::Status()>& act) {
    asked.span.begin = clock_++;
    absl::Status status = act();
    asked.span.end = clock_++;
    oracle_.Note(asked, status);
    return status;
  }

  // What a change that needs the holder has answered.
  void CheckAnswer(const SharingClient& client, bool as_worker, const Asked& asked, const absl::Status& status,
                   std::string_view what) {
    if (as_worker) {
      ++counts_[fmt::format("{} by a worker: {}", what, absl::StatusCodeToString(status.code()))];
      return;
    }
    const bool is_fenced = IsFenced(client, asked.span);
    ++counts_[fmt::format("{} {}: {}", what, is_fenced ? "after another opening" : "by the holder",
                          absl::StatusCodeToString(status.code()))];
    if (is_fenced) {
      EXPECT_FALSE(status.ok()) << what << " by " << client.name() << ", after another has opened the store";
    }
  }

  void Save(SharingClient& client) {
    Store& store = *client.store();
    Asked asked{.kind = Asked::Kind::kCommit,
                .who = client.name(),
                .attempt = {.step = 1 + static_cast<int64_t>(Draw(kSharedStepsMax)), .value = ++values_}};
    const absl::Status status = Timed(asked, [&]() -> absl::Status {
      const absl::StatusOr<ShardIdentity> identity = store.BeginAttempt(asked.attempt.step);
      if (!identity.ok()) return identity.status();
      asked.attempt.attempt = identity->attempt;
      absl::Status written = Write(client, *identity, asked.attempt.value);
      if (Draw(10) == 0) {
        store.AbandonAttempt(*identity, absl::UnixEpoch(), absl::CancelledError("abandoned")).IgnoreError();
        return absl::CancelledError("abandoned");
      }
      if (!written.ok()) return written;
      if (Draw(10) == 0) return absl::CancelledError("left");
      auto attempt = ReadAttempt(client.files(), store.layout(), store.id(), {identity->step, identity->attempt});
      return attempt.ok() ? store.CommitAttempt(attempt->record) : attempt.status();
    });
    CheckAnswer(client, /*as_worker=*/false, asked, status, "saved");
    if (!MayBeFenced(client) && !absl::IsCancelled(status)) {
      EXPECT_THAT(status, IsOk()) << client.name() << " holds the store";
    }
  }

  absl::Status Write(SharingClient& client, const ShardIdentity& identity, int64_t value) {
    auto writer = ShardWriter::Create(client.files(), {.io = IoQueueKind::kThreads});
    if (!writer.ok()) return writer.status();
    ShardContents contents;
    contents.entries.push_back({.spec = {.name = "value", .kind = EntryKind::kInt64, .dtype = Dtype::kInt64},
                                .bytes = std::as_bytes(std::span(&value, 1))});
    contents.recycle = client.store()->Recycle(identity);
    const StoreLayout& layout = client.store()->layout();
    return (*writer)
        ->Write(layout.shard(identity.step, identity.attempt, identity.rank, identity.world_size), identity, contents)
        .status();
  }

  void Delete(SharingClient& client, const SharedAttempt& attempt) {
    Asked asked{.kind = Asked::Kind::kDelete, .who = client.name(), .attempt = attempt};
    const absl::Status status = Timed(asked, [&]() -> absl::Status {
      const absl::StatusOr<NotedSteps> noted = client.store()->NoteSteps(
          {{.step = attempt.step, .attempt = ToHex(attempt.attempt.bytes), .deleted = true, .reason = "test"}});
      if (!noted.ok()) return noted.status();
      return noted->deleted.empty() ? absl::CancelledError("it stays") : absl::OkStatus();
    });
    CheckAnswer(client, /*as_worker=*/false, asked, status, "deleted");
  }

  void Pin(SharingClient& client, bool as_worker, const SharedAttempt& attempt) {
    const bool pins = Draw(3) > 0;
    Asked asked{.kind = pins ? Asked::Kind::kPin : Asked::Kind::kUnpin,
                .who = client.name(),
                .attempt = attempt,
                .text = fmt::format("{} {}", client.name(), ++values_)};
    const absl::Status status = Timed(asked, [&] {
      if (as_worker) {
        return client.journal()->Change([&](const StepCatalog& catalog) {
          return pins ? PinFacts(catalog, attempt.step, asked.text, attempt.attempt)
                      : UnpinFacts(catalog, attempt.step, attempt.attempt);
        });
      }
      return pins ? client.store()->Pin(attempt.step, asked.text, attempt.attempt)
                  : client.store()->Unpin(attempt.step, attempt.attempt);
    });
    CheckAnswer(client, as_worker, asked, status, pins ? "pinned" : "unpinned");
  }

  void Report(SharingClient& client, bool as_worker, const SharedAttempt& attempt) {
    Asked asked{
        .kind = Asked::Kind::kReport, .attempt = attempt, .text = fmt::format("{} {}", client.name(), ++values_)};
    const EvaluationFact fact{
        .step = attempt.step, .attempt = ToHex(attempt.attempt.bytes), .evaluation = {.evaluator = asked.text}};
    const absl::Status status = Timed(asked, [&]() -> absl::Status {
      std::vector<ReportOutcome> outcomes;
      if (as_worker) {
        absl::Status changed = client.journal()->Change([&](const StepCatalog& catalog) {
          return ReportFacts(catalog, {&fact, 1}, outcomes);
        });
        return changed.ok() ? outcomes[0].status : changed;
      }
      absl::StatusOr<std::vector<ReportOutcome>> recorded = client.store()->RecordReports({&fact, 1});
      return recorded.ok() ? (*recorded)[0].status : recorded.status();
    });
    CheckAnswer(client, as_worker, asked, status, "reported");
  }

  void Removed(const SharingClient& client, const absl::Status& status, std::string_view what) {
    ++counts_[fmt::format("{}: {}", what, absl::StatusCodeToString(status.code()))];
    if (!MayBeFenced(client)) {
      EXPECT_THAT(status, IsOk()) << what << " by " << client.name();
    }
  }

  // No removal has taken a file of a step that is there.
  void CheckFiles() {
    for (int64_t step = 1; step <= kSharedStepsMax; ++step) {
      const std::vector<const Asked*> commits = oracle_.Last(step, {Asked::Kind::kCommit});
      if (commits.size() != 1 || !commits[0]->is_done || oracle_.IsDeleted(commits[0]->attempt).second) continue;
      EXPECT_THAT(disk_.TypeOf(layout_->shard(step, commits[0]->attempt.attempt, 0, 1)), IsOk())
          << "step " << step << " lost its shard";
    }
  }

  void CheckWithNewHolder(SimulatedDisk& disk) {
    if (testing::Test::HasFailure()) return;
    const auto check = [&](const StepCatalog& catalog) {
      oracle_.CheckCatalog(catalog, [&](int64_t step, const AttemptId& attempt) {
        return ReadValue(disk, *layout_, id_, {step, attempt});
      });
    };
    {
      SCOPED_TRACE("a reader");
      const auto reader = StoreJournal::Open(disk, *layout_, id_, {.warn = [](std::string_view) {}});
      ASSERT_THAT(reader, IsOk());
      check((*reader)->catalog());
    }
    SCOPED_TRACE("a holder");
    const auto holder = Store::Open(disk, {.directory = kSharedStore, .warn = [](std::string_view) {}});
    ASSERT_THAT(holder, IsOk());
    check((*holder)->catalog());
    ASSERT_THAT((*holder)->SweepUncommitted(), IsOk());
    ASSERT_THAT((*holder)->RemoveDeleted({}), IsOk());
    check((*holder)->catalog());
    std::set<std::string> due, there;
    ASSERT_THAT((*holder)->catalog().ForEach([&](StepRecord record) {
      if (record.info.state != StepState::kCommitted) return true;
      due.insert(StepFolderName(record.info.step, AttemptId{*FromHex(record.info.attempt)}));
      return true;
    }),
                IsOk());
    const auto folders = disk.ListDirectory(layout_->steps());
    ASSERT_THAT(folders, IsOk());
    for (const DirectoryEntry& folder : *folders) there.insert(folder.name);
    EXPECT_EQ(there, due) << "what no step needs is gone";
  }

  std::mt19937 random_;
  Counts& counts_;
  SimulatedDisk disk_;
  const std::string index_ = std::string(kSharedStore) + "/index";
  const std::thread::id thread_ = std::this_thread::get_id();
  std::optional<StoreLayout> layout_;
  StoreId id_;
  std::vector<std::unique_ptr<SharingClient>> clients_;
  std::set<const SharingClient*> busy_;
  std::map<const SharingClient*, Span> opened_;  // the last opening of each
  std::vector<Span> openings_;
  int openings_under_way_ = 0;
  SharedStoreOracle oracle_;
  int clock_ = 0;
  int64_t values_ = 0;
  SharingClient* interrupted_ = nullptr;  // whose calls are counted
  size_t calls_left_ = 0;
};

TEST(TwoHoldersTest, LoseNothingThatWasAcknowledged) {
  // One thread holds the mutexes of one store while it calls another one, in either order.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  const uint32_t first = SeedOfCases();
  const size_t cases = AllCasesAsked() ? 5'000 : OneOf(1, 5) == 1 ? 150 : 30;
  Counts counts;
  for (uint32_t seed = first; seed != first + cases && !HasFailure(); ++seed) {
    SCOPED_TRACE(fmt::format("seed {} (TIDEMARK_SEED)", seed));
    SharedStoreCase shared(seed, counts);
    shared.Run();
    if (!HasFailure()) shared.Check();
  }
  if (HasFailure()) return;
  for (const char* what :
       {"in the middle of another", "saved by the holder: OK", "saved after another opening: FAILED_PRECONDITION",
        "deleted by the holder: OK", "deleted after another opening: FAILED_PRECONDITION", "pinned by a worker: OK",
        "reported by a worker: OK", "swept: FAILED_PRECONDITION", "removed: FAILED_PRECONDITION"}) {
    EXPECT_GT(counts[what], 0u) << what;
  }
}

}  // namespace
}  // namespace tidemark::storage
