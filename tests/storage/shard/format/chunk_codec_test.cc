#include "storage/shard/format/chunk_codec.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>

#include "gtest/gtest.h"
#include "storage/bytes/byte_reader.h"
#include "tests/storage/io/drawn_cases.h"
#include "tests/storage/io/status_matchers.h"
#include "tests/storage/shard/shard_testing.h"
#include "zstd.h"

// Counts what this program allocates in C++. zstd's own contexts are in C, and made with the codec.
static std::atomic<size_t> allocations = 0;
// Not inlined: gcc would see free at the end of what it takes for new.
[[gnu::noinline]] void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  std::abort();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace tidemark::storage {
namespace {

using absl::StatusCode;
using ::testing::HasSubstr;

// Encodes and decodes with every back end, expects the same stored bytes of each, that an ordinary zstd reads them, and
// the same bytes back; returns the record.
ChunkRecord RoundTrip(CodecPolicy policy, std::span<const std::byte> raw, uint8_t float_bytes) {
  ChunkRecord first;
  for (const CodecBackend* backend : RunnableCodecBackends()) {
    SCOPED_TRACE(backend->name);
    ChunkEncoder encoder(*backend);
    std::vector<std::byte> buffer;
    ChunkRecord record;
    record.digest = DigestOf(raw);
    const auto stored = encoder.Encode(raw, float_bytes, policy != CodecPolicy::kNone, &buffer, &record);
    EXPECT_EQ(record.raw_bytes, raw.size());
    EXPECT_EQ(record.stored_bytes, stored.size());
    EXPECT_LE(stored.size(), raw.size());
    EXPECT_EQ(record.checksum, ChecksumOf(stored));
    if (record.codec == Codec::kRaw) {
      EXPECT_EQ(stored.data(), raw.data()) << "a raw chunk was copied";
    }
    ChunkDecoder decoder(*backend);
    std::vector<std::byte> back(raw.size());
    if (record.codec != Codec::kRaw) {
      EXPECT_EQ(ZSTD_decompress(back.data(), back.size(), stored.data(), stored.size()), raw.size());
    }
    EXPECT_THAT(decoder.Decode(record, stored, back), IsOk());
    EXPECT_TRUE(std::equal(raw.begin(), raw.end(), back.begin(), back.end()));
    EXPECT_THAT(decoder.Verify(record, stored, back), IsOk());
    if (backend == RunnableCodecBackends().front()) first = record;
    EXPECT_EQ(record.codec, first.codec);
    EXPECT_EQ(record.float_bytes, first.float_bytes);
    EXPECT_EQ(record.checksum, first.checksum);
  }
  return first;
}

TEST(ChunkCodec, RoundTripsEveryWidthAndContent) {
  const auto seed = SeedOfCases();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  for (auto policy : {CodecPolicy::kSpace, CodecPolicy::kNone}) {
    for (uint8_t float_bytes : {0, 2, 4, 8}) {
      for (size_t size : {1, 2, 7, 8, 63, 64, 4088, 4095, 4096, 4097, 65536, 65537, 1 << 20}) {
        SCOPED_TRACE(testing::Message() << int{float_bytes} << " float bytes, " << size << " bytes");
        RoundTrip(policy, RandomBytes(size, random), float_bytes);
        RoundTrip(policy, std::vector<std::byte>(size, std::byte{0x3f}), float_bytes);
        RoundTrip(policy, std::vector<std::byte>(size), float_bytes);
      }
    }
  }
}

TEST(ChunkCodec, RoundTripsNumbersThatAreNone) {
  std::vector<float> numbers;
  for (uint32_t i = 0; i < 4096; ++i) {
    const uint32_t patterns[] = {0x7fc00000 + i, 0xffc00000 + i, 0x7f800001 + i, 0x7f800000, 0xff800000, 0x80000000, i};
    for (uint32_t bits : patterns) {
      float value;
      std::memcpy(&value, &bits, sizeof(value));
      numbers.push_back(value);
    }
  }
  const ChunkRecord record = RoundTrip(CodecPolicy::kSpace, std::as_bytes(std::span(numbers)), 4);
  EXPECT_EQ(record.codec, Codec::kPlanesZstd);
}

TEST(ChunkCodec, SplitsWeightsAndComesNearTheirEntropy) {
  std::mt19937_64 random(7);
  const auto bf16 = RoundTrip(CodecPolicy::kSpace, Weights(Dtype::kBfloat16, 1 << 19, random), 2);
  EXPECT_EQ(bf16.codec, Codec::kPlanesZstd);
  EXPECT_EQ(bf16.float_bytes, 2);
  EXPECT_LT(bf16.stored_bytes, 0.68 * bf16.raw_bytes);
  const auto fp32 = RoundTrip(CodecPolicy::kSpace, Weights(Dtype::kFloat32, 1 << 18, random), 4);
  EXPECT_EQ(fp32.codec, Codec::kPlanesZstd);
  EXPECT_LT(fp32.stored_bytes, 0.85 * fp32.raw_bytes);
}

TEST(ChunkCodec, ComesNearTheEntropyOfNumbersOfAnySize) {
  // Exponents on both sides of the middle, where the tree of the code is written in another way.
  std::mt19937_64 random(11);
  std::normal_distribution<float> normal(0, 30);
  std::vector<float> numbers(1 << 18);
  for (float& number : numbers) number = normal(random);
  const auto record = RoundTrip(CodecPolicy::kSpace, std::as_bytes(std::span(numbers)), 4);
  EXPECT_EQ(record.codec, Codec::kPlanesZstd);
  EXPECT_LT(record.stored_bytes, 0.84 * record.raw_bytes);
}

TEST(ChunkCodec, StoresEqualNumbersInAFewBytes) {
  const std::vector<float> ones(1 << 18, 1.0f);
  EXPECT_LT(RoundTrip(CodecPolicy::kSpace, std::as_bytes(std::span(ones)), 4).stored_bytes, 64u);
}

TEST(ChunkCodec, LeavesNumbersThatAreMostlyZeroToPlainZstd) {
  std::mt19937_64 random(12);
  std::vector<float> numbers(1 << 18);
  for (size_t i = 0; i < numbers.size(); i += 100) numbers[i] = std::normal_distribution<float>()(random);
  const auto record = RoundTrip(CodecPolicy::kSpace, std::as_bytes(std::span(numbers)), 4);
  EXPECT_EQ(record.codec, Codec::kZstd);
  EXPECT_LT(record.stored_bytes, 0.03 * record.raw_bytes);
}

TEST(ChunkCodec, StoresRawWhereASampleDeceives) {
  // Zeros in the runs of numbers that are sampled, noise between them.
  std::mt19937_64 random(13);
  auto deceiving = RandomBytes(1 << 20, random);
  const size_t count = deceiving.size() / 4;
  for (size_t i = 0; i < 32; ++i) std::fill_n(deceiving.begin() + (count - 128) * i / 31 * 4, 512, std::byte{0});
  EXPECT_EQ(RoundTrip(CodecPolicy::kSpace, deceiving, 4).codec, Codec::kRaw);
}

TEST(ChunkCodec, NeverSplitsWhatIsNoWholeNumberOfFloats) {
  const std::vector<std::byte> zeros(100001);
  const auto record = RoundTrip(CodecPolicy::kSpace, zeros, 4);
  EXPECT_EQ(record.codec, Codec::kZstd);
  EXPECT_EQ(record.float_bytes, 0);
}

TEST(ChunkCodec, StoresRawWhatDoesNotShrinkByASixtyFourth) {
  std::mt19937_64 random(8);
  EXPECT_EQ(RoundTrip(CodecPolicy::kSpace, RandomBytes(1 << 20, random), 0).codec, Codec::kRaw);
  // Saves 8 KiB of 1 MiB, which is less than 1/64.
  auto nearly = RandomBytes(1 << 20, random);
  std::fill_n(nearly.begin(), 8192, std::byte{0});
  EXPECT_EQ(RoundTrip(CodecPolicy::kSpace, nearly, 0).codec, Codec::kRaw);
  std::fill_n(nearly.begin(), 32768, std::byte{0});
  EXPECT_EQ(RoundTrip(CodecPolicy::kSpace, nearly, 0).codec, Codec::kZstd);
}

TEST(ChunkCodec, StoresRawUnderPolicyNone) {
  EXPECT_EQ(RoundTrip(CodecPolicy::kNone, std::vector<std::byte>(65536), 4).codec, Codec::kRaw);
}

TEST(ChunkCodec, GivesTheSameBytesForTheSameInput) {
  std::mt19937_64 random(9);
  const auto raw = Weights(Dtype::kFloat32, 1 << 16, random);
  const auto other = RandomBytes(50000, random);
  ChunkRecord record;
  std::vector<std::byte> buffer;
  record.digest = DigestOf(raw);
  ChunkEncoder fresh;
  const auto first = fresh.Encode(raw, 4, true, &buffer, &record);
  const std::vector<std::byte> expected(first.begin(), first.end());
  ChunkEncoder used;
  used.Encode(other, 2, true, &buffer, &record);
  const auto again = used.Encode(raw, 4, true, &buffer, &record);
  EXPECT_TRUE(std::equal(again.begin(), again.end(), expected.begin(), expected.end()));
}

TEST(ChunkCodec, AllocatesNothingOnceItIsWarm) {
  std::mt19937_64 random(14);
  const auto raw = Weights(Dtype::kFloat32, 1 << 18, random);
  ChunkEncoder encoder;
  ChunkDecoder decoder;
  std::vector<std::byte> buffer;
  std::vector<std::byte> back(raw.size());
  ChunkRecord record;
  record.digest = DigestOf(raw);
  const auto round_trip = [&] {
    const auto stored = encoder.Encode(raw, 4, true, &buffer, &record);
    return decoder.Decode(record, stored, back);
  };
  ASSERT_THAT(round_trip(), IsOk());
  const size_t before = allocations;
  const auto status = round_trip();
  const size_t after = allocations;
  EXPECT_THAT(status, IsOk());
  EXPECT_EQ(after, before);
}

class ChunkDecoderTest : public ::testing::Test {
 protected:
  // A chunk of 8192 bytes whose stored bytes are `frame`, with the right checksum.
  absl::Status Decode(std::string frame, Codec codec = Codec::kZstd, uint8_t float_bytes = 0) {
    ChunkRecord record;
    record.codec = codec;
    record.float_bytes = float_bytes;
    record.raw_bytes = kRawBytes;
    record.stored_bytes = frame.size();
    record.checksum = ChecksumOf(AsBytes(frame));
    record.digest = digest_;
    std::vector<std::byte> raw(kRawBytes + kGuardBytes, std::byte{0xcd});
    ChunkDecoder decoder;
    auto status = decoder.Decode(record, AsBytes(frame), std::span(raw).first(kRawBytes));
    for (size_t i = kRawBytes; i < raw.size(); ++i) EXPECT_EQ(raw[i], std::byte{0xcd}) << "wrote past the chunk";
    return status;
  }

  static std::string Compress(std::string_view raw) {
    std::string frame(ZSTD_compressBound(raw.size()), '\0');
    frame.resize(ZSTD_compress(frame.data(), frame.size(), raw.data(), raw.size(), 3));
    return frame;
  }

  static constexpr size_t kRawBytes = 8192;
  static constexpr size_t kGuardBytes = 4096;
  const std::string raw_ = std::string(kRawBytes / 2, 'a') + std::string(kRawBytes / 2, 'b');
  Digest128 digest_ = DigestOf(AsBytes(raw_));
};

TEST_F(ChunkDecoderTest, DecodesAnOrdinaryFrame) { EXPECT_TRUE(Decode(Compress(raw_)).ok()); }

TEST_F(ChunkDecoderTest, SaysThatTheChecksumIsWrongBeforeAnythingElse) {
  ChunkRecord record;
  record.raw_bytes = record.stored_bytes = 3;
  record.checksum = 0x1234;  // and a digest of zeros
  std::vector<std::byte> raw(3);
  const auto refused =
      StatusIs(StatusCode::kDataLoss, HasSubstr("checksum of the stored bytes: expected 0x0000000000001234, found 0x"));
  EXPECT_THAT(ChunkDecoder().Decode(record, AsBytes("abc"), raw), refused);
  EXPECT_THAT(ChunkDecoder().Verify(record, AsBytes("abc"), raw), refused);
  record.codec = Codec::kZstd;
  EXPECT_THAT(ChunkDecoder().Decode(record, AsBytes("abc"), raw), refused);
}

TEST_F(ChunkDecoderTest, TakesTheRightBytesWhateverTheirChecksumAndVerifyDoesNot) {
  ChunkRecord record;
  record.raw_bytes = record.stored_bytes = 3;
  record.digest = DigestOf(AsBytes("abc"));
  record.checksum = 0x1234;
  std::vector<std::byte> raw(3);
  EXPECT_THAT(ChunkDecoder().Decode(record, AsBytes("abc"), raw), IsOk());
  EXPECT_THAT(ChunkDecoder().Verify(record, AsBytes("abc"), raw),
              StatusIs(StatusCode::kDataLoss,
                       HasSubstr("checksum of the stored bytes: expected 0x0000000000001234, found 0x")));
}

TEST_F(ChunkDecoderTest, VerifyRefusesDecodedBytesOfAnotherDigest) {
  ChunkRecord record;
  record.raw_bytes = record.stored_bytes = 3;
  record.checksum = ChecksumOf(AsBytes("abc"));
  std::vector<std::byte> raw(3);
  EXPECT_THAT(ChunkDecoder().Verify(record, AsBytes("abc"), raw),
              StatusIs(StatusCode::kDataLoss, HasSubstr("digest of the decoded bytes: expected 000000")));
}

TEST_F(ChunkDecoderTest, RefusesAFrameThatClaimsMore) {
  EXPECT_THAT(Decode(Compress(raw_ + "x")),
              StatusIs(StatusCode::kDataLoss, "zstd frame's content size: expected 8192 bytes, found 8193 bytes"));
}

TEST_F(ChunkDecoderTest, RefusesAFrameThatClaimsLess) {
  EXPECT_THAT(Decode(Compress(raw_.substr(1))),
              StatusIs(StatusCode::kDataLoss, "zstd frame's content size: expected 8192 bytes, found 8191 bytes"));
}

TEST_F(ChunkDecoderTest, RefusesAFrameThatHoldsMoreThanItClaims) {
  std::string frame = Compress(std::string(1 << 20, 'a'));
  const std::string honest = Compress(raw_);
  // A header of ours on blocks of another: magic, descriptor and content size of the honest frame, which has a size
  // field of two bytes, on the blocks of a frame with one of four.
  ASSERT_EQ(static_cast<uint8_t>(honest[4]) >> 6, 1);
  ASSERT_EQ(static_cast<uint8_t>(frame[4]) >> 6, 2);
  const size_t honest_header = 4 + 1 + 2 + ((honest[4] & 0x20) != 0 ? 0 : 1);
  const size_t header = 4 + 1 + 4 + ((frame[4] & 0x20) != 0 ? 0 : 1);
  EXPECT_THAT(Decode(honest.substr(0, honest_header) + frame.substr(header)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("zstd frame: expected one that decodes, found ")));
}

TEST_F(ChunkDecoderTest, RefusesAFrameWithoutAContentSize) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  std::string frame(ZSTD_compressBound(raw_.size()), '\0');
  frame.resize(ZSTD_compress2(context, frame.data(), frame.size(), raw_.data(), raw_.size()));
  ZSTD_freeCCtx(context);
  EXPECT_THAT(Decode(frame), StatusIs(StatusCode::kDataLoss, "zstd frame: expected a content size, found none"));
}

TEST_F(ChunkDecoderTest, RefusesEveryTruncation) {
  const std::string frame = Compress(raw_);
  for (size_t size = 0; size < frame.size(); ++size) {
    EXPECT_THAT(Decode(frame.substr(0, size)), StatusIs(StatusCode::kDataLoss, HasSubstr("zstd frame"))) << size;
  }
}

TEST_F(ChunkDecoderTest, RefusesBytesBehindTheFrame) {
  const std::string frame = Compress(raw_);
  EXPECT_THAT(Decode(frame + "x"), StatusIs(StatusCode::kDataLoss, HasSubstr("zstd frame's size: expected")));
  EXPECT_THAT(Decode(frame + frame), StatusIs(StatusCode::kDataLoss, HasSubstr("zstd frame's size: expected")));
}

TEST_F(ChunkDecoderTest, RefusesGarbage) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 200; ++i) {
    const auto bytes = RandomBytes(1 + random() % 5000, random);
    const std::string garbage(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    EXPECT_EQ(Decode(garbage).code(), StatusCode::kDataLoss);
    EXPECT_EQ(Decode(garbage, Codec::kPlanesZstd, 4).code(), StatusCode::kDataLoss);
  }
}

