#include "storage/shard/format/chunk_codec.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "fmt/format.h"
#include "storage/codec/byte_planes.h"
#include "storage/codec/plane_frame.h"
#include "zstd.h"
#include "zstd_errors.h"

namespace tidemark::storage {
// Not in the anonymous namespace, because ChunkEncoder::Impl and ChunkDecoder::Impl hold it.
struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

template <typename Context>
using ContextPtr = std::unique_ptr<Context, FreeContext>;

namespace {

// Below this a Huffman table for each plane costs more than it saves, and matches are cheap to look for.
constexpr size_t kPlanesBytesMin = 4096;

constexpr int kLevel = 1;

// A chunk that saves less than this share is stored raw: it is read back without decoding.
constexpr size_t kSavingShareMin = 64;

// zstd takes its working memory from the system at the first chunk, or when it is made.
size_t ThrowIfNoMemory(size_t zstd_result) {
  if (ZSTD_getErrorCode(zstd_result) == ZSTD_error_memory_allocation) throw std::bad_alloc();
  return zstd_result;
}

// For calls that otherwise fail only where we made a mistake.
size_t Must(size_t zstd_result) {
  if (ZSTD_isError(ThrowIfNoMemory(zstd_result))) std::abort();
  return zstd_result;
}

template <typename Context>
ContextPtr<Context> NotNull(Context* context) {
  if (context == nullptr) throw std::bad_alloc();
  return ContextPtr<Context>(context);
}

void GrowTo(size_t size, std::vector<std::byte>* buffer) {
  if (buffer->size() < size) buffer->resize(size);
}

absl::Status Wrong(std::string_view what, std::string_view expected, std::string_view found) {
  return absl::DataLossError(fmt::format("{}: expected {}, found {}", what, expected, found));
}

absl::Status CheckChecksum(const ChunkRecord& record, std::span<const std::byte> stored) {
  const uint64_t checksum = ChecksumOf(stored);
  if (checksum == record.checksum) return absl::OkStatus();
  return Wrong("checksum of the stored bytes", fmt::format("0x{:016x}", record.checksum),
               fmt::format("0x{:016x}", checksum));
}

absl::Status CheckDigest(const ChunkRecord& record, std::span<const std::byte> raw) {
  const Digest128 digest = DigestOf(raw);
  if (digest == record.digest) return absl::OkStatus();
  return Wrong("digest of the decoded bytes", ToHex(record.digest.bytes), ToHex(digest.bytes));
}

}  // namespace

std::string_view CodecPolicyName(CodecPolicy policy) {
  switch (policy) {
    case CodecPolicy::kAuto:
      return "auto";
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
  explicit Impl(const CodecBackend& backend) : backend(backend), context(NotNull(ZSTD_createCCtx())) {
    Must(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_compressionLevel, kLevel));
    Must(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_contentSizeFlag, 1));
    Must(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_checksumFlag, 0));  // the record has a checksum
    Must(ZSTD_CCtx_setParameter(context.get(), ZSTD_c_dictIDFlag, 0));
  }

  size_t Compress(std::span<const std::byte> source, std::vector<std::byte>* out) {
    GrowTo(ZSTD_compressBound(source.size()), out);
    return Must(ZSTD_compress2(context.get(), out->data(), out->size(), source.data(), source.size()));
  }

  // What codec suits `raw`, as far as a sample tells, and the size of its frame in `*out`.
  std::pair<Codec, size_t> EncodeAs(std::span<const std::byte> raw, uint8_t float_bytes, std::vector<std::byte>* out) {
    if (raw.size() < kPlanesBytesMin || !CanSplitPlanes(raw.size(), float_bytes)) {
      return {Codec::kZstd, Compress(raw, out)};
    }
    const PlaneOutlook outlook = SamplePlanes(raw, float_bytes, backend);
    if (outlook.mostly_repeats) return {Codec::kZstd, Compress(raw, out)};
    if (outlook.coded == 0) return {Codec::kRaw, raw.size()};
    GrowTo(PlaneFrameBytesMax(raw.size(), float_bytes), out);
    return {Codec::kPlanesZstd, WritePlaneFrame(raw, float_bytes, outlook.coded, backend, &planes, *out)};
  }

  const CodecBackend& backend;
  const ContextPtr<ZSTD_CCtx> context;
  std::vector<std::byte> planes;
};

