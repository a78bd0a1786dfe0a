#include "snapshot/exchange/zip_directory.h"

#include <algorithm>
#include <array>
#include <concepts>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "snapshot/exchange/zip_numbers.h"
#include "storage/io/printable_text.h"

// Names and numbers are those of PKWARE's APPNOTE.TXT, version 6.3.10.

namespace tidemark {
namespace {

constexpr uint64_t kEndBytes = 22;
constexpr uint64_t kCommentBytesMax = 0xffff;
constexpr uint64_t kLocatorBytes = 20;
constexpr uint64_t kEnd64Bytes = 56;
constexpr uint64_t kDirectoryRecordBytes = 46;
constexpr uint64_t kLocalHeaderBytes = 30;
constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kLocatorSignature = 0x07064b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kDirectorySignature = 0x02014b50;
constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr uint16_t kEncrypted = 1 << 0;
constexpr uint16_t kSizesFollow = 1 << 3;  // the local header has none, which is as torch.save writes it
constexpr uint64_t kExtraFieldHeader = 4;

absl::Status Damaged(std::string_view what) { return absl::DataLossError(fmt::format("zip archive: {}", what)); }

std::string Shown(std::string_view name) {
  constexpr size_t kShownMax = 200;
  const std::string shown = storage::PrintableText(name.substr(0, kShownMax));
  return fmt::format("record '{}{}'", shown, name.size() > kShownMax ? "..." : "");
}

// Little-endian numbers one after the other. Beyond the end they are 0, and ok() is false.
class Fields {
 public:
  explicit Fields(std::string_view bytes) : bytes_(bytes) {}

