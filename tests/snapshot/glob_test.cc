#include "snapshot/glob.h"

#include <string>

#include "gtest/gtest.h"

namespace tidemark {
namespace {

TEST(Glob, MatchesLiteralsRunsAndSingles) {
  EXPECT_TRUE(GlobMatches("model.weight", "model.weight"));
  EXPECT_TRUE(GlobMatches("model.*", "model.layers.0.weight"));
  EXPECT_TRUE(GlobMatches("*.bias", "model.layers.0.bias"));
  EXPECT_TRUE(GlobMatches("*lay*.?.w*t", "model.layers.0.weight"));
  EXPECT_TRUE(GlobMatches("*", ""));
  EXPECT_TRUE(GlobMatches("", ""));
}

TEST(Glob, RefusesWhatDoesNotMatch) {
  EXPECT_FALSE(GlobMatches("model.weight", "model.weights"));
  EXPECT_FALSE(GlobMatches("model.?", "model."));
  EXPECT_FALSE(GlobMatches("*.bias", "model.bias.weight"));
  EXPECT_FALSE(GlobMatches("", "a"));
}

TEST(Glob, EndsSoonOnPatternsOfManyStars) {
  EXPECT_FALSE(GlobMatches(std::string(200, '*') + "b", std::string(5000, 'a')));
}

TEST(Renamed, MapsANameAndEverythingBelowIt) {
  EXPECT_EQ(Renamed("model.encoder.weight", {{"model.encoder", "model.backbone"}}), "model.backbone.weight");
  EXPECT_EQ(Renamed("epoch", {{"epoch", "progress.epoch"}}), "progress.epoch");
}

TEST(Renamed, LeavesNamesThatOnlyBeginAlike) {
  EXPECT_EQ(Renamed("model.encoder2.weight", {{"model.encoder", "x"}}), "model.encoder2.weight");
}

TEST(Renamed, TakesTheFirstRuleThatFits) { EXPECT_EQ(Renamed("a.b", {{"a", "x"}, {"a.b", "y"}}), "x.b"); }

}  // namespace
}  // namespace tidemark
