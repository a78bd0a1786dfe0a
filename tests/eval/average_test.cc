#include "tidemark/average.h"

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/snapshot/test_snapshot.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

using Kind = AverageOptions::Kind;

std::shared_ptr<Companion> Make(AverageOptions options = {}) {
  auto average = MakeAverage(std::move(options));
  EXPECT_THAT(average, IsOk());
  return *std::move(average);
}

const State::Entry* Find(Companion& average, const std::string& name) {
  EXPECT_THAT(average.state().Refresh(), IsOk());
  for (const State::Entry& entry : average.state().entries()) {
    if (entry.spec.name == name) return &entry;
  }
  return nullptr;
}

template <typename T>
std::vector<T> Values(Companion& average, const std::string& name) {
  const State::Entry* entry = Find(average, name);
  if (entry == nullptr) {
    ADD_FAILURE() << "no entry " << name;
    return {};
  }
  std::vector<T> values(entry->bytes / sizeof(T));
  if (!values.empty()) std::memcpy(values.data(), entry->host, entry->bytes);
  return values;
}

int64_t Snapshots(Companion& average) { return Values<int64_t>(average, average.prefix() + ".snapshots").at(0); }

template <typename T>
std::vector<T> RandomValues(std::mt19937& random, size_t count) {
  std::vector<T> values(count);
  for (T& value : values) value = static_cast<T>(random()) / static_cast<T>(1 << 20) - 2000;
  return values;
}

// The definition, one number after the other.
template <typename T>
class NaiveAverage {
 public:
  NaiveAverage(Kind kind, double decay) : kind_(kind), decay_(decay) {}
  void Add(const std::vector<T>& values) {
    ++count_;
    if (count_ == 1) {
      average = values;
      return;
    }
    const T weight = static_cast<T>(kind_ == Kind::kExponential ? 1 - decay_ : 1 / static_cast<double>(count_));
    for (size_t i = 0; i < values.size(); ++i) {
      volatile T difference = values[i] - average[i];
      volatile T step = weight * difference;
      average[i] = average[i] + step;
    }
  }
  std::vector<T> average;

 private:
  const Kind kind_;
  const double decay_;
  int count_ = 0;
};

TEST(Average, RefusesOptionsOutOfTheirRange) {
  const auto refused = [](AverageOptions options, const std::string& what) {
    EXPECT_THAT(MakeAverage(std::move(options)), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(what)));
  };
  refused({.name = "a.b"}, "name: expected 1 to 256 bytes without '.', '*', '?' and line ends, found 'a.b'");
  refused({.name = ""}, "name: expected");
  refused({.entries = {}}, "entries: expected one pattern or more");
  refused({.decay = 1}, "decay: expected 0 or more and less than 1, found 1");
  refused({.decay = std::nan("")}, "decay: expected");
  refused({.begin_step = -1}, "begin_step: expected 0 or more, found -1");
  refused({.every_steps = 0}, "every_steps: expected 1 or more, found 0");
}

TEST(Average, IsTheSameBitsAsTheDefinition) {
  constexpr uint32_t kSeed = 77;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  for (const Kind kind : {Kind::kExponential, Kind::kUniform}) {
    // Large enough for several pieces, and not a multiple of anything.
    const size_t count = 600'001;
    auto average = Make({.kind = kind, .decay = 0.9});
    NaiveAverage<float> single(kind, 0.9);
    NaiveAverage<double> twice(kind, 0.9);
    for (int64_t step = 0; step < 4; ++step) {
      const auto floats = RandomValues<float>(random, count);
      const auto doubles = RandomValues<double>(random, 1001);
      TestSnapshot snapshot(step);
      snapshot.Add("model.single", floats).Add("model.double", doubles);
      ASSERT_THAT(average->Update(snapshot), IsOk());
      single.Add(floats);
      twice.Add(doubles);
      ASSERT_EQ(Values<float>(*average, "ema.model.single"), single.average);
      ASSERT_EQ(Values<double>(*average, "ema.model.double"), twice.average);
      EXPECT_EQ(Snapshots(*average), step + 1);
    }
  }
}

