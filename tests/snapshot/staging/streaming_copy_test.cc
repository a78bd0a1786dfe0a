#include "snapshot/staging/streaming_copy.h"

#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tidemark {
namespace {

TEST(StreamingCopy, CopiesEveryLengthAtEveryAlignmentAndNothingBeside) {
  constexpr size_t kRoom = 1024;
  std::mt19937 random(20261121);
  std::vector<std::byte> source(kRoom);
  for (std::byte& byte : source) byte = static_cast<std::byte>(random());
  for (const StreamingCopy& way : RunnableStreamingCopies()) {
    SCOPED_TRACE(way.name);
    for (size_t to = 0; to < 130; to += 3) {
      for (size_t from = 0; from < 70; from += 9) {
        for (size_t bytes : {0, 1, 63, 64, 65, 127, 128, 129, 255, 256, 400, 700}) {
          std::vector<std::byte> destination(kRoom, std::byte{0xee});
          std::vector<std::byte> expected = destination;
          std::copy_n(source.begin() + static_cast<ptrdiff_t>(from), bytes,
                      expected.begin() + static_cast<ptrdiff_t>(to));
          way.copy(destination.data() + to, source.data() + from, bytes);
          ASSERT_EQ(destination, expected) << bytes << " bytes from " << from << " to " << to;
        }
      }
    }
  }
}

TEST(StreamingCopy, HasAPortableWayEverywhere) { EXPECT_EQ(RunnableStreamingCopies().back().name, "portable"); }

}  // namespace
}  // namespace tidemark
