#include "snapshot/exchange/torch_contents.h"

#include <string>

#include "gmock/gmock.h"
#include "tests/snapshot/exchange/torch_pickle_testing.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using namespace pickled;  // NOLINT: its instructions are what these tests consist of
using storage::IsOk;
using storage::StatusIs;
using ::testing::HasSubstr;

// Every record has 16 bytes, except data/9, which is absent.
absl::StatusOr<TorchContents> ContentsOf(const std::string& object, std::string_view prefix = "") {
  const std::string bytes = Whole(object);
  const absl::StatusOr<Pickle> pickle = ReadPickle(bytes);
  if (!pickle.ok()) return pickle.status();
  return FindTorchContents(*pickle, prefix, [](const std::string& record) {
    return record == "data/9" ? std::nullopt : std::optional<uint64_t>(16);
  });
}

std::string One() { return Tensor("0", 0, {1}, {1}); }

// A tensor of a type that has no storage class.
std::string Untyped(const std::string& dtype) {
  const std::string storage =
      Tuple({Text("storage"), Global("torch.storage", "UntypedStorage"), Text("0"), Text("cpu"), Integer(16)}) + "Q";
  return Call(Global("torch._utils", "_rebuild_tensor_v3"),
              {storage, Integer(2), Integers({3}), Integers({1}), "\x89", OrderedDict({}), Global("torch", dtype)});
}

std::string ValueOf(const std::string& object) {
  const auto contents = ContentsOf(Dict({Text("t"), One(), Text("v"), object}));
  EXPECT_THAT(contents, IsOk());
  if (!contents.ok() || contents->values.size() != 1) return "no value";
  EXPECT_EQ(contents->values[0].name, "v");
  return contents->values[0].text;
}

TEST(TorchContents, HasTensorsWithTheirPlacesAndTies) {
  const auto contents = ContentsOf(
      Dict({Text("a"), Tensor("0", 1, {3}, {1}), Text("b"), Dict({Integer(7), Tensor("0", 1, {3}, {1})})}), "model");
  ASSERT_THAT(contents, IsOk());
  ASSERT_EQ(contents->tensors.size(), 2u);
  const TorchTensor& tensor = contents->tensors[0];
  EXPECT_EQ(tensor.spec, (EntrySpec{.name = "model.a", .dtype = Dtype::kFloat32, .shape = {3}}));
  EXPECT_EQ(tensor.bytes, 12u);
  EXPECT_THAT(contents->records, testing::ElementsAre("data/0"));
  EXPECT_EQ(tensor.record, 0u);
  EXPECT_EQ(tensor.offset, 1u);
  EXPECT_EQ(tensor.tied_to, std::nullopt);
  EXPECT_EQ(contents->tensors[1].spec.name, "model.b.7");
  EXPECT_EQ(contents->tensors[1].tied_to, 0u);
}

// A storage's key has up to 256 bytes, and a file up to 131,072 tensors.
TEST(TorchContents, HasTheNameOfARecordOnceForAllOfItsTensors) {
  const std::string key(200, 'k');
  std::vector<std::string> items;
  for (int i = 0; i < 100; ++i) {
    items.push_back(Integer(i));
    items.push_back(Tensor(i % 10 == 9 ? "other" : key, i % 4, {1}, {1}));
  }
  const auto contents = ContentsOf(Dict(items));
  ASSERT_THAT(contents, IsOk());
  ASSERT_EQ(contents->tensors.size(), 100u);
  EXPECT_THAT(contents->records, testing::ElementsAre("data/" + key, "data/other"));
  for (size_t i = 0; i < 100; ++i) EXPECT_EQ(contents->tensors[i].record, i % 10 == 9 ? 1u : 0u) << i;
}

TEST(TorchContents, HasTypesThatAreNamedBesideAnUntypedStorage) {
  const auto contents = ContentsOf(Dict({Text("t"), Untyped("float8_e4m3fn"), Text("u"), Untyped("uint16")}));
  ASSERT_THAT(contents, IsOk());
  EXPECT_EQ(contents->tensors[0].spec.dtype, Dtype::kFloat8E4M3Fn);
  EXPECT_EQ(contents->tensors[0].bytes, 3u);
  EXPECT_EQ(contents->tensors[1].spec.dtype, Dtype::kUint16);
  EXPECT_THAT(ContentsOf(Dict({Text("t"), Untyped("bits8")})),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("'t': a torch.bits8, which is not read")));
}

