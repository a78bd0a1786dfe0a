#include "tidemark/torch_file.h"

#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "caffe2/serialize/inline_container.h"
#include "tests/snapshot/exchange/torch_pickle_testing.h"
#include "tests/snapshot/test_snapshot.h"
#include "tests/snapshot/torch/torch_test_headers.h"
#include "tests/snapshot/torch/torch_test_model.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/io/test_directory.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

using Records = std::vector<std::pair<std::string, std::vector<float>>>;

class TorchFileTest : public ::testing::Test {
 protected:
  // A file as torch.save writes it.
  void Write(const std::string& pickle, const Records& records = {}) {
    caffe2::serialize::PyTorchStreamWriter writer(path_);
    writer.writeRecord("data.pkl", pickle.data(), pickle.size());
    for (const auto& [name, numbers] : records) {
      writer.writeRecord("data/" + name, numbers.data(), numbers.size() * sizeof(float));
    }
    writer.writeEndOfFile();
  }
  absl::StatusOr<std::shared_ptr<const Snapshot>> Read(std::string_view prefix = "") {
    return ReadTorchFile(path_, prefix);
  }
  // The error of reading one tensor named "t".
  absl::Status ErrorOf(const std::string& tensor) {
    using namespace pickled;  // NOLINT: its instructions are what these tests consist of
    Write(Whole(Dict({Text("t"), tensor})), {{"0", {1, 2, 3, 4}}});
    return Read().status();
  }
  std::vector<std::string> Names(const Snapshot& snapshot) {
    std::vector<std::string> names;
    for (const EntrySpec& spec : snapshot.entries()) names.push_back(spec.name);
    return names;
  }

  storage::TestDirectory directory_;
  const std::string path_ = directory_ / "file.pt";
};

TEST_F(TorchFileTest, OfAStateDictFillsAModule) {
  using namespace pickled;  // NOLINT
  // With what PyTorch says of its versions, as fields of the dictionary.
  Write(Whole(WithState(OrderedDict({Text("weight"), Tensor("0", 0, {2, 3}, {3, 1}), Text("bias"),
                                     Call(Global("torch._utils", "_rebuild_parameter"),
                                          {Tensor("1", 1, {2}, {1}), "\x88", OrderedDict({})})}),
                        Dict({Text("_metadata"), OrderedDict({Text(""), Dict({Text("version"), Integer(1)})})}))),
        {{"0", {1, 2, 3, 4, 5, 6}}, {"1", {0, 7, 8}}});
  const auto file = Read("model");
  ASSERT_THAT(file, IsOk());
  EXPECT_EQ((*file)->step(), 0);
  torch::nn::Linear layer(3, 2);
  ASSERT_THAT(LoadModule(**file, "model", *layer), IsOk());
  EXPECT_TRUE(at::equal(layer->weight, torch::tensor({{1.0F, 2.0F, 3.0F}, {4.0F, 5.0F, 6.0F}})));
  EXPECT_TRUE(at::equal(layer->bias, torch::tensor({7.0F, 8.0F})));
  torch::nn::Linear other(3, 4);
  EXPECT_THAT(LoadModule(**file, "model", *other),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("shape: snapshot has [2, 3], module has [4, 3]")));
}

TEST_F(TorchFileTest, OfLibTorchsOwnFillsAModule) {
  auto saved = std::make_shared<Model>();
  saved->first->norm->running_mean.fill_(3);
  saved->first->norm->num_batches_tracked.fill_(12);
  torch::save(saved, path_);
  const auto file = Read("model");
  ASSERT_THAT(file, IsOk());
  Model model;
  ASSERT_THAT(LoadModule(**file, "model", model), IsOk());
  EXPECT_TRUE(at::equal(model.first->linear->weight, saved->first->linear->weight));
  EXPECT_TRUE(at::equal(model.first->norm->running_mean, saved->first->norm->running_mean));
  EXPECT_EQ(model.first->norm->num_batches_tracked.item<int64_t>(), 12);
}

TEST_F(TorchFileTest, NamesTensorsByTheWayToThem) {
  using namespace pickled;  // NOLINT
  const std::string tensor = Tensor("0", 0, {1}, {1});
  Write(Whole(Dict({Text("model"), OrderedDict({Text("a.b"), tensor}), Text("epoch"), Integer(3), Text("optimizer"),
                    Dict({Text("state"), Dict({Integer(0), Dict({Text("exp_avg"), tensor})}), Text("history"),
                          Tuple({tensor, tensor})})})),
        {{"0", {1}}});
  const auto file = Read();
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(Names(**file), UnorderedElementsAre("model.a.b", "optimizer.state.0.exp_avg", "optimizer.history.0",
                                                  "optimizer.history.1"));
}

