// Header and footer. The index is in shard_index_encode.cc and shard_index_decode.cc.

#include "storage/shard/format/shard_format.h"

#include "fmt/format.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"

namespace tidemark::storage {
namespace {

constexpr std::string_view kHeaderMagic = "TMKSHARD";
constexpr std::string_view kFooterMagic = "TMKFOOTR";
constexpr uint32_t kByteOrderMark = 0x01020304;
constexpr size_t kChecksumOffset = kShardBlockBytes - sizeof(uint64_t);

std::string Seal(ByteWriter out) {
  out.PadTo(kChecksumOffset);
  out.Put<uint64_t>(ChecksumOf(AsBytes(out.view())));
  return std::move(out).Take();
}

absl::Status WrongField(std::string_view what, std::string_view field, size_t offset, std::string_view expected,
                        std::string_view found) {
  return absl::DataLossError(
      fmt::format("{}: {} at byte {}: expected {}, found {}", what, field, offset, expected, found));
}

// Printable, whatever it is.
std::string Quoted(std::string_view bytes) {
  std::string text = "'";
  for (char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte >= 0x20 && byte < 0x7f ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return text + "'";
}

// Size, magic, version, checksum, block size and byte order: what header and footer have in common. Returns the
// version.
absl::StatusOr<uint32_t> OpenBlock(std::span<const std::byte> bytes, std::string_view magic, uint32_t version_max,
                                   std::string_view what, ByteReader* in) {
  if (bytes.size() != kShardBlockBytes) {
    return WrongField(what, "size", 0, fmt::format("{} bytes", kShardBlockBytes),
                      fmt::format("{} bytes", bytes.size()));
  }
  const std::string_view found_magic = in->GetText(magic.size(), "magic");
  if (found_magic != magic) return WrongField(what, "magic", 0, Quoted(magic), Quoted(found_magic));
  const auto version = in->Get<uint32_t>("version");
  if (version > version_max) {
    return absl::UnimplementedError(
        fmt::format("{}: version at byte 8: expected at most {}, found {}: written by a "
                    "newer version of Tidemark",
                    what, version_max, version));
  }
  if (version == 0) return WrongField(what, "version", 8, "1", "0");
  ByteReader tail(bytes.subspan(kChecksumOffset), what);
  const auto checksum = tail.Get<uint64_t>("checksum");
  const uint64_t computed = ChecksumOf(bytes.first(kChecksumOffset));
  if (checksum != computed) {
    return WrongField(what, "checksum", kChecksumOffset, fmt::format("0x{:016x} (computed)", computed),
                      fmt::format("0x{:016x}", checksum));
  }
  const auto mark = in->Get<uint32_t>("byte order");
  if (mark != kByteOrderMark) {
    return WrongField(what, "byte order", 12, fmt::format("0x{:08x}", kByteOrderMark), fmt::format("0x{:08x}", mark));
  }
  return version;
}

absl::Status CloseBlock(ByteReader* in) {
  in->SkipZeros(kChecksumOffset - in->offset(), "padding");
  return in->status();
}

}  // namespace

std::string EncodeShardHeader(const ShardHeader& header) {
  ByteWriter out;
  out.PutText(kHeaderMagic);
  out.Put<uint32_t>(header.repeats_names ? kShardBoxesVersion : kShardFormatVersion);
  out.Put<uint32_t>(kByteOrderMark);
  out.PutBytes16(header.identity.store.bytes);
  out.PutBytes16(header.identity.attempt.bytes);
  out.Put<int64_t>(header.identity.step);
  out.Put<uint64_t>(header.identity.sequence);
  out.Put<uint32_t>(header.identity.rank);
  out.Put<uint32_t>(header.identity.world_size);
  out.Put<uint32_t>(header.chunk_bytes);
  return Seal(std::move(out));
}

absl::StatusOr<ShardHeader> DecodeShardHeader(std::span<const std::byte> bytes) {
  constexpr std::string_view kWhat = "shard header";
  ByteReader in(bytes, kWhat);
  const auto version = OpenBlock(bytes, kHeaderMagic, kShardBoxesVersion, kWhat, &in);
  if (!version.ok()) return version.status();
  ShardHeader header;
  header.repeats_names = *version == kShardBoxesVersion;
  ShardIdentity& identity = header.identity;
  identity.store.bytes = in.GetBytes16("store id");
  identity.attempt.bytes = in.GetBytes16("attempt");
  identity.step = in.Get<int64_t>("step");
  if (identity.step < 0) in.Fail("step", 8, "0 or more", fmt::format("{}", identity.step));
  identity.sequence = in.Get<uint64_t>("sequence");
  identity.rank = in.Get<uint32_t>("rank");
  identity.world_size = in.Get<uint32_t>("world size");
  if (identity.rank >= identity.world_size) {
    in.FailAt(in.offset() - 8, "rank", fmt::format("less than the world size, {}", identity.world_size),
              fmt::format("{}", identity.rank));
  }
  header.chunk_bytes = in.Get<uint32_t>("chunk bytes");
  if (!IsValidChunkBytes(header.chunk_bytes)) {
    in.Fail("chunk bytes", 4, fmt::format("a multiple of {} up to {}", kChunkBytesMin, kChunkBytesMax),
            fmt::format("{}", header.chunk_bytes));
  }
  if (auto status = CloseBlock(&in); !status.ok()) return status;
  return header;
}

std::string EncodeShardFooter(const ShardFooter& footer) {
  ByteWriter out;
  out.PutText(kFooterMagic);
  out.Put<uint32_t>(footer.index_is_delta ? kShardDeltaVersion : kShardFormatVersion);
  out.Put<uint32_t>(kByteOrderMark);
  out.Put<uint64_t>(footer.file_bytes);
  out.Put<uint64_t>(footer.index_offset);
  out.Put<uint64_t>(footer.index_bytes);
  out.PutBytes16(footer.index_digest.bytes);
  return Seal(std::move(out));
}

absl::StatusOr<ShardFooter> DecodeShardFooter(std::span<const std::byte> bytes, uint64_t file_bytes) {
  constexpr std::string_view kWhat = "shard footer";
  ByteReader in(bytes, kWhat);
  auto version = OpenBlock(bytes, kFooterMagic, kShardDeltaVersion, kWhat, &in);
  if (!version.ok()) return version.status();
  ShardFooter footer;
  footer.index_is_delta = *version == kShardDeltaVersion;
  footer.file_bytes = in.Get<uint64_t>("file bytes");
  if (footer.file_bytes != file_bytes) {
    in.Fail("file bytes", 8, fmt::format("{}, the size of the file", file_bytes), fmt::format("{}", footer.file_bytes));
  } else if (file_bytes % kShardBlockBytes != 0) {
    in.Fail("file bytes", 8, fmt::format("a multiple of {}", kShardBlockBytes), fmt::format("{}", file_bytes));
  }
  footer.index_offset = in.Get<uint64_t>("index offset");
  if (footer.index_offset % kShardBlockBytes != 0 || footer.index_offset < kShardBlockBytes ||
      footer.index_offset > file_bytes) {
    in.Fail("index offset", 8,
            fmt::format("a multiple of {} from {} to {}", kShardBlockBytes, kShardBlockBytes, file_bytes),
            fmt::format("{}", footer.index_offset));
  }
  footer.index_bytes = in.Get<uint64_t>("index bytes");
  if (in.ok()) {
    // What is between the index's offset and the footer, with the index's padding in it.
    const uint64_t room = file_bytes - footer.index_offset;
    const uint64_t blocks =
        (std::min(footer.index_bytes, kIndexBytesMax + 1) + kShardBlockBytes - 1) / kShardBlockBytes;
    if (footer.index_bytes == 0 || footer.index_bytes > kIndexBytesMax || (blocks + 1) * kShardBlockBytes != room) {
      in.Fail(
          "index bytes", 8,
          fmt::format("1 to {}, filling the {} bytes from the index to the end of the file up to the footer's block",
                      kIndexBytesMax, room),
          fmt::format("{}", footer.index_bytes));
    }
  }
  footer.index_digest.bytes = in.GetBytes16("index digest");
  if (auto status = CloseBlock(&in); !status.ok()) return status;
  return footer;
}

}  // namespace tidemark::storage
