#include "storage/journal/entry.h"

#include <span>
#include <utility>

#include "fmt/format.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"
#include "storage/bytes/checked_encoding.h"
#include "storage/bytes/frame.h"

namespace tidemark::storage {
namespace {

constexpr FrameKind kEntryFrame = {.magic = "TMKENTRY", .name = "an entry"};
constexpr uint8_t kBeginsEpoch = 1;  // the only flag

constexpr size_t kFactBytesMin = sizeof(uint32_t);

void Put(ByteWriter& writer, const JournalEntry& entry) {
  writer.Put<uint64_t>(entry.number);
  writer.PutBytes16(entry.id.bytes);
  writer.Put<uint64_t>(entry.epoch);
  writer.Put<uint8_t>(entry.begins_epoch ? kBeginsEpoch : 0);
  writer.Put<uint64_t>(entry.durable);
  writer.PutBytes16(entry.previous.bytes);
  writer.Put<uint32_t>(static_cast<uint32_t>(entry.facts.size()));
  for (const std::string& fact : entry.facts) {
    writer.Put<uint32_t>(static_cast<uint32_t>(fact.size()));
    writer.PutText(fact);
  }
}

JournalEntry Get(ByteReader& reader) {
  JournalEntry entry;
  entry.number = reader.Get<uint64_t>("number");
  if (entry.number == 0) reader.Fail("number", 8, "1 or more", "0");
  entry.id = EntryId{reader.GetBytes16("id")};
  entry.epoch = reader.Get<uint64_t>("epoch");
  const auto flags = reader.Get<uint8_t>("flags");
  if (flags > kBeginsEpoch) reader.Fail("flags", 1, "0 or 1", fmt::format("{}", flags));
  entry.begins_epoch = flags == kBeginsEpoch;
  if (entry.begins_epoch && entry.epoch == 0) reader.Fail("flags", 1, "0, since the entry has no epoch", "1");
  entry.durable = reader.Get<uint64_t>("durable");
  if (reader.ok() && entry.durable >= entry.number) {
    reader.Fail("durable", 8, fmt::format("less than the entry's number, {}", entry.number),
                fmt::format("{}", entry.durable));
  }
  entry.previous = Digest128{reader.GetBytes16("previous")};
  const auto count = reader.Get<uint32_t>("count of facts");
  if (!reader.CheckCount(count, kFactBytesMin, "count of facts")) return entry;
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    const auto size = reader.Get<uint32_t>("size of a fact");
    entry.facts.emplace_back(reader.GetText(size, "fact"));
  }
  return entry;
}

std::string EncodeFile(const EntryFile& file) {
  ByteWriter writer;
  BeginFrame(writer, kEntryFrame);
  Put(writer, file.entry);
  for (const JournalEntry& entry : file.carried) Put(writer, entry);
  EndFrame(writer);
  return std::move(writer).Take();
}

}  // namespace

std::string EncodeEntry(const JournalEntry& entry) {
  ByteWriter writer;
  Put(writer, entry);
  return std::move(writer).Take();
}

absl::StatusOr<JournalEntry> DecodeEntry(std::string_view what, std::string_view bytes) {
  ByteReader reader(AsBytes(bytes), what);
  JournalEntry entry = Get(reader);
  reader.ExpectEnd();
  if (!reader.ok()) return reader.status();
  return entry;
}

Digest128 DigestOfEntry(const JournalEntry& entry) { return DigestOf(AsBytes(EncodeEntry(entry))); }

std::string PadEntryFile(std::string bytes, size_t bytes_min) {
  if (bytes.size() >= bytes_min) return bytes;
  constexpr size_t kChecksumBytes = sizeof(uint64_t);
  ByteWriter writer;
  writer.PutText(std::string_view(bytes).substr(0, bytes.size() - kChecksumBytes));
  writer.PadTo(bytes_min - kChecksumBytes);
  EndFrame(writer);
  return std::move(writer).Take();
}

absl::StatusOr<std::string> EncodeEntryFile(const EntryFile& file) {
  const std::string what = fmt::format("journal entry {}", file.entry.number);
  size_t bytes = kFrameBytes;
  const auto count = [&](const JournalEntry& entry) {
    bytes += kJournalEntryBytesMin;
    for (const std::string& fact : entry.facts) bytes += kFactBytesMin + fact.size();
  };
  count(file.entry);
  for (const JournalEntry& entry : file.carried) count(entry);
  if (bytes > kEntryFileBytesMax) {
    return absl::ResourceExhaustedError(
        fmt::format("{} would have {} bytes, more than {}", what, bytes, kEntryFileBytesMax));
  }
  auto encoded = EncodeAndCheck(what, file, EncodeFile, [&](std::string_view encoded_file) {
    return DecodeEntryFile(file.entry.number, encoded_file);
  });
  if (!encoded.ok()) return encoded.status();
  return std::move(encoded->bytes);
}

absl::StatusOr<EntryFile> DecodeEntryFile(EntryNumber number, std::string_view bytes) {
  const std::string what = fmt::format("journal entry {}", number);
  if (bytes.size() > kEntryFileBytesMax) {
    return absl::DataLossError(fmt::format("{}: has {} bytes, more than {}", what, bytes.size(), kEntryFileBytesMax));
  }
  const auto checked = CheckFrame(what, kEntryFrame, bytes);
  if (!checked.ok()) return checked.status();
  ByteReader reader(AsBytes(*checked), what);
  SkipFrame(reader);
  EntryFile file;
  file.entry = Get(reader);
  if (reader.ok() && file.entry.number != number) {
    return absl::DataLossError(fmt::format("{}: the file is that of entry {}", what, file.entry.number));
  }
  // A failed reader gives zeros, so the loop must look before it counts.
  const EntryNumber carried = reader.ok() ? number - file.entry.durable - 1 : 0;
  if (!reader.CheckCount(carried, kJournalEntryBytesMin, "carried entries")) return reader.status();
  for (EntryNumber i = 1; i <= carried && reader.ok(); ++i) {
    file.carried.push_back(Get(reader));
    const EntryNumber expected = file.entry.durable + i;
    if (reader.ok() && file.carried.back().number != expected) {
      reader.Fail("number of a carried entry", 8, fmt::format("{}", expected),
                  fmt::format("{}", file.carried.back().number));
    }
  }
  reader.SkipZeros(reader.remaining(), "padding");
  if (!reader.ok()) return reader.status();
  return file;
}

}  // namespace tidemark::storage
