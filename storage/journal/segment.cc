#include "storage/journal/segment.h"

#include <utility>

#include "fmt/format.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"
#include "storage/bytes/frame.h"
#include "storage/bytes/ids.h"

namespace tidemark::storage {
namespace {

constexpr FrameKind kSegmentFrame = {.magic = kSegmentMagic, .name = "a segment"};
constexpr size_t kCountsBytes = sizeof(uint64_t) + sizeof(uint32_t);

}  // namespace

bool IsSegment(std::string_view bytes) { return bytes.starts_with(kSegmentMagic); }

absl::StatusOr<std::string> EncodeSegment(const std::vector<DigestedEntry>& entries) {
  if (entries.empty()) return absl::InvalidArgumentError("a journal's segment without entries");
  ByteWriter writer;
  BeginFrame(writer, kSegmentFrame);
  writer.Put<uint64_t>(entries.front().entry.number);
  writer.Put<uint32_t>(static_cast<uint32_t>(entries.size()));
  size_t bytes = kFrameBytes + kCountsBytes;
  for (size_t i = 0; i < entries.size(); ++i) {
    const std::string entry = EncodeEntry(entries[i].entry);
    if (i > 0 && (entries[i].entry.number != entries[i - 1].entry.number + 1 ||
                  entries[i].entry.previous != entries[i - 1].digest)) {
      return absl::InvalidArgumentError(fmt::format(
          "a journal's segment with entry {} after another one than the entry before it", entries[i].entry.number));
    }
    bytes += sizeof(uint32_t) + entry.size();
    if (bytes > kEntryFileBytesMax) {
      return absl::ResourceExhaustedError(fmt::format("the segment of journal entries {} to {} has more than {} bytes",
                                                      entries.front().entry.number, entries.back().entry.number,
                                                      kEntryFileBytesMax));
    }
    writer.Put<uint32_t>(static_cast<uint32_t>(entry.size()));
    writer.PutText(entry);
  }
  EndFrame(writer);
  return std::move(writer).Take();
}

absl::StatusOr<std::vector<DigestedEntry>> DecodeSegment(std::string_view what, std::string_view bytes) {
  const auto checked = CheckFrame(what, kSegmentFrame, bytes);
  if (!checked.ok()) return checked.status();
  ByteReader reader(AsBytes(*checked), what);
  SkipFrame(reader);
  const auto first = reader.Get<uint64_t>("first number");
  const auto count = reader.Get<uint32_t>("count of entries");
  if (reader.ok() && count == 0) reader.Fail("count of entries", sizeof(count), "1 or more", "0");
  std::vector<DigestedEntry> entries;
  if (!reader.CheckCount(count, sizeof(uint32_t) + kJournalEntryBytesMin, "count of entries")) return reader.status();
  entries.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    const auto size = reader.Get<uint32_t>("size of an entry");
    const std::string_view text = reader.GetText(size, "entry");
    if (!reader.ok()) return reader.status();
    auto entry = DecodeEntry(fmt::format("{}, entry {}", what, first + i), text);
    if (!entry.ok()) return entry.status();
    if (entry->number != first + i || (i > 0 && entry->previous != entries.back().digest)) {
      return absl::DataLossError(fmt::format("{}: what is in the place of entry {} is entry {} of another history",
                                             what, first + i, entry->number));
    }
    entries.push_back({.entry = *std::move(entry), .digest = DigestOf(AsBytes(text))});
  }
  reader.ExpectEnd();
  if (!reader.ok()) return reader.status();
  return entries;
}

}  // namespace tidemark::storage
