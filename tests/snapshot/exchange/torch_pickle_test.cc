#include "snapshot/exchange/torch_pickle.h"

#include <string>

#include "gmock/gmock.h"
#include "tests/snapshot/exchange/torch_pickle_testing.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark {
namespace {

using storage::IsOk;
using storage::StatusIs;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using Kind = PickleNode::Kind;

PickleNode RootOf(const std::string& pickle) {
  const auto read = ReadPickle(pickle);
  EXPECT_THAT(read, IsOk());
  return read.ok() ? read->nodes[read->root] : PickleNode();
}

TEST(TorchPickle, ReadsIntegersOfEveryLength) {
  using namespace pickled;  // NOLINT: its instructions are what the test consists of
  EXPECT_EQ(RootOf(Whole(Integer(-7))).integer, -7);
  EXPECT_EQ(RootOf(Whole("K\xff")).integer, 255);
  EXPECT_EQ(RootOf(Whole("M\xff\xff")).integer, 65535);
  EXPECT_EQ(RootOf(Whole(std::string("\x8a\x00", 2))).integer, 0);
  EXPECT_EQ(RootOf(Whole("\x8a\x01\xff")).integer, -1);
  EXPECT_EQ(RootOf(Whole(std::string("\x8a\x05\x00\x00\x00\x00\x01", 7))).integer, int64_t{1} << 32);
  EXPECT_EQ(RootOf(Whole("\x8a\x09" + std::string(9, 'x'))).kind, Kind::kOther);
  EXPECT_EQ(RootOf(Whole("\x88")).integer, 1);
}

TEST(TorchPickle, ReadsContainersAndWhatIsRememberedInThem) {
  using namespace pickled;  // NOLINT
  const std::string bytes = Whole(Dict({Text("a"),
                                        "]q\x05(K\x01K\x02"
                                        "e",
                                        Text("b"), "h\x05"}));
  const auto pickle = ReadPickle(bytes);
  ASSERT_THAT(pickle, IsOk());
  const PickleNode& dict = pickle->nodes[pickle->root];
  ASSERT_EQ(dict.kind, Kind::kDict);
  ASSERT_THAT(dict.items, SizeIs(4));
  EXPECT_EQ(pickle->nodes[dict.items[0]].text, "a");
  EXPECT_EQ(dict.items[1], dict.items[3]);
  EXPECT_THAT(pickle->nodes[dict.items[1]].items, SizeIs(2));
}

TEST(TorchPickle, ReadsCallsAsDataWithTheirItemsAndState) {
  using namespace pickled;  // NOLINT
  const auto pickle =
      ReadPickle(Whole(WithState(OrderedDict({Text("k"), Integer(3)}), Dict({Text("_metadata"), Integer(1)}))));
  ASSERT_THAT(pickle, IsOk());
  const PickleNode& call = pickle->nodes[pickle->root];
  EXPECT_EQ(call.kind, Kind::kCall);
  EXPECT_EQ(pickle->nodes[call.callee].text, "collections.OrderedDict");
  EXPECT_THAT(call.items, SizeIs(2));
  ASSERT_TRUE(call.state.has_value());
  EXPECT_EQ(pickle->nodes[*call.state].kind, Kind::kDict);
}

TEST(TorchPickle, ReadsProtocol4) {
  const std::string global = std::string(
      "\x8c\x05torch\x94\x8c\x05"
      "Thing\x94\x93\x94)\x81.",
      22);
  const std::string pickle = "\x80\x04\x95" + pickled::Raw(uint64_t{global.size()}) + global;
  const auto read = ReadPickle(pickle);
  ASSERT_THAT(read, IsOk());
  EXPECT_EQ(read->nodes[read->nodes[read->root].callee].text, "torch.Thing");
}

TEST(TorchPickle, RefusesWhatItDoesNotReadByTheOffset) {
  EXPECT_THAT(ReadPickle("\x80\x02Y."), StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("0x59 at byte 2")));
  EXPECT_THAT(ReadPickle("\x80\x09."), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("protocol 9")));
  EXPECT_THAT(ReadPickle("\x80\x02h\x01."), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("at byte 2")));
  EXPECT_THAT(ReadPickle("\x80\x02"
                         "a."),
              StatusIs(absl::StatusCode::kDataLoss, HasSubstr("stack is empty")));
  EXPECT_THAT(ReadPickle(""), StatusIs(absl::StatusCode::kDataLoss, HasSubstr("too early")));
}

TEST(TorchPickle, ReadsDoublesBoolsAndNone) {
  using namespace pickled;  // NOLINT
  EXPECT_EQ(RootOf(Whole(std::string("G\x3f\xe0\0\0\0\0\0\0", 9))).number, 0.5);
  EXPECT_EQ(RootOf(Whole("\x89")).kind, Kind::kBool);
  EXPECT_EQ(RootOf(Whole("N")).kind, Kind::kNone);
}

TEST(TorchPickle, RefusesMoreObjectsThanItIsAskedFor) {
  EXPECT_THAT(ReadPickle("\x80\x02" + std::string(4, 'N') + ".", 4), IsOk());
  EXPECT_THAT(ReadPickle("\x80\x02" + std::string(5, 'N') + ".", 4),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("more than 4 objects")));
}

// Three bytes can join a name of a megabyte to itself, any number of times.
TEST(TorchPickle, RefusesNamesOfClassesThatAreTooLong) {
  EXPECT_THAT(
      ReadPickle("\x80\x04" + pickled::Text(std::string(1 << 20, 'x')) + "\x94h" + std::string(1, '\0') + "\x93."),
      StatusIs(absl::StatusCode::kDataLoss, HasSubstr("the name of a class is too long")));
}

// Neither an abort nor a read outside of the bytes; address sanitizers see the latter.
TEST(TorchPickle, SurvivesEveryByteThatIsChangedAndEveryTruncation) {
  using namespace pickled;  // NOLINT
  const std::string pickle =
      Whole(Dict({Text("a"), Tensor("0", 0, {2}, {1}), Text("b"),
                  "]q\x05(K\x01K\x02"
                  "eh\x05"
                  "0",
                  "K\x01", WithState(OrderedDict({Text("k"), Integer(3)}), Dict({Text("m"), Integer(1)})), "\x8a\x02zz",
                  "C\x02zz"}));
  ASSERT_THAT(ReadPickle(pickle), IsOk());
  size_t nodes = 0;
  for (size_t at = 0; at < pickle.size(); ++at) {
    EXPECT_THAT(ReadPickle(std::string_view(pickle).substr(0, at)), StatusIs(absl::StatusCode::kDataLoss, testing::_))
        << at;
    for (int byte = 0; byte < 256; ++byte) {
      std::string changed = pickle;
      changed[at] = static_cast<char>(byte);
      if (const auto read = ReadPickle(changed); read.ok()) nodes += read->nodes.size();
    }
  }
  EXPECT_GT(nodes, 0u);
}

}  // namespace
}  // namespace tidemark