TEST(Average, AveragesNarrowNumbersInFloat32) {
  auto average = Make({.kind = Kind::kUniform});
  for (const uint16_t bits : {0x3f80, 0x4000}) {  // bfloat16 1 and 2; float16 1.875 and 2
    TestSnapshot snapshot(bits);
    snapshot.Add({.name = "model.bf16", .dtype = Dtype::kBfloat16, .shape = {5000}}, std::vector<uint16_t>(5000, bits));
    snapshot.Add({.name = "model.fp16", .dtype = Dtype::kFloat16, .shape = {1}}, std::vector<uint16_t>{bits});
    snapshot.Add({.name = "model.fp8", .dtype = Dtype::kFloat8E5M2, .shape = {1}},
                 std::vector<uint8_t>{static_cast<uint8_t>(bits >> 8)});
    snapshot.Add({.name = "model.complex", .dtype = Dtype::kBcomplex32, .shape = {1}},
                 std::vector<uint16_t>{bits, 0x3f80});
    ASSERT_THAT(average->Update(snapshot), IsOk());
  }
  EXPECT_EQ(Values<float>(*average, "ema.model.bf16"), std::vector<float>(5000, 1.5F));
  EXPECT_THAT(Values<float>(*average, "ema.model.fp16"), ElementsAre(1.9375F));
  EXPECT_THAT(Values<float>(*average, "ema.model.fp8"), ElementsAre(1.875F));  // 1.75 and 2
  EXPECT_THAT(Values<float>(*average, "ema.model.complex"), ElementsAre(1.5F, 1.0F));
  EXPECT_EQ(Find(*average, "ema.model.bf16")->spec.dtype, Dtype::kFloat32);
  EXPECT_EQ(Find(*average, "ema.model.complex")->spec.dtype, Dtype::kComplex64);
}

TEST(Average, TakesOtherTensorsFromTheNewestSnapshotAndLeavesValuesOut) {
  auto average = Make({.entries = {"*"}});
  for (const int64_t number : {5, 9}) {
    TestSnapshot snapshot(number);
    snapshot.Add("weight", std::vector<float>{1});
    snapshot.Add({.name = "batches", .dtype = Dtype::kInt64}, std::vector<int64_t>{number});
    snapshot.Add({.name = "epoch", .kind = EntryKind::kInt64, .dtype = Dtype::kInt64}, std::vector<int64_t>{number});
    snapshot.Add("empty", std::vector<float>{});
    ASSERT_THAT(average->Update(snapshot), IsOk());
  }
  EXPECT_THAT(Values<int64_t>(*average, "ema.batches"), ElementsAre(9));
  EXPECT_EQ(Find(*average, "ema.epoch"), nullptr);
  EXPECT_EQ(Find(*average, "ema.empty")->bytes, 0u);
}

TEST(Average, TakesInTheSnapshotsThatTheOptionsName) {
  auto average = Make({.kind = Kind::kUniform, .begin_step = 10, .every_steps = 5});
  for (int64_t step = 0; step < 22; ++step) {
    ASSERT_THAT(average->Update(TestSnapshot(step).Add("model.w", std::vector<double>{static_cast<double>(step)})),
                IsOk());
    if (step == 9) {
      EXPECT_EQ(Snapshots(*average), 0);
      EXPECT_EQ(average->state().entries().size(), 1u);
    }
  }
  EXPECT_EQ(Snapshots(*average), 3);  // 10, 15, 20
  EXPECT_THAT(Values<double>(*average, "ema.model.w"), ElementsAre(15));
}

TEST(Average, CountsAStepOnceThatComesTwiceInARow) {
  auto average = Make({.kind = Kind::kUniform});
  const auto update = [&](int64_t step, double value) {
    ASSERT_THAT(average->Update(TestSnapshot(step).Add("model.w", std::vector<double>{value})), IsOk());
  };
  for (const int64_t step : {1, 2, 2}) update(step, static_cast<double>(step));
  EXPECT_EQ(Snapshots(*average), 2);
  EXPECT_THAT(Values<double>(*average, "ema.model.w"), ElementsAre(1.5));
  update(1, 6);  // back, but not by a restore: another snapshot of that step
  EXPECT_EQ(Snapshots(*average), 3);
  EXPECT_THAT(Values<double>(*average, "ema.model.w"), ElementsAre(3));
  average->Reset();
  update(1, 6);
  EXPECT_EQ(Snapshots(*average), 1);
}

