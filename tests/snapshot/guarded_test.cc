// What a user's code throws is an error of the call that it was part of: each function of a State, a device's image and
// a companion, and each callback, in every staging mode. Nothing hangs, and the next save works.

#include "snapshot/guarded.h"

#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/observers.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/capture.h"
#include "tidemark/store_reader.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using storage::TestDirectory;
using testing::AllOf;
using testing::HasSubstr;

TEST(Guarded, MakesAnErrorOfWhatIsThrown) {
  EXPECT_THAT(Guarded("f", [] {}), IsOk());
  EXPECT_EQ(Guarded("f", [] { return absl::NotFoundError("x"); }), absl::NotFoundError("x"));
  EXPECT_EQ(*Guarded("f", [] { return 7; }), 7);
  EXPECT_EQ(*Guarded("f", []() -> absl::StatusOr<int> { return 7; }), 7);
  EXPECT_THAT(Guarded("f", []() -> int { throw std::runtime_error("x"); }),
              StatusIs(absl::StatusCode::kInternal, "f threw: x"));
  EXPECT_THAT(Guarded("f", [] { throw 7; }),
              StatusIs(absl::StatusCode::kInternal, "f threw something other than a std::exception"));
  EXPECT_THAT(Guarded("f", [] { throw std::bad_alloc(); }),
              StatusIs(absl::StatusCode::kResourceExhausted, "f: the system has no memory"));
}

// Which functions throw, by their names in messages.
using Throwing = std::set<std::string>;

void MayThrow(const Throwing& throwing, const std::string& name) {
  if (throwing.contains(name)) throw std::runtime_error("out of luck");
}

// A tensor and a value that only CopyToHost reaches, beside one in host memory. Whatever is in `throwing` throws.
class ThrowingState final : public State {
 public:
  explicit ThrowingState(std::shared_ptr<Throwing> throwing) : throwing_(std::move(throwing)) {
    AddTensor("host", Dtype::kFloat32, {1000}, host_.data());
    SetDerivedEntries(
        {Entry{.spec = {.name = "device", .dtype = Dtype::kFloat32, .shape = {1000}}, .bytes = 4000},
         Entry{.spec = {.name = "count", .kind = EntryKind::kInt64, .dtype = Dtype::kInt64}, .bytes = 8}});
  }
  absl::Status Refresh() override {
    MayThrow(*throwing_, "State::Refresh");
    return State::Refresh();
  }
  absl::Status BeginStaging() override {
    MayThrow(*throwing_, "State::BeginStaging");
    return absl::OkStatus();
  }
  std::shared_ptr<std::byte> AllocateStaging(uint64_t) override {
    MayThrow(*throwing_, "State::AllocateStaging");
    return nullptr;
  }
  absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
    const bool values = entries()[requests.front().entry].spec.name == "count";
    if (throwing_->contains(values ? "values" : "tensors")) throw std::runtime_error("out of luck");
    for (const CopyRequest& request : requests) std::memset(request.destination, 1, entries()[request.entry].bytes);
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<DeviceImage>> CopyOnDevice(std::span<const size_t>, uint64_t) override {
    MayThrow(*throwing_, "State::CopyOnDevice");
    return std::make_unique<Image>(throwing_);
  }
  absl::Status PrepareRestore(std::span<const EntrySpec> saved) override {
    MayThrow(*throwing_, "State::PrepareRestore");
    return State::PrepareRestore(saved);
  }
  absl::Status Receive(size_t, std::span<const std::byte>) override {
    MayThrow(*throwing_, "State::Receive");
    return absl::OkStatus();
  }
  absl::Status FlushReceived() override {
    MayThrow(*throwing_, "State::FlushReceived");
    return absl::OkStatus();
  }
  absl::Status FinishRestore() override {
    MayThrow(*throwing_, "State::FinishRestore");
    return State::FinishRestore();
  }
  void AbandonRestore() override {
    MayThrow(*throwing_, "State::AbandonRestore");
    State::AbandonRestore();
  }

