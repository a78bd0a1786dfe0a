#include "snapshot/exchange/zip_format.h"

#include <algorithm>
#include <concepts>
#include <utility>

#include "snapshot/exchange/zip_numbers.h"

// Names and numbers are those of PKWARE's APPNOTE.TXT, version 6.3.10.

namespace tidemark {
namespace {

constexpr uint16_t kVersionZip64 = 45;
constexpr uint16_t kNamesAreUtf8 = 1 << 11;
constexpr uint16_t kNewYear1980 = 0x21;  // the first day there is, so that the same contents give the same archive

class Record {
 public:
  template <std::unsigned_integral T>
  Record& Put(T value) {
    for (size_t i = 0; i < sizeof(T); ++i) bytes_ += static_cast<char>(static_cast<uint64_t>(value) >> (8 * i) & 0xff);
    return *this;
  }
  Record& Put(const std::string& text) {
    bytes_ += text;
    return *this;
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

uint32_t Narrow32(uint64_t value) { return static_cast<uint32_t>(std::min(value, kZipMax32)); }
uint16_t Narrow16(uint64_t value) { return static_cast<uint16_t>(std::min(value, kZipMax16)); }

// Version to extract, flags, method, time, date, CRC and both sizes, as header and directory have them.
void PutCommon(const ZipMember& member, Record* record) {
  record->Put(kVersionZip64).Put(kNamesAreUtf8).Put(kZipStored).Put(uint16_t{0}).Put(kNewYear1980).Put(member.crc);
  record->Put(Narrow32(member.bytes)).Put(Narrow32(member.bytes)).Put(Narrow16(member.name.size()));
}

// "Extended information": those of the values that did not fit, in this order.
std::string Zip64Field(const ZipMember& member, bool with_offset) {
  Record values;
  if (member.bytes >= kZipMax32) values.Put(member.bytes).Put(member.bytes);
  if (with_offset && member.offset >= kZipMax32) values.Put(member.offset);
  const std::string text = values.Take();
  if (text.empty()) return text;
  return Record().Put(kZip64Field).Put(Narrow16(text.size())).Put(text).Take();
}

}  // namespace

std::string EncodeZipMemberHeader(const ZipMember& member) {
  const std::string extra = Zip64Field(member, /*with_offset=*/false);
  Record record;
  record.Put(uint32_t{0x04034b50});
  PutCommon(member, &record);
  return record.Put(Narrow16(extra.size())).Put(member.name).Put(extra).Take();
}

std::string EncodeZipDirectory(std::span<const ZipMember> members, uint64_t offset) {
  Record directory;
  for (const ZipMember& member : members) {
    const std::string extra = Zip64Field(member, /*with_offset=*/true);
    directory.Put(uint32_t{0x02014b50}).Put(kVersionZip64);
    PutCommon(member, &directory);
    directory.Put(Narrow16(extra.size()));
    // No comment; the first disk; neither internal nor external attributes.
    directory.Put(uint16_t{0}).Put(uint16_t{0}).Put(uint16_t{0}).Put(uint32_t{0});
    directory.Put(Narrow32(member.offset)).Put(member.name).Put(extra);
  }
  std::string text = directory.Take();
  const uint64_t bytes = text.size();
  const uint64_t count = members.size();
  Record end;
  if (count >= kZipMax16 || bytes >= kZipMax32 || offset >= kZipMax32) {
    constexpr uint64_t kRestOfRecord = 44;
    end.Put(uint32_t{0x06064b50}).Put(kRestOfRecord).Put(kVersionZip64).Put(kVersionZip64);
    end.Put(uint32_t{0}).Put(uint32_t{0}).Put(count).Put(count).Put(bytes).Put(offset);
    // The locator: of the record above, on one disk.
    end.Put(uint32_t{0x07064b50}).Put(uint32_t{0}).Put(offset + bytes).Put(uint32_t{1});
  }
  end.Put(uint32_t{0x06054b50}).Put(uint16_t{0}).Put(uint16_t{0}).Put(Narrow16(count)).Put(Narrow16(count));
  end.Put(Narrow32(bytes)).Put(Narrow32(offset)).Put(uint16_t{0});
  return text + end.Take();
}

}  // namespace tidemark