ChunkEncoder::ChunkEncoder(const CodecBackend& backend) : impl_(std::make_unique<Impl>(backend)) {}
ChunkEncoder::~ChunkEncoder() = default;

std::span<const std::byte> ChunkEncoder::Encode(std::span<const std::byte> raw, uint8_t float_bytes, bool compress,
                                                std::vector<std::byte>* buffer, ChunkRecord* record) {
  if (raw.empty() || raw.size() > kChunkBytesMax) std::abort();
  std::span<const std::byte> stored = raw;
  record->codec = Codec::kRaw;
  record->float_bytes = 0;
  record->raw_bytes = raw.size();
  if (compress) {
    const auto [codec, size] = impl_->EncodeAs(raw, float_bytes, buffer);
    if (size + std::max<size_t>(1, raw.size() / kSavingShareMin) <= raw.size()) {
      record->codec = codec;
      record->float_bytes = codec == Codec::kPlanesZstd ? float_bytes : 0;
      stored = std::span(*buffer).first(size);
    }
  }
  record->stored_bytes = stored.size();
  record->checksum = ChecksumOf(stored);
  return stored;
}

struct ChunkDecoder::Impl {
  explicit Impl(const CodecBackend& backend) : backend(backend), context(NotNull(ZSTD_createDCtx())) {}

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
    const size_t size =
        ThrowIfNoMemory(ZSTD_decompressDCtx(context.get(), out.data(), out.size(), frame.data(), frame.size()));
    if (ZSTD_isError(size)) return Wrong("zstd frame", "one that decodes", ZSTD_getErrorName(size));
    if (size != out.size()) {
      return Wrong("zstd frame", fmt::format("{} bytes", out.size()), fmt::format("{} bytes", size));
    }
    return absl::OkStatus();
  }

  absl::Status DecodeUnchecked(const ChunkRecord& record, std::span<const std::byte> stored, std::span<std::byte> raw) {
    switch (record.codec) {
      case Codec::kRaw:
        if (stored.size() != raw.size()) {
          return Wrong("raw chunk", fmt::format("{} bytes", raw.size()), fmt::format("{} bytes", stored.size()));
        }
        if (stored.data() != raw.data()) std::copy(stored.begin(), stored.end(), raw.begin());
        return absl::OkStatus();
      case Codec::kZstd:
        return Decompress(stored, raw);
      case Codec::kPlanesZstd: {
        if (!CanSplitPlanes(raw.size(), record.float_bytes)) {
          return Wrong("float bytes", fmt::format("2, 4 or 8, dividing {} bytes", raw.size()),
                       fmt::format("{}", record.float_bytes));
        }
        GrowTo(raw.size(), &planes);
        if (auto status = Decompress(stored, std::span(planes).first(raw.size())); !status.ok()) return status;
        JoinPlanes(std::span(planes).first(raw.size()), record.float_bytes, raw, backend);
        return absl::OkStatus();
      }
    }
    return Wrong("codec", "0, 1 or 2", fmt::format("{}", static_cast<uint8_t>(record.codec)));
  }

  const CodecBackend& backend;
  const ContextPtr<ZSTD_DCtx> context;
  std::vector<std::byte> planes;
};

ChunkDecoder::ChunkDecoder(const CodecBackend& backend) : impl_(std::make_unique<Impl>(backend)) {}
ChunkDecoder::~ChunkDecoder() = default;

absl::Status ChunkDecoder::Decode(const ChunkRecord& record, std::span<const std::byte> stored,
                                  std::span<std::byte> raw) {
  if (stored.size() != record.stored_bytes || raw.size() != record.raw_bytes) std::abort();
  absl::Status status = impl_->DecodeUnchecked(record, stored, raw);
  if (status.ok()) status = CheckDigest(record, raw);
  if (status.ok()) return status;
  // Whatever failed, other stored bytes than were written are why.
  if (auto checksum = CheckChecksum(record, stored); !checksum.ok()) return checksum;
  return status;
}

absl::Status ChunkDecoder::Verify(const ChunkRecord& record, std::span<const std::byte> stored,
                                  std::span<std::byte> raw) {
  if (auto status = CheckChecksum(record, stored); !status.ok()) return status;
  return Decode(record, stored, raw);
}

}  // namespace tidemark::storage
