#include "storage/shard/chunk_codec.h"

#include <algorithm>
#include <cstdlib>

#include "fmt/format.h"
#include "storage/shard/byte_planes.h"

// For ZSTD_c_literalCompressionMode, the one experimental parameter in use. The frames that it makes are ordinary.
#define ZSTD_STATIC_LINKING_ONLY
#include "zstd.h"

namespace tidemark::storage {
namespace {

// Below this a Huffman table for each plane costs more than it saves, and matches are cheap to look for.
constexpr size_t kPlanesBytesMin = 4096;

// Huffman coding alone: planes of weights have no repetitions worth the time it takes to look for them.
constexpr int kPlanesLevel = -100;
constexpr int kPlainLevel = 1;

// A chunk that saves less than this share is stored raw: it is read back without decoding.
constexpr size_t kSavingShareMin = 64;

// For calls that fail only where we made a mistake.
size_t Must(size_t zstd_result) {
  if (ZSTD_isError(zstd_result)) std::abort();
  return zstd_result;
}

absl::Status Wrong(std::string_view what, std::string_view expected, std::string_view found) {
  return absl::DataLossError(fmt::format("{}: expected {}, found {}", what, expected, found));
}

}  // namespace

std::string_view CodecPolicyName(CodecPolicy policy) {
  switch (policy) {
    case CodecPolicy::kThroughput:
      return "throughput";
    case CodecPolicy::kSpace:
      return "space";
    case CodecPolicy::kNone:
      return "none";
  }
  std::abort();
}

struct ChunkEncoder::Impl {
  Impl() {
    planes_context = NewContext(kPlanesLevel);
    Must(ZSTD_CCtx_setParameter(planes_context, ZSTD_c_literalCompressionMode, ZSTD_ps_enable));
    plain_context = NewContext(kPlainLevel);
  }
  ~Impl() {
    ZSTD_freeCCtx(planes_context);
    ZSTD_freeCCtx(plain_context);
  }

  static ZSTD_CCtx* NewContext(int level) {
    ZSTD_CCtx* context = ZSTD_createCCtx();
    if (context == nullptr) std::abort();  // out of memory
    Must(ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, level));
    Must(ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 1));
    Must(ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 0));  // the record has a checksum
    Must(ZSTD_CCtx_setParameter(context, ZSTD_c_dictIDFlag, 0));
    return context;
  }

  ZSTD_CCtx* planes_context = nullptr;
  ZSTD_CCtx* plain_context = nullptr;
  std::vector<std::byte> planes;
};

ChunkEncoder::ChunkEncoder() : impl_(std::make_unique<Impl>()) {}
ChunkEncoder::~ChunkEncoder() = default;

std::span<const std::byte> ChunkEncoder::Encode(std::span<const std::byte> raw, uint8_t float_bytes, bool compress,
                                                std::vector<std::byte>* buffer, ChunkRecord* record) {
  if (raw.empty() || raw.size() > kChunkBytesMax) std::abort();
  std::span<const std::byte> stored = raw;
  record->codec = Codec::kRaw;
  record->float_bytes = 0;
  record->raw_bytes = raw.size();
  if (compress) {
    const bool split = raw.size() >= kPlanesBytesMin && CanSplitPlanes(raw.size(), float_bytes);
    std::span<const std::byte> source = raw;
    if (split) {
      if (impl_->planes.size() < raw.size()) impl_->planes.resize(raw.size());
      SplitPlanes(raw, float_bytes, std::span(impl_->planes).first(raw.size()));
      source = std::span(impl_->planes).first(raw.size());
    }
    if (buffer->size() < ZSTD_compressBound(raw.size())) buffer->resize(ZSTD_compressBound(raw.size()));
    const size_t size = Must(ZSTD_compress2(split ? impl_->planes_context : impl_->plain_context, buffer->data(),
                                            buffer->size(), source.data(), source.size()));
    if (size + std::max<size_t>(1, raw.size() / kSavingShareMin) <= raw.size()) {
      record->codec = split ? Codec::kPlanesZstd : Codec::kZstd;
      record->float_bytes = split ? float_bytes : 0;
      stored = std::span(*buffer).first(size);
    }
  }
  record->stored_bytes = stored.size();
  record->checksum = ChecksumOf(stored);
  return stored;
}