 private:
  class Image final : public DeviceImage {
   public:
    explicit Image(std::shared_ptr<Throwing> throwing) : throwing_(std::move(throwing)) {}
    uint64_t bytes() const override {
      MayThrow(*throwing_, "State::DeviceImage::bytes");
      return 4000;
    }
    absl::Status CopyToHost(std::span<const CopyRequest> requests) override {
      MayThrow(*throwing_, "State::DeviceImage::CopyToHost");
      for (const CopyRequest& request : requests) std::memset(request.destination, 1, 4000);
      return absl::OkStatus();
    }

   private:
    const std::shared_ptr<Throwing> throwing_;
  };

  const std::shared_ptr<Throwing> throwing_;
  std::vector<float> host_ = std::vector<float>(1000, 1.0F);
};

class ThrowingCompanion final : public Companion {
 public:
  explicit ThrowingCompanion(std::shared_ptr<Throwing> throwing) : throwing_(std::move(throwing)) {
    state_.AddValue("ema.step", &step_);
  }
  const std::string& prefix() const override {
    MayThrow(*throwing_, "Companion::prefix");
    return prefix_;
  }
  absl::Status Update(const Snapshot& snapshot) override {
    MayThrow(*throwing_, "Companion::Update");
    step_ = snapshot.step();
    return absl::OkStatus();
  }
  State& state() override {
    MayThrow(*throwing_, "Companion::state");
    return state_;
  }
  void Reset() override { MayThrow(*throwing_, "Companion::Reset"); }

 private:
  const std::shared_ptr<Throwing> throwing_;
  const std::string prefix_ = "ema";
  int64_t step_ = 0;
  State state_;
};

class UserCodeTest : public testing::Test {
 protected:
  std::unique_ptr<AsyncCheckpointer> Open(CheckpointerOptions options = {}, ObserverFunctions told = {}) {
    options.directory = directory_ / fmt::format("store-{}", ++stores_);
    options.close_timeout = absl::Minutes(2);
    if (!told.warning) {
      told.warning = [this](std::string_view line) {
        absl::MutexLock lock(&mutex_);
        warnings_ += fmt::format("{}\n", line);
      };
    }
    options.observer = ObserverOf(std::move(told));
    auto checkpointer = AsyncCheckpointer::Open(std::move(options));
    EXPECT_THAT(checkpointer, IsOk());
    return *std::move(checkpointer);
  }

  // How the save ended, wherever that is said.
  absl::Status Save(AsyncCheckpointer& checkpointer, int64_t step, Staging staging) {
    auto save = checkpointer.Save(step, state_, {.staging = staging});
    if (!save.ok()) return save.status();
    save->staged().Wait().IgnoreError();
    return save->committed().Wait();
  }

  std::string Warnings() {
    absl::MutexLock lock(&mutex_);
    return warnings_;
  }

  TestDirectory directory_;
  int stores_ = 0;
  absl::Mutex mutex_;
  std::string warnings_;
  const std::shared_ptr<Throwing> throwing_ = std::make_shared<Throwing>();
  ThrowingState state_{throwing_};
};

TEST_F(UserCodeTest, FailsTheSaveInWhichAStateThrowsAndNoOther) {
  // The function that throws, and what the message calls it where that is another name.
  const std::vector<std::pair<std::string, std::string>> calls = {{"State::Refresh", ""},
                                                                  {"State::AllocateStaging", ""},
                                                                  {"State::BeginStaging", ""},
                                                                  {"values", "State::CopyToHost"},
                                                                  {"tensors", "State::CopyToHost"},
                                                                  {"State::CopyOnDevice", ""},
                                                                  {"State::DeviceImage::bytes", ""},
                                                                  {"State::DeviceImage::CopyToHost", ""}};
  for (const Staging staging : {Staging::kBlocking, Staging::kOverlapped, Staging::kOnDevice}) {
    for (const auto& [call, name] : calls) {
      SCOPED_TRACE(fmt::format("{} in mode {}", call, static_cast<int>(staging)));
      const bool of_images = call == "State::CopyOnDevice" || call.starts_with("State::DeviceImage");
      if (of_images != (staging == Staging::kOnDevice) && (of_images || call == "tensors")) continue;
      auto checkpointer = Open();
      *throwing_ = {call};
      EXPECT_THAT(
          Save(*checkpointer, 1, staging),
          StatusIs(absl::StatusCode::kInternal, HasSubstr((name.empty() ? call : name) + " threw: out of luck")));
      throwing_->clear();
      EXPECT_THAT(Save(*checkpointer, 1, staging), IsOk());
      EXPECT_THAT(Save(*checkpointer, 2, Staging::kBlocking), IsOk());
      EXPECT_THAT(checkpointer->Close(), IsOk());
    }
  }
}

