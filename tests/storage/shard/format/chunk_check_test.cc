#include "storage/shard/format/chunk_check.h"

#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {
namespace {

using testing::HasSubstr;
using Depth = ChunkCheck::Depth;

class ChunkCheckTest : public testing::Test {
 protected:
  ChunkCheckTest() { Encode(/*compress=*/true); }

  void Encode(bool compress) {
    record_.digest = DigestOf(raw_);
    std::vector<std::byte> buffer;
    const std::span<const std::byte> bytes =
        ChunkEncoder().Encode(raw_, /*float_bytes=*/4, compress, &buffer, &record_);
    stored_.assign(bytes.begin(), bytes.end());
  }

  absl::Status Check(Depth depth) const { return ChunkCheck(depth).Check(raw_, record_, stored_); }

  void ExpectRefused(const std::string& why) const {
    for (const Depth depth : {Depth::kSizes, Depth::kBytes}) {
      EXPECT_THAT(Check(depth), StatusIs(absl::StatusCode::kInternal, HasSubstr(why)));
    }
  }

  std::mt19937_64 random_{1};
  std::vector<std::byte> raw_ = Weights(Dtype::kFloat32, 5000, random_);
  ChunkRecord record_;
  std::vector<std::byte> stored_;
};

TEST_F(ChunkCheckTest, TakesWhatTheEncoderMakes) {
  ASSERT_NE(record_.codec, Codec::kRaw);
  for (const bool compress : {true, false}) {
    Encode(compress);
    for (const Depth depth : {Depth::kSizes, Depth::kBytes}) EXPECT_THAT(Check(depth), IsOk()) << compress;
  }
}

TEST_F(ChunkCheckTest, RefusesSizesThatDoNotAgree) {
  record_.raw_bytes -= 4;
  ExpectRefused("raw bytes: expected 20000, found 19996");
  record_.raw_bytes += 4;
  record_.stored_bytes -= 1;
  ExpectRefused("stored bytes: expected");
  record_.stored_bytes += 1;
  stored_.resize(raw_.size());
  record_.stored_bytes = stored_.size();
  ExpectRefused("stored bytes: expected less than 20000, found 20000");
  record_.codec = Codec::kRaw;
  stored_.resize(100);
  record_.stored_bytes = 100;
  ExpectRefused("bytes of a raw chunk: expected 20000, found 100");
}

TEST_F(ChunkCheckTest, RefusesTheFrameOfAnotherChunk) {
  raw_.resize(raw_.size() - 4);
  record_.raw_bytes = raw_.size();
  ExpectRefused("the frame's content size: expected 19996, found 20000");
}

TEST_F(ChunkCheckTest, DecodesWhatIsToBeStoredWhereAssertionsAreOn) {
  stored_.back() ^= std::byte{1};
  EXPECT_THAT(Check(Depth::kSizes), IsOk());
  EXPECT_THAT(Check(Depth::kBytes), StatusIs(absl::StatusCode::kInternal, HasSubstr("checksum of the stored bytes")));
  record_.checksum = ChecksumOf(stored_);
  EXPECT_THAT(Check(Depth::kBytes),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("a stored chunk differs from its encoding")));
}

TEST_F(ChunkCheckTest, HoldsWhatItDecodesAgainstTheBytesThemselves) {
  raw_.front() ^= std::byte{1};
  EXPECT_THAT(Check(Depth::kSizes), IsOk());
  EXPECT_THAT(Check(Depth::kBytes), StatusIs(absl::StatusCode::kInternal, HasSubstr("it decodes to different bytes")));
}

}  // namespace
}  // namespace tidemark::storage