TEST_F(TorchFileTest, ReadsViewsAsWhatTheyReadAsAndSharesWhatIsShared) {
  using namespace pickled;  // NOLINT
  Write(Whole(Dict({Text("whole"), Tensor("0", 0, {2, 3}, {3, 1}), Text("turned"), Tensor("0", 0, {3, 2}, {1, 3}),
                    Text("tied"), Tensor("0", 0, {2, 3}, {3, 1}), Text("part"), Tensor("0", 4, {2}, {1}), Text("empty"),
                    Tensor("0", 0, {0, 5}, {5, 1}), Text("scalar"), Tensor("0", 5, {}, {})})),
        {{"0", {1, 2, 3, 4, 5, 6}}});
  const auto file = Read();
  ASSERT_THAT(file, IsOk());
  const Snapshot& snapshot = **file;
  EXPECT_THAT(Numbers<float>(snapshot, "turned"), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(Numbers<float>(snapshot, "part"), ElementsAre(5, 6));
  EXPECT_THAT(Numbers<float>(snapshot, "scalar"), ElementsAre(6));
  EXPECT_EQ(snapshot.bytes(*snapshot.Find("whole")).data(), snapshot.bytes(*snapshot.Find("tied")).data());
  EXPECT_TRUE(snapshot.bytes(*snapshot.Find("empty")).empty());
  for (size_t i = 0; i < snapshot.entries().size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(snapshot.bytes(i).data()) % 64, 0u) << snapshot.entries()[i].name;
  }
}

TEST_F(TorchFileTest, CallsNothingAndLeavesOtherObjectsOut) {
  using namespace pickled;  // NOLINT
  const std::string touch = directory_ / "touched";
  const std::string attack = Call(Global("os", "system"), {Text("touch " + touch)});
  Write(Whole(Dict({Text("t"), Tensor("0", 0, {1}, {1}), Text("config"), attack})), {{"0", {1}}});
  const auto file = Read();
  ASSERT_THAT(file, IsOk());
  EXPECT_THAT(Names(**file), ElementsAre("t"));
  EXPECT_FALSE(std::ifstream(touch).good());
  Write(Whole(attack));
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no tensors")));
}

TEST_F(TorchFileTest, RefusesTensorsThatAreNotInTheirRecord) {
  using namespace pickled;  // NOLINT
  const auto kDataLoss = absl::StatusCode::kDataLoss;
  constexpr std::string_view kOutside = "'t': a tensor that is not in its record of 16 bytes";
  EXPECT_THAT(ErrorOf(Tensor("0", 0, {4}, {1})), IsOk());
  EXPECT_THAT(ErrorOf(Tensor("0", 0, {5}, {1})), StatusIs(kDataLoss, HasSubstr(kOutside)));
  EXPECT_THAT(ErrorOf(Tensor("0", 1, {4}, {1})), StatusIs(kDataLoss, HasSubstr(kOutside)));
  EXPECT_THAT(ErrorOf(Tensor("0", -1, {1}, {1})), StatusIs(kDataLoss, HasSubstr(kOutside)));
  EXPECT_THAT(ErrorOf(Tensor("0", 4, {}, {})), StatusIs(kDataLoss, HasSubstr(kOutside)));
  EXPECT_THAT(ErrorOf(Tensor("0", 0, {2, 2}, {3, 1})), StatusIs(kDataLoss, HasSubstr(kOutside)));
  EXPECT_THAT(ErrorOf(Tensor("0", 0, {2}, {-1})), StatusIs(kDataLoss, HasSubstr(kOutside)));
  EXPECT_THAT(ErrorOf(Tensor("0", 0, {-2}, {1})), StatusIs(kDataLoss, HasSubstr(kOutside)));
  EXPECT_THAT(ErrorOf(Tensor("0", 0, {3}, {1}, "DoubleStorage")), StatusIs(kDataLoss, HasSubstr(kOutside)));
  EXPECT_THAT(ErrorOf(Tensor("0", 0, {2147483647, 2147483647, 2147483647}, {1, 1, 1})),
              StatusIs(kDataLoss, HasSubstr(kOutside)));
  EXPECT_THAT(ErrorOf(Tensor("9", 0, {1}, {1})), StatusIs(kDataLoss, HasSubstr("the record data/9 is absent")));
}