TEST_F(UserCodeTest, FailsTheRestoreInWhichAStateThrowsAndNoOther) {
  auto checkpointer = Open();
  ASSERT_THAT(Save(*checkpointer, 1, Staging::kBlocking), IsOk());
  for (const std::string call :
       {"State::Refresh", "State::PrepareRestore", "State::Receive", "State::FlushReceived", "State::FinishRestore"}) {
    SCOPED_TRACE(call);
    *throwing_ = {call};
    EXPECT_THAT(
        checkpointer->RestoreLatest(state_),
        StatusIs(absl::StatusCode::kInternal,
                 HasSubstr((call == "State::Refresh" ? "State::PrepareRestore" : call) + " threw: out of luck")));
    *throwing_ = {call, "State::AbandonRestore"};
    EXPECT_THAT(checkpointer->Restore(1, state_),
                StatusIs(absl::StatusCode::kInternal,
                         AllOf(HasSubstr(" threw: out of luck; "), HasSubstr("State::AbandonRestore threw: out of"))));
    throwing_->clear();
    EXPECT_THAT(checkpointer->RestoreLatest(state_), IsOk());
  }
  ASSERT_THAT(Save(*checkpointer, 2, Staging::kBlocking), IsOk());
  EXPECT_THAT(checkpointer->Close(), IsOk());
}

TEST_F(UserCodeTest, FailsTheCallWithoutACheckpointerInWhichAStateThrowsAndNoOther) {
  auto checkpointer = Open();
  ASSERT_THAT(Save(*checkpointer, 1, Staging::kBlocking), IsOk());
  auto reader = StoreReader::Open(directory_ / "store-1");
  ASSERT_THAT(reader, IsOk());
  const auto snapshot = Capture(state_);
  ASSERT_THAT(snapshot, IsOk());

  using Call = std::function<absl::Status()>;
  const Call capture = [&] { return Capture(state_).status(); };
  const Call restore_from = [&] { return RestoreFrom(**snapshot, state_); };
  const Call restore = [&] { return (*reader)->Restore(StepSelector::Latest(), state_).status(); };
  const std::vector<std::pair<Call, std::vector<std::string>>> table = {
      {capture, {"State::Refresh", "State::AllocateStaging", "State::BeginStaging", "values", "tensors"}},
      {restore_from, {"State::PrepareRestore", "State::Receive", "State::FlushReceived", "State::FinishRestore"}},
      {restore, {"State::PrepareRestore", "State::Receive", "State::FlushReceived", "State::FinishRestore"}},
  };
  for (size_t i = 0; i < table.size(); ++i) {
    const auto& [call, functions] = table[i];
    for (const std::string& function : functions) {
      SCOPED_TRACE(fmt::format("{} in call {}", function, i));
      const bool copies = function == "values" || function == "tensors";
      *throwing_ = {function};
      EXPECT_THAT(call(), StatusIs(absl::StatusCode::kInternal,
                                   HasSubstr((copies ? "State::CopyToHost" : function) + " threw: out of luck")));
      if (i > 0) {
        *throwing_ = {function, "State::AbandonRestore"};
        EXPECT_THAT(call(), StatusIs(absl::StatusCode::kInternal, AllOf(HasSubstr(" threw: out of luck; "),
                                                                        HasSubstr("State::AbandonRestore thr"))));
      }
      throwing_->clear();
      EXPECT_THAT(call(), IsOk());
    }
  }
}