TEST(Average, KeepsTiedTensorsOnce) {
  auto average = Make();
  TestSnapshot snapshot;
  snapshot.Add("model.a", std::vector<float>{1, 2}).AddTied("model.b", "model.a");
  ASSERT_THAT(average->Update(snapshot), IsOk());
  const State::Entry* a = Find(*average, "ema.model.a");
  const State::Entry* b = Find(*average, "ema.model.b");
  EXPECT_EQ(a->host, b->host);
  EXPECT_EQ(b->alias_of, a - average->state().entries().data());
}

TEST(Average, RefusesPatternsThatMatchNothingAndTheNameOfItsCount) {
  auto average = Make({.entries = {"model.*", "head.*"}});
  EXPECT_THAT(average->Update(TestSnapshot().Add("model.w", std::vector<float>{1})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the pattern 'head.*' matches no entry")));
  TestSnapshot values;
  values.Add({.name = "model.epoch", .kind = EntryKind::kInt64, .dtype = Dtype::kInt64}, std::vector<int64_t>{1});
  EXPECT_THAT(Make()->Update(values),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the patterns match no tensor")));
  EXPECT_THAT(Make({.entries = {"*"}})->Update(TestSnapshot().Add("snapshots", std::vector<float>{1})),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("the entry's name 'snapshots' is reserved")));
}

TEST(Average, RefusesATensorInSeveralBoxes) {
  TestSnapshot snapshot;
  snapshot.Add("model.whole", std::vector<float>{1});
  for (const int64_t row : {0, 1}) {
    snapshot.Add({.name = "model.w", .dtype = Dtype::kFloat32, .shape = {2}, .box_offset = {row}, .box_extent = {1}},
                 std::vector<float>{1});
  }
  EXPECT_THAT(Make()->Update(snapshot),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("'model.w' is saved in several boxes")));
  EXPECT_THAT(Make({.entries = {"model.whole"}})->Update(snapshot), IsOk());
}

TEST(Average, RefusesOtherTensorsThanItBeganWith) {
  const auto begin = [] {
    auto average = Make();
    TestSnapshot snapshot;
    snapshot.Add("model.a", std::vector<float>{1}).Add("model.b", std::vector<float>{2});
    snapshot.AddTied("model.tied", "model.a");
    EXPECT_THAT(average->Update(snapshot), IsOk());
    return average;
  };
  const auto refused = [&](const TestSnapshot& snapshot, const std::string& what) {
    auto average = begin();
    EXPECT_THAT(average->Update(snapshot),
                StatusIs(absl::StatusCode::kFailedPrecondition, AllOf(HasSubstr(what), HasSubstr("Companion::Reset"))));
    EXPECT_EQ(Snapshots(*average), 1);
    EXPECT_THAT(Values<float>(*average, "ema.model.b"), ElementsAre(2.0F));
    average->Reset();
    EXPECT_THAT(average->Update(snapshot), IsOk());
    EXPECT_EQ(Snapshots(*average), 1);
  };
  const std::vector<float> one{1};
  refused(TestSnapshot().Add("model.a", one).Add("model.b", one), "'ema.model.tied' has gone");
  refused(TestSnapshot().Add("model.a", one).Add("model.b", one).AddTied("model.tied", "model.a").Add("model.c", one),
          "'ema.model.c' has come");
  refused(TestSnapshot().Add("model.a", one).Add("model.b", std::vector<float>{1, 2}).AddTied("model.tied", "model.a"),
          "'ema.model.b' was float32 [1] and would be float32 [2]");
  refused(TestSnapshot().Add("model.a", one).Add("model.b", std::vector<double>{1}).AddTied("model.tied", "model.a"),
          "'ema.model.b' was float32 [1] and would be float64 [1]");
  refused(TestSnapshot().Add("model.a", one).Add("model.b", one).Add("model.tied", one),
          "'ema.model.tied' is no longer tied to 'ema.model.a'");
  refused(TestSnapshot().Add("model.a", one).AddTied("model.b", "model.a").AddTied("model.tied", "model.a"),
          "'ema.model.b' has been tied to 'ema.model.a'");
}

// Fills `average` as a restore of what `saved` holds does.
void Restore(Companion& saved, Companion& average) {
  ASSERT_THAT(saved.state().Refresh(), IsOk());
  std::vector<EntrySpec> specs;
  for (const State::Entry& entry : saved.state().entries()) specs.push_back(entry.spec);
  State& state = average.state();
  ASSERT_THAT(state.PrepareRestore(specs), IsOk());
  for (size_t i = 0; i < state.entries().size(); ++i) {
    const State::Entry* from = Find(saved, state.entries()[i].spec.name);
    ASSERT_NE(from, nullptr);
    if (from->spec.kind == EntryKind::kTensor) {
      if (from->bytes > 0) std::memcpy(state.entries()[i].host, from->host, from->bytes);
    } else {
      ASSERT_THAT(state.Receive(i, {from->host, from->bytes}), IsOk());
    }
  }
  ASSERT_THAT(state.FinishRestore(), IsOk());
}

TEST(Average, GoesOnAfterARestoreAsIfThereHadBeenNone) {
  constexpr uint32_t kSeed = 78;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937 random(kSeed);
  const auto snapshot = [&](int64_t step) {
    TestSnapshot made(step);
    made.Add("model.a", RandomValues<float>(random, 1000));
    made.AddTied("model.tied", "model.a");
    made.Add("model.b", RandomValues<double>(random, 10));
    return made;
  };
  for (const Kind kind : {Kind::kExponential, Kind::kUniform}) {
    auto uninterrupted = Make({.kind = kind});
    for (int64_t step = 0; step < 3; ++step) ASSERT_THAT(uninterrupted->Update(snapshot(step)), IsOk());
    auto resumed = Make({.kind = kind});
    Restore(*uninterrupted, *resumed);
    EXPECT_EQ(Snapshots(*resumed), 3);
    for (int64_t step = 3; step < 6; ++step) {
      const TestSnapshot next = snapshot(step);
      ASSERT_THAT(uninterrupted->Update(next), IsOk());
      ASSERT_THAT(resumed->Update(next), IsOk());
    }
    EXPECT_EQ(Values<float>(*resumed, "ema.model.a"), Values<float>(*uninterrupted, "ema.model.a"));
    EXPECT_EQ(Values<double>(*resumed, "ema.model.b"), Values<double>(*uninterrupted, "ema.model.b"));
    EXPECT_EQ(Find(*resumed, "ema.model.a")->host, Find(*resumed, "ema.model.tied")->host);
    EXPECT_EQ(Snapshots(*resumed), 6);
  }
}

TEST(Average, IsAsItWasAfterARestoreThatFailed) {
  auto average = Make();
  ASSERT_THAT(average->Update(TestSnapshot().Add("model.w", std::vector<float>{1, 2})), IsOk());
  const std::vector<EntrySpec> specs = {{.name = "ema.snapshots", .kind = EntryKind::kInt64, .dtype = Dtype::kInt64},
                                        {.name = "ema.model.w", .dtype = Dtype::kFloat32, .shape = {2}}};
  ASSERT_THAT(average->state().PrepareRestore(specs), IsOk());
  std::memset(average->state().entries()[1].host, 0, 8);
  average->state().AbandonRestore();
  EXPECT_THAT(Values<float>(*average, "ema.model.w"), ElementsAre(1.0F, 2.0F));
  EXPECT_EQ(Snapshots(*average), 1);
}

TEST(Average, RefusesWhatIsNoAverage) {
  auto average = Make();
  EXPECT_THAT(average->state().PrepareRestore(
                  std::vector<EntrySpec>{{.name = "ema.note", .kind = EntryKind::kString, .shape = {3}}}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("'ema.note' of the checkpoint is neither a whole tensor nor an average")));
  average->state().AbandonRestore();
  ASSERT_THAT(average->state().PrepareRestore(std::vector<EntrySpec>{}), IsOk());
  const int64_t snapshots = 3;
  EXPECT_THAT(average->state().Receive(0, std::as_bytes(std::span(&snapshots, 1))),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has a count of 3 snapshots, but 0 tensors")));
}

}  // namespace
}  // namespace tidemark