TEST_F(TorchFileTest, RefusesTensorsThatItDoesNotRead) {
  using namespace pickled;  // NOLINT
  const auto kUnimplemented = absl::StatusCode::kUnimplemented;
  EXPECT_THAT(ErrorOf(Tensor("0", 0, {8}, {0})), StatusIs(kUnimplemented, HasSubstr("'t': an expanded tensor")));
  EXPECT_THAT(ErrorOf(Tensor("0", 0, {1}, {1}, "QInt8Storage")),
              StatusIs(kUnimplemented, HasSubstr("'t': a torch.QInt8Storage")));
  EXPECT_THAT(ErrorOf(Tensor("0", 0, {1}, {1}, "FloatStorage", "_rebuild_qtensor")),
              StatusIs(kUnimplemented, HasSubstr("'t': made by torch._utils._rebuild_qtensor")));
}

TEST_F(TorchFileTest, RefusesNamesThatAreTakenOrNone) {
  using namespace pickled;  // NOLINT
  const std::string tensor = Tensor("0", 0, {1}, {1});
  Write(Whole(Dict({Text("a.b"), tensor, Text("a"), Dict({Text("b"), tensor})})), {{"0", {1}}});
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("two tensors have the name 'a.b'")));
  Write(Whole(tensor), {{"0", {1}}});
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Read("alone"), IsOk());
  Write(Whole(Dict({Text(std::string(5000, 'x')), tensor})), {{"0", {1}}});
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("a name of 5001 bytes")));
}

// One key of 4 MB that 100,000 pairs use would be copied for each of them: 400 GB.
TEST_F(TorchFileTest, CopiesNoKeyThatIsTooLongForAName) {
  using namespace pickled;  // NOLINT
  std::string pairs = Text(std::string(4 << 20, 'x')) + "q\x01" + "N";
  for (int i = 0; i < 100'000; ++i) pairs += "h\x01N";
  Write(Whole("}(" + pairs + "u"));
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("at most 4096 are read")));
}

TEST_F(TorchFileTest, EndsForObjectsThatAreNestedOrSharedWithoutEnd) {
  using namespace pickled;  // NOLINT
  const auto is_too_often = StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("refer to each other too often"));
  Write(
      Whole("]q\x01h\x01"
            "a"));
  EXPECT_THAT(Read(), is_too_often);
  Write(Whole("K\x01" + std::string(150, '\x85')));
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("nested too deep")));
  // 40 dictionaries. Each contains the one before it twice.
  std::string nested = Tensor("0", 0, {1}, {1}) + "q\x01";
  for (int i = 0; i < 40; ++i) nested = nested + "0" + "}(" + Text("a") + "h\x01" + Text("b") + "h\x01" + "uq\x01";
  Write(Whole(nested), {{"0", {1}}});
  EXPECT_THAT(Read(), is_too_often);
}

TEST_F(TorchFileTest, RefusesFilesOfOtherSorts) {
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kNotFound, HasSubstr(path_)));
  std::ofstream(path_) << "\x80\x02 an old one";
  EXPECT_THAT(Read(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("since PyTorch 1.6")));
  std::ofstream(path_) << "PK and then nothing";
  EXPECT_EQ(Read().status().code(), absl::StatusCode::kInternal);
}

TEST_F(TorchFileTest, SurvivesDamage) {
  using namespace pickled;  // NOLINT
  Write(Whole(OrderedDict({Text("weight"), Tensor("0", 0, {2, 3}, {3, 1}), Text("bias"), Tensor("0", 4, {2}, {1})})),
        {{"0", {1, 2, 3, 4, 5, 6}}});
  std::ifstream in(path_, std::ios::binary);
  const std::string whole((std::istreambuf_iterator<char>(in)), {});
  std::mt19937 random(7);
  int failures = 0;
  for (int i = 0; i < 500; ++i) {
    std::string damaged = whole;
    if (i % 4 == 0) {
      damaged.resize(random() % whole.size());
    } else {
      for (int byte = 0; byte < i % 4; ++byte) damaged[random() % whole.size()] = static_cast<char>(random());
    }
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << damaged;
    failures += Read().ok() ? 0 : 1;
  }
  EXPECT_GT(failures, 100);
}

}  // namespace
}  // namespace tidemark