TEST(TorchContents, HasPlainValuesAsText) {
  EXPECT_EQ(ValueOf(Integer(-3)), "-3");
  EXPECT_EQ(ValueOf("N"), "null");
  EXPECT_EQ(ValueOf("\x88"), "true");
  EXPECT_EQ(ValueOf(Text("as it is")), "as it is");
  EXPECT_EQ(ValueOf(std::string("G\x3f\xb9\x99\x99\x99\x99\x99\x9a", 9)), "0.1");
  EXPECT_EQ(ValueOf(std::string("G\x7f\xf0\0\0\0\0\0\0", 9)), "Infinity");
  EXPECT_EQ(ValueOf(std::string("G\xff\xf0\0\0\0\0\0\0", 9)), "-Infinity");
  EXPECT_EQ(ValueOf(std::string("G\x7f\xf8\0\0\0\0\0\0", 9)), "NaN");
  EXPECT_EQ(ValueOf(Tuple({Integer(1), "N", "\x89", Text("\"")})), R"([1,null,false,"\""])");
  EXPECT_EQ(ValueOf("]"), "[]");
  EXPECT_EQ(ValueOf(Call(Global("torch", "Size"), {Tuple({Integer(2)})})), "[2]");
}

TEST(TorchContents, CountsWhatIsLeftOutAndNamesTheFirst) {
  const auto contents = ContentsOf(Dict({Text("t"), One(), Text("\x1b"), Call(Global("os", "system"), {Text("true")}),
                                         Text("c"), Global("torch", "float32"), "N", One()}));
  ASSERT_THAT(contents, IsOk());
  EXPECT_EQ(contents->left_out, 3u);
  EXPECT_EQ(contents->first_left_out, "'\\x1b' of os.system");
}

TEST(TorchContents, RefusesManyViewsOfAFewBytes) {
  std::vector<std::string> pairs;
  for (int i = 0; i < 40; ++i) {
    pairs.push_back(Text("t" + std::to_string(i)));
    pairs.push_back(Tensor("0", 0, {2, 2, 1, 1}, {2, 1, i + 1, 1}));
  }
  EXPECT_THAT(ContentsOf(Dict(pairs)),
              StatusIs(absl::StatusCode::kUnimplemented,
                       HasSubstr("640 bytes, as views of records of 16; at most 16 times as many are read")));
}

TEST(TorchContents, RefusesTensorsWithWrongArguments) {
  EXPECT_THAT(ContentsOf(Dict({Text("t"), Tensor("9", 0, {1}, {1})})),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("'t': the record data/9 is absent")));
  EXPECT_THAT(ContentsOf(Dict({Text("t"), Tensor("0", 0, {1, 1}, {1})})),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("'t': a tensor with arguments of the wrong kind")));
  EXPECT_THAT(ContentsOf(Dict({Text("t"), Tensor("0", 0, std::vector<int32_t>(65, 1), std::vector<int32_t>(65, 1))})),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("wrong kind")));
  EXPECT_THAT(ContentsOf(Dict({Text("t"), Call(Global("torch._utils", "_rebuild_parameter"), {})})),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("has no arguments")));
}

// A string of 1 MB that a list has 100,000 times would be copied for each of them: 100 GB.
TEST(TorchContents, CopiesNoStringWithoutEnd) {
  std::string list = Text(std::string(1 << 20, 'x')) + "q\x01" + "0](";
  for (int i = 0; i < 100'000; ++i) list += "h\x01";
  const auto contents = ContentsOf(Dict({Text("t"), One(), Text("v"), list + "e", Text("w"), Integer(1)}));
  ASSERT_THAT(contents, IsOk());
  ASSERT_EQ(contents->values.size(), 1u);
  EXPECT_GT(contents->values[0].text.size(), kTorchValueBytesMax);
  EXPECT_LT(contents->values[0].text.size(), kTorchValueBytesMax + (2 << 20));
}

TEST(TorchContents, RefusesMoreTensorsThanItReads) {
  std::string list = One() + "q\x01" + "0](";
  for (size_t i = 0; i <= kTorchTensorsMax; ++i) list += "h\x01" + (i % 8 == 0 ? Integer(1) : std::string());
  EXPECT_THAT(ContentsOf(list + "e"), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("131073 tensors, or ")));
}

}  // namespace
}  // namespace tidemark