  template <std::unsigned_integral T>
  T Take() {
    const std::string_view taken = Take(sizeof(T));
    uint64_t value = 0;
    for (size_t i = taken.size(); i > 0; --i) value = value << 8 | static_cast<uint8_t>(taken[i - 1]);
    return static_cast<T>(value);
  }
  std::string_view Take(size_t count) {
    if (count > bytes_.size()) {
      ok_ = false;
      bytes_ = {};
      return {};
    }
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  bool ok() const { return ok_; }
  bool empty() const { return bytes_.empty(); }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

// Where the directory is.
struct Directory {
  uint64_t records = 0;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// What the directory says of a record, and then its local header.
struct ListedRecord {
  ZipRecord record;
  uint16_t flags = 0;
  uint16_t method = 0;
  uint64_t stored_bytes = 0;
  uint64_t header_offset = 0;
};

class Reader {
 public:
  Reader(uint64_t file_bytes, ReadFileAt read) : file_bytes_(file_bytes), read_(read) {}

  absl::StatusOr<std::vector<ZipRecord>> Read() {
    const absl::StatusOr<Directory> directory = FindDirectory();
    if (!directory.ok()) return directory.status();
    absl::StatusOr<std::vector<ListedRecord>> listed = ReadDirectory(*directory);
    if (!listed.ok()) return listed.status();
    std::sort(listed->begin(), listed->end(),
              [](const ListedRecord& a, const ListedRecord& b) { return a.header_offset < b.header_offset; });
    std::vector<ZipRecord> records;
    records.reserve(listed->size());
    for (size_t i = 0; i < listed->size(); ++i) {
      // The next one may claim to be anywhere, also behind the end of the file.
      const uint64_t next = i + 1 < listed->size() ? (*listed)[i + 1].header_offset : directory->offset;
      const uint64_t end = std::min(next, directory->offset);
      if (absl::Status status = ReadLocalHeader(&(*listed)[i], end); !status.ok()) return status;
      records.push_back(std::move((*listed)[i].record));
    }
    return records;
  }

 private:
  absl::StatusOr<std::string> Bytes(uint64_t offset, uint64_t count) {
    std::string bytes(count, '\0');
    absl::Status status = read_(offset, std::as_writable_bytes(std::span(bytes)));
    if (!status.ok()) return status;
    return bytes;
  }

  absl::StatusOr<Directory> FindDirectory() {
    const uint64_t tail_bytes = std::min(file_bytes_, kEndBytes + kCommentBytesMax);
    const uint64_t tail_offset = file_bytes_ - tail_bytes;
    const absl::StatusOr<std::string> tail = Bytes(tail_offset, tail_bytes);
    if (!tail.ok()) return tail.status();
    for (uint64_t at = tail_bytes - std::min(tail_bytes, kEndBytes) + 1; at > 0; --at) {
      const std::string_view end = std::string_view(*tail).substr(at - 1);
      if (Fields(end).Take<uint32_t>() != kEndSignature || end.size() < kEndBytes) continue;
      return ReadEnd(end, tail_offset + at - 1);
    }
    return Damaged(fmt::format("no end of a directory in the last {} bytes; the file may be cut short", tail_bytes));
  }

  // `end`: the end of the file from the record on that was found at `offset`.
  absl::StatusOr<Directory> ReadEnd(std::string_view end, uint64_t offset) {
    Fields fields(end);
    fields.Take<uint32_t>();
    const auto disk = fields.Take<uint16_t>();
    const auto first_disk = fields.Take<uint16_t>();
    const auto records_here = fields.Take<uint16_t>();
    Directory directory{.records = fields.Take<uint16_t>()};
    directory.bytes = fields.Take<uint32_t>();
    directory.offset = fields.Take<uint32_t>();
    const auto comment_bytes = fields.Take<uint16_t>();
    if (fields.Take(comment_bytes).size() != comment_bytes || !fields.empty()) {
      return Damaged(fmt::format("the end of the directory at byte {} is not the end of the file", offset));
    }
    if (disk != 0 || first_disk != 0 || records_here != directory.records) {
      return absl::UnimplementedError("zip archive: it has several parts, which are not read");
    }
    if (directory.records == kZipMax16 || directory.bytes == kZipMax32 || directory.offset == kZipMax32) {
      absl::StatusOr<Directory> large = ReadEnd64(offset);
      if (!large.ok()) return large;
      directory = *large;
      offset = end64_offset_;
    }
    if (directory.bytes > offset || directory.offset > offset - directory.bytes) {
      return Damaged(fmt::format("{} bytes of directory at byte {} do not end before byte {}", directory.bytes,
                                 directory.offset, offset));
    }
    if (directory.bytes > kZipDirectoryBytesMax) {
      return absl::UnimplementedError(fmt::format("zip archive: a directory of {} bytes; at most {} are read",
                                                  directory.bytes, kZipDirectoryBytesMax));
    }
    return directory;
  }

  absl::StatusOr<Directory> ReadEnd64(uint64_t end_offset) {
    if (end_offset < kLocatorBytes + kEnd64Bytes) return Damaged("no room for the end of a Zip64 directory");
    const absl::StatusOr<std::string> locator_bytes = Bytes(end_offset - kLocatorBytes, kLocatorBytes);
    if (!locator_bytes.ok()) return locator_bytes.status();
    Fields locator(*locator_bytes);
    if (locator.Take<uint32_t>() != kLocatorSignature) {
      return Damaged(fmt::format("no Zip64 locator at byte {}", end_offset - kLocatorBytes));
    }
    const auto disk = locator.Take<uint32_t>();
    end64_offset_ = locator.Take<uint64_t>();
    if (disk != 0 || locator.Take<uint32_t>() != 1) {
      return absl::UnimplementedError("zip archive: it has several parts, which are not read");
    }
    if (end64_offset_ > end_offset - kLocatorBytes - kEnd64Bytes) {
      return Damaged(fmt::format("the end of its Zip64 directory is not at byte {}", end64_offset_));
    }
    const absl::StatusOr<std::string> bytes = Bytes(end64_offset_, kEnd64Bytes);
    if (!bytes.ok()) return bytes.status();
    Fields fields(*bytes);
    if (fields.Take<uint32_t>() != kEnd64Signature) {
      return Damaged(fmt::format("the end of its Zip64 directory is not at byte {}", end64_offset_));
    }
    fields.Take(12);  // its own length, and versions
    const auto this_disk = fields.Take<uint32_t>();
    const auto first_disk = fields.Take<uint32_t>();
    const auto records_here = fields.Take<uint64_t>();
    Directory directory{.records = fields.Take<uint64_t>()};
    directory.bytes = fields.Take<uint64_t>();
    directory.offset = fields.Take<uint64_t>();
    if (this_disk != 0 || first_disk != 0 || records_here != directory.records) {
      return absl::UnimplementedError("zip archive: it has several parts, which are not read");
    }
    return directory;
  }

  absl::StatusOr<std::vector<ListedRecord>> ReadDirectory(const Directory& directory) {
    if (directory.records > directory.bytes / kDirectoryRecordBytes) {
      return Damaged(
          fmt::format("{} records do not fit in the {} bytes of the directory", directory.records, directory.bytes));
    }
    const absl::StatusOr<std::string> bytes = Bytes(directory.offset, directory.bytes);
    if (!bytes.ok()) return bytes.status();
    Fields fields(*bytes);
    std::vector<ListedRecord> listed(directory.records);
    for (size_t i = 0; i < listed.size(); ++i) {
      if (absl::Status status = ReadListed(i, &fields, &listed[i]); !status.ok()) return status;
    }
    if (!fields.empty()) return Damaged("its directory has more bytes than records");
    return listed;
  }

  static absl::Status ReadListed(size_t number, Fields* fields, ListedRecord* listed) {
    if (fields->Take<uint32_t>() != kDirectorySignature) {
      return Damaged(fmt::format("no record {} in the directory", number));
    }
    fields->Take(4);  // versions
    listed->flags = fields->Take<uint16_t>();
    listed->method = fields->Take<uint16_t>();
    fields->Take(4);  // time and date
    listed->record.crc = fields->Take<uint32_t>();
    listed->stored_bytes = fields->Take<uint32_t>();
    listed->record.bytes = fields->Take<uint32_t>();
    const auto name_bytes = fields->Take<uint16_t>();
    const auto extra_bytes = fields->Take<uint16_t>();
    const auto comment_bytes = fields->Take<uint16_t>();
    const auto disk = fields->Take<uint16_t>();
    fields->Take(6);  // attributes
    listed->header_offset = fields->Take<uint32_t>();
    listed->record.name = fields->Take(name_bytes);
    const std::string_view extra = fields->Take(extra_bytes);
    fields->Take(comment_bytes);
    if (!fields->ok()) return Damaged(fmt::format("record {} does not fit in the directory", number));
    if (absl::Status status = ReadZip64(extra, listed); !status.ok()) return status;
    const std::string shown = Shown(listed->record.name);
    if (disk != 0) return absl::UnimplementedError("zip archive: it has several parts, which are not read");
    if ((listed->flags & kEncrypted) != 0) {
      return absl::UnimplementedError(fmt::format("zip archive: {} is encrypted, which is not read", shown));
    }
    if (listed->method != kZipStored) {
      return absl::UnimplementedError(fmt::format(
          "zip archive: {} is compressed, which torch.save does not do; load the file in Python and save it again",
          shown));
    }
    if (listed->stored_bytes != listed->record.bytes) {
      return Damaged(fmt::format("{} has {} bytes, stored in {}", shown, listed->record.bytes, listed->stored_bytes));
    }
    return absl::OkStatus();
  }

  // "Extended information": those of the values that did not fit, in this order.
  static absl::Status ReadZip64(std::string_view extra, ListedRecord* listed) {
    Fields fields(extra);
    while (extra.size() >= kExtraFieldHeader) {
      fields = Fields(extra);
      const auto kind = fields.Take<uint16_t>();
      const auto length = fields.Take<uint16_t>();
      Fields values(fields.Take(length));
      if (!fields.ok()) break;
      extra.remove_prefix(kExtraFieldHeader + length);
      if (kind != kZip64Field) continue;
      for (uint64_t* value : {&listed->record.bytes, &listed->stored_bytes, &listed->header_offset}) {
        if (*value == kZipMax32) *value = values.Take<uint64_t>();
      }
      if (values.ok()) return absl::OkStatus();
      break;
    }
    const bool is_large = listed->record.bytes == kZipMax32 || listed->stored_bytes == kZipMax32 ||
                          listed->header_offset == kZipMax32 || !fields.ok();
    return is_large ? Damaged(fmt::format("{} has no valid Zip64 field", Shown(listed->record.name)))
                    : absl::OkStatus();
  }

  // `end`: where the next record or the directory begins.
  absl::Status ReadLocalHeader(ListedRecord* listed, uint64_t end) {
    const ZipRecord& record = listed->record;
    const std::string shown = Shown(record.name);
    const uint64_t offset = listed->header_offset;
    if (offset > end || end - offset < kLocalHeaderBytes + record.name.size()) {
      return Damaged(fmt::format("{} does not fit between byte {} and what follows it at {}", shown, offset, end));
    }
    const absl::StatusOr<std::string> bytes = Bytes(offset, kLocalHeaderBytes + record.name.size());
    if (!bytes.ok()) return bytes.status();
    Fields fields(*bytes);
    if (fields.Take<uint32_t>() != kLocalSignature) {
      return Damaged(fmt::format("the header of {} is not at byte {}", shown, offset));
    }
    fields.Take(2);  // version
    const auto flags = fields.Take<uint16_t>();
    const auto method = fields.Take<uint16_t>();
    fields.Take(4);  // time and date
    const auto crc = fields.Take<uint32_t>();
    fields.Take(8);  // sizes, which a Zip64 field may replace
    const auto name_bytes = fields.Take<uint16_t>();
    const auto extra_bytes = fields.Take<uint16_t>();
    const bool has_crc = (flags & kSizesFollow) == 0;
    if (flags != listed->flags || method != listed->method || name_bytes != record.name.size() ||
        fields.Take(name_bytes) != record.name || (has_crc && crc != record.crc)) {
      return Damaged(fmt::format("{} is another one by its header at byte {}", shown, offset));
    }
    listed->record.offset = offset + bytes->size() + extra_bytes;
    if (listed->record.offset > end || record.bytes > end - listed->record.offset) {
      return Damaged(fmt::format("{} of {} bytes at {} does not end before byte {}", shown, record.bytes,
                                 listed->record.offset, end));
    }
    return absl::OkStatus();
  }

  const uint64_t file_bytes_;
  const ReadFileAt read_;
  uint64_t end64_offset_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<ZipRecord>> ReadZipDirectory(uint64_t file_bytes, ReadFileAt read) {
  return Reader(file_bytes, read).Read();
}

}  // namespace tidemark
