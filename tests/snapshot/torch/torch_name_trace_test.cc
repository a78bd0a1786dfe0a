#include "snapshot/torch/torch_name_trace.h"

#include "tests/snapshot/torch/torch_test_headers.h"

namespace tidemark {
namespace {

// "(name" goes down, ")" goes up, "." counts. Returns the name at each count, with "!" before it if it is not known to
// be the last walk's.
std::vector<std::string> Walk(NameTrace& trace, const std::vector<std::string>& steps) {
  std::vector<std::string> names;
  trace.Begin();
  for (const std::string& step : steps) {
    if (step == ")") {
      trace.Pop();
    } else if (step == ".") {
      const bool known = trace.Count();
      names.push_back((known ? "" : "!") + trace.Name());
      EXPECT_TRUE(trace.IsAt(trace.Name()));
    } else {
      trace.Push(step.substr(1));
    }
  }
  return names;
}

using ::testing::ElementsAre;

const std::vector<std::string> kWalk = {"(a", "(b", ".", ")", "(", "(c", ".", ")", ")", ")", "(d", ".", ")"};

TEST(NameTrace, TheSameWalkIsKnownThroughout) {
  NameTrace trace;
  EXPECT_THAT(Walk(trace, kWalk), ElementsAre("!a.b", "!a.c", "!d"));
  EXPECT_FALSE(trace.End());
  EXPECT_THAT(Walk(trace, kWalk), ElementsAre("a.b", "a.c", "d"));
  EXPECT_TRUE(trace.following());
  EXPECT_TRUE(trace.End());
}

TEST(NameTrace, AnotherWayIsUnknownFromWhereItParts) {
  NameTrace trace;
  Walk(trace, kWalk);
  trace.End();
  const std::vector<std::string> renamed = {"(a", "(b", ".", ")", "(", "(x", ".", ")", ")", ")", "(d", ".", ")"};
  EXPECT_THAT(Walk(trace, renamed), ElementsAre("a.b", "!a.x", "!d"));
  EXPECT_FALSE(trace.End());
  EXPECT_THAT(Walk(trace, renamed), ElementsAre("a.b", "a.x", "d"));
  EXPECT_TRUE(trace.End());
}

TEST(NameTrace, PartsWithTheSameBytesAtOtherBoundsAreOthers) {
  NameTrace trace;
  Walk(trace, {"(ab", "(c", ".", ")", ")"});
  trace.End();
  EXPECT_THAT(Walk(trace, {"(a", "(bc", ".", ")", ")"}), ElementsAre("!a.bc"));
  trace.End();
  EXPECT_THAT(Walk(trace, {"(a", ")", "(bc", ".", ")"}), ElementsAre("!bc"));
}

TEST(NameTrace, AWalkThatEndsEarlierOrLaterIsAnother) {
  NameTrace trace;
  Walk(trace, {"(a", ".", ")", "(b", ".", ")"});
  trace.End();
  EXPECT_THAT(Walk(trace, {"(a", ".", ")"}), ElementsAre("a"));
  EXPECT_FALSE(trace.End());
  EXPECT_THAT(Walk(trace, {"(a", ".", ")"}), ElementsAre("a"));
  EXPECT_TRUE(trace.End());
  EXPECT_THAT(Walk(trace, {"(a", ".", ")", "(b", ".", ")"}), ElementsAre("a", "!b"));
  EXPECT_FALSE(trace.End());
}

TEST(NameTrace, CountingElsewhereIsAnotherWay) {
  NameTrace trace;
  Walk(trace, {"(a", ".", ")", "(b", ")"});
  trace.End();
  EXPECT_THAT(Walk(trace, {"(a", ")", "(b", ".", ")"}), ElementsAre("!b"));
  EXPECT_FALSE(trace.End());
}

TEST(NameTrace, KnowsNothingAfterClear) {
  NameTrace trace;
  Walk(trace, kWalk);
  trace.End();
  trace.Clear();
  EXPECT_THAT(Walk(trace, kWalk), ElementsAre("!a.b", "!a.c", "!d"));
}

}  // namespace
}  // namespace tidemark