TEST_F(ChunkDecoderTest, RefusesAFrameWithAChangedByteOrDecodesItRight) {
  const std::string frame = Compress(raw_);
  for (size_t i = 0; i < frame.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string changed = frame;
      changed[i] ^= 1 << bit;
      const auto status = Decode(changed);  // the checksum is that of the changed bytes
      EXPECT_TRUE(status.ok() || status.code() == StatusCode::kDataLoss) << status;
    }
  }
}

TEST_F(ChunkDecoderTest, RefusesPlanesWithAChangedByteOrDecodesThemRight) {
  std::mt19937_64 random(15);
  const auto raw = Weights(Dtype::kBfloat16, kRawBytes / 2, random);
  ChunkRecord record;
  std::vector<std::byte> buffer;
  const auto stored = ChunkEncoder().Encode(raw, 2, true, &buffer, &record);
  ASSERT_EQ(record.codec, Codec::kPlanesZstd);
  digest_ = DigestOf(raw);
  const std::string frame(reinterpret_cast<const char*>(stored.data()), stored.size());
  EXPECT_THAT(Decode(frame, Codec::kPlanesZstd, 2), IsOk());
  for (size_t i = 0; i < frame.size(); ++i) {
    std::string changed = frame;
    changed[i] = static_cast<char>(changed[i] ^ (1 + random() % 255));
    const auto status = Decode(changed, Codec::kPlanesZstd, 2);
    EXPECT_TRUE(status.ok() || status.code() == StatusCode::kDataLoss) << status;
  }
}