struct ChunkDecoder::Impl {
  // One frame that fills `out` exactly, and nothing beside it.
  absl::Status Decompress(std::span<const std::byte> frame, std::span<std::byte> out) {
    const unsigned long long claimed = ZSTD_getFrameContentSize(frame.data(), frame.size());
    if (claimed == ZSTD_CONTENTSIZE_ERROR) return Wrong("zstd frame", "a frame", "no frame header");
    if (claimed == ZSTD_CONTENTSIZE_UNKNOWN) return Wrong("zstd frame", "a content size", "none");
    if (claimed != out.size()) {
      return Wrong("zstd frame's content size", fmt::format("{} bytes", out.size()), fmt::format("{} bytes", claimed));
    }
    const size_t frame_bytes = ZSTD_findFrameCompressedSize(frame.data(), frame.size());
    if (ZSTD_isError(frame_bytes)) return Wrong("zstd frame", "a whole frame", ZSTD_getErrorName(frame_bytes));
    if (frame_bytes != frame.size()) {
      return Wrong("zstd frame's size", fmt::format("{} bytes", frame.size()), fmt::format("{} bytes", frame_bytes));
    }
    const size_t size = ZSTD_decompressDCtx(context, out.data(), out.size(), frame.data(), frame.size());
    if (ZSTD_isError(size)) return Wrong("zstd frame", "one that decodes", ZSTD_getErrorName(size));
    if (size != out.size()) {
      return Wrong("zstd frame", fmt::format("{} bytes", out.size()), fmt::format("{} bytes", size));
    }
    return absl::OkStatus();
  }

  ZSTD_DCtx* context = nullptr;
  std::vector<std::byte> planes;
};

ChunkDecoder::ChunkDecoder() : impl_(std::make_unique<Impl>()) {
  impl_->context = ZSTD_createDCtx();
  if (impl_->context == nullptr) std::abort();  // out of memory
}
ChunkDecoder::~ChunkDecoder() { ZSTD_freeDCtx(impl_->context); }

absl::Status ChunkDecoder::Decode(const ChunkRecord& record, std::span<const std::byte> stored,
                                  std::span<std::byte> raw) {
  if (stored.size() != record.stored_bytes || raw.size() != record.raw_bytes) std::abort();
  if (const uint64_t checksum = ChecksumOf(stored); checksum != record.checksum) {
    return Wrong("checksum of the stored bytes", fmt::format("0x{:016x}", record.checksum),
                 fmt::format("0x{:016x}", checksum));
  }
  switch (record.codec) {
    case Codec::kRaw:
      if (stored.size() != raw.size()) {
        return Wrong("raw chunk", fmt::format("{} bytes", raw.size()), fmt::format("{} bytes", stored.size()));
      }
      std::copy(stored.begin(), stored.end(), raw.begin());
      break;
    case Codec::kZstd:
      if (auto status = impl_->Decompress(stored, raw); !status.ok()) return status;
      break;
    case Codec::kPlanesZstd: {
      if (!CanSplitPlanes(raw.size(), record.float_bytes)) {
        return Wrong("float bytes", fmt::format("2, 4 or 8, dividing {} bytes", raw.size()),
                     fmt::format("{}", record.float_bytes));
      }
      if (impl_->planes.size() < raw.size()) impl_->planes.resize(raw.size());
      const std::span<std::byte> planes = std::span(impl_->planes).first(raw.size());
      if (auto status = impl_->Decompress(stored, planes); !status.ok()) return status;
      JoinPlanes(planes, record.float_bytes, raw);
      break;
    }
    default:
      return Wrong("codec", "0, 1 or 2", fmt::format("{}", static_cast<uint8_t>(record.codec)));
  }
  if (const Digest128 digest = DigestOf(raw); digest != record.digest) {
    return Wrong("digest of the decoded bytes", ToHex(record.digest.bytes), ToHex(digest.bytes));
  }
  return absl::OkStatus();
}

}  // namespace tidemark::storage