TEST_F(UserCodeTest, FailsTheCallInWhichACompanionThrows) {
  auto checkpointer = Open();
  ASSERT_THAT(Save(*checkpointer, 1, Staging::kBlocking), IsOk());
  *throwing_ = {"Companion::prefix"};
  EXPECT_THAT(checkpointer->AddCompanion(std::make_shared<ThrowingCompanion>(throwing_)),
              StatusIs(absl::StatusCode::kInternal, "Companion::prefix threw: out of luck"));
  throwing_->clear();
  ASSERT_THAT(checkpointer->AddCompanion(std::make_shared<ThrowingCompanion>(throwing_)), IsOk());
  *throwing_ = {"Companion::Reset"};
  EXPECT_THAT(checkpointer->RestoreLatest(state_),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("Companion::Reset threw: out of luck")));
  for (const std::string call : {"Companion::Update", "Companion::state"}) {
    *throwing_ = {call};
    EXPECT_THAT(Save(*checkpointer, 2, Staging::kBlocking),
                StatusIs(absl::StatusCode::kInternal, HasSubstr(call + " threw: out of luck")));
  }
  throwing_->clear();
  EXPECT_THAT(Save(*checkpointer, 2, Staging::kBlocking), IsOk());
  EXPECT_THAT(checkpointer->RestoreLatest(state_), IsOk());
  EXPECT_THAT(checkpointer->Close(), IsOk());
}

TEST_F(UserCodeTest, GoesOnWhereACallbackThrows) {
  const auto throws = [](auto&&...) { throw std::runtime_error("out of luck"); };
  const std::vector<std::pair<std::string, ObserverFunctions>> observers = {
      {"CheckpointObserver::Committed", {.committed = throws}},
      {"CheckpointObserver::Failed", {.failed = throws}},
      {"CheckpointObserver::Deleted", {.deleted = throws}},
      {"CheckpointObserver::Evaluated", {.evaluated = throws}},
      {"CheckpointObserver::SaveLine", {.save_line = throws}},
      {"CheckpointObserver::Warning", {.warning = throws}},
      {"RetentionOptions::keep", {}},
      {"KeepBest::score", {}},
  };
  for (const auto& [name, told] : observers) {
    SCOPED_TRACE(name);
    CheckpointerOptions options;
    options.retention.max_to_keep = 1;
    if (name == "RetentionOptions::keep") {
      options.retention.keep = [](const StepInfo&) -> bool { throw std::runtime_error("out of luck"); };
    }
    if (name == "KeepBest::score") {
      options.retention.keep_best = {
          {.score = [](const Metrics&) -> double { throw std::runtime_error("out of luck"); }}};
    }
    auto checkpointer = Open(std::move(options), told);
    ASSERT_THAT(checkpointer->AddEvaluator(
                    {.name = "unlucky"},
                    [](const Snapshot&) -> absl::StatusOr<Verdict> { throw std::runtime_error("out of luck"); }),
                IsOk());
    ASSERT_THAT(Save(*checkpointer, 1, Staging::kOverlapped), IsOk());
    *throwing_ = {"tensors"};
    EXPECT_THAT(Save(*checkpointer, 2, Staging::kOverlapped),
                StatusIs(absl::StatusCode::kInternal, testing::HasSubstr("out of luck")));
    throwing_->clear();
    ASSERT_THAT(Save(*checkpointer, 3, Staging::kOverlapped), IsOk());
    EXPECT_THAT(checkpointer->ReportMetrics(3, "validation", {{"loss", 1}}).Wait(), IsOk());
    EXPECT_THAT(checkpointer->Tidy(), IsOk());
    EXPECT_THAT(checkpointer->RestoreLatest(state_), IsOk());
    EXPECT_THAT(checkpointer->Close(), IsOk());
    if (!told.warning) {
      EXPECT_THAT(Warnings(), HasSubstr(name + " threw: out of luck"));
    }
  }
}

}  // namespace
}  // namespace tidemark