TEST_F(ChunkDecoderTest, RefusesDecodedBytesOfAnotherDigest) {
  digest_.bytes[5] ^= 1;
  EXPECT_THAT(Decode(Compress(raw_)),
              StatusIs(StatusCode::kDataLoss, HasSubstr("digest of the decoded bytes: expected")));
}

TEST_F(ChunkDecoderTest, RefusesPlanesOfAnImpossibleWidth) {
  EXPECT_THAT(Decode(Compress(raw_), Codec::kPlanesZstd, 3),
              StatusIs(StatusCode::kDataLoss, "float bytes: expected 2, 4 or 8, dividing 8192 bytes, found 3"));
}

TEST_F(ChunkDecoderTest, RefusesAnUnknownCodec) {
  EXPECT_THAT(Decode(raw_, static_cast<Codec>(9)),
              StatusIs(StatusCode::kDataLoss, "codec: expected 0, 1 or 2, found 9"));
}

TEST_F(ChunkDecoderTest, RefusesARawChunkOfAnotherSize) {
  EXPECT_THAT(Decode(raw_.substr(1), Codec::kRaw),
              StatusIs(StatusCode::kDataLoss, "raw chunk: expected 8192 bytes, found 8191 bytes"));
}

}  // namespace
}  // namespace tidemark::storage
