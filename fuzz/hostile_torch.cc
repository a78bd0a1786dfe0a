// Hostile files of torch.save: zip archives, and pickles in them.

#include "fmt/format.h"
#include "fuzz/hostile_case.h"
#include "snapshot/exchange/zip_format.h"
#include "tests/snapshot/exchange/torch_pickle_testing.h"

namespace tidemark::fuzz {
namespace torch_files {
namespace {

using pickled::Call;
using pickled::Dict;
using pickled::Global;
using pickled::Raw;
using pickled::Tensor;
using pickled::Text;
using pickled::Whole;

uint32_t Crc32(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char byte : bytes) {
    crc ^= static_cast<uint8_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc % 2 == 0 ? 0 : 0xedb88320);
  }
  return ~crc;
}

std::string Times(std::string_view text, size_t count) {
  std::string all;
  for (size_t i = 0; i < count; ++i) all += text;
  return all;
}

struct Archive {
  std::string bytes;
  std::vector<ZipMember> members;

  void Add(const std::string& name, std::string_view record) {
    members.push_back({.name = name, .bytes = record.size(), .offset = bytes.size(), .crc = Crc32(record)});
    bytes += EncodeZipMemberHeader(members.back());
    bytes += record;
  }
  std::string Whole() const { return bytes + EncodeZipDirectory(members, bytes.size()); }
};

// A file with that pickle, and 16 bytes as its record 0.
std::string Saved(const std::string& pickle) {
  Archive archive;
  archive.Add("a/data.pkl", pickle);
  archive.Add("a/data/0", std::string(16, '\0'));
  return archive.Whole();
}

std::string One() { return Tensor("0", 0, {1}, {1}); }
std::string Sound() { return Saved(Whole(Dict({Text("t"), One()}))); }

// The sound file with other bytes so far from its end.
std::string EndingWith(size_t from_end, std::string_view bytes) {
  std::string file = Sound();
  return file.replace(file.size() - from_end, bytes.size(), bytes);
}

std::vector<HostileCase> HostileArchives() {
  using enum absl::StatusCode;
  const std::string sound = Sound();
  Archive twice;
  twice.Add("a/data.pkl", Whole(One()));
  twice.Add("a/data.pkl", Whole(One()));
  Archive upward;
  upward.Add("a/data.pkl", Whole(One()));
  upward.Add("../\x1b[2J", "");
  Archive overlapping;
  overlapping.Add("a/data.pkl", Whole(One()));
  overlapping.Add("a/data/0", std::string(16, '\0'));
  overlapping.members[1].offset = overlapping.members[0].offset;
  Archive outside;
  outside.Add("a/data.pkl", Whole(One()));
  outside.Add("a/data/0", std::string(16, '\0'));
  outside.members[0].offset = uint64_t{1} << 30;
  outside.members[1].offset = uint64_t{1} << 31;
  Archive damaged;
  damaged.Add("a/data.pkl", Whole(Dict({Text("t"), One()})));
  damaged.Add("a/data/0", std::string(16, '\0'));
  damaged.bytes.back() = 1;
  Archive many;
  for (int i = 0; i < 70'000; ++i) many.Add(fmt::format("a/{}", i), "");
  return {
      {"archive-cut_short.pt", kDataLoss, "no end of a directory", sound.substr(0, sound.size() - 1)},
      {"archive-more_behind_it.pt", kDataLoss, "is not the end of the file", sound + "x"},
      {"archive-directory_of_4_gib.pt", kDataLoss, "bytes of directory at byte",
       EndingWith(10, std::string_view("\xfe\xff\xff\xff", 4))},
      {"archive-directory_elsewhere.pt", kDataLoss, "do not end before byte",
       EndingWith(6, std::string_view("\xfe\xff\xff\xff", 4))},
      {"archive-zip64_without_locator.pt", kDataLoss, "no Zip64 locator at byte",
       EndingWith(10, std::string_view("\xff\xff\xff\xff", 4))},
      {"archive-records_65000.pt", kDataLoss, "65000 records do not fit in the",
       EndingWith(14, std::string_view("\xe8\xfd\xe8\xfd", 4))},
      {"archive-several_parts.pt", kUnimplemented, "it has several parts", EndingWith(18, "\x01")},
      {"archive-record_twice.pt", kDataLoss, "record 'a/data.pkl' is there twice", twice.Whole()},
      {"archive-record_outside.pt", kInvalidArgument, "it has records in 'a' and '..'", upward.Whole()},
      {"archive-records_overlap.pt", kDataLoss, "does not fit between byte 0 and", overlapping.Whole()},
      {"archive-headers_outside.pt", kDataLoss, "does not fit between byte 1073741824 and", outside.Whole()},
      {"archive-record_damaged.pt", kDataLoss, "record 'a/data/0' is damaged", damaged.Whole()},
      {"archive-records_without_pickle.pt", kInvalidArgument, "without a record data.pkl", many.Whole()},
  };
}

std::vector<HostileCase> HostilePickles() {
  using enum absl::StatusCode;
  const std::string megabyte(1 << 20, 'x');
  std::string nested = One() + "q\x01";
  for (int i = 0; i < 40; ++i) nested += "0}(" + Text("a") + "h\x01" + Text("b") + "h\x01" + "uq\x01";
  std::string views = "(";
  for (int i = 1; i <= 20'000; ++i) {
    views += Text(fmt::format("t{}", i)) + Tensor("0", 0, {2, 2, 1}, {2, 1, i});
  }
  const std::string tensors_of_a_list = One() + "q\x01" + "0](" +
                                        Times(
                                            "h\x01"
                                            "N",
                                            400'000) +
                                        "e";
  return {
      {"pickle-runs_a_command.pt", kInvalidArgument, "it has no tensors",
       Saved(Whole(Call(Global("os", "system"), {Text("touch /tmp/touched")})))},
      {"pickle-empty.pt", kDataLoss, "the pickle is damaged at byte 0: it ends too early", Saved("")},
      {"pickle-objects.pt", kUnimplemented, "more than 1048575 objects", Saved(Times(")", 2'000'000))},
      {"pickle-text_of_4_gib.pt", kDataLoss, "it ends too early", Saved(std::string("\x80\x02X\xff\xff\xff\xff", 7))},
      {"pickle-text_of_an_eib.pt", kDataLoss, "it ends too early", Saved("\x80\x04\x8d" + Raw(uint64_t{1} << 60))},
      {"pickle-class_names_joined.pt", kDataLoss, "the name of a class is too long",
       Saved("\x80\x04" + Text(megabyte) + "q\x01" + Times("h\x01h\x01\x93", 200'000))},
      {"pickle-shared_lists.pt", kUnimplemented, "refer to each other too often", Saved(Whole(nested))},
      {"pickle-list_of_itself.pt", kUnimplemented, "refer to each other too often",
       Saved(Whole("]q\x01h\x01"
                   "a"))},
      {"pickle-nesting.pt", kDataLoss, "nested too deep", Saved(Whole("K\x01" + Times("\x85", 500'000)))},
      {"pickle-strings_shared.pt", kInvalidArgument, "more than the 16777216 of a step's user metadata",
       Saved(Whole(
           Dict({Text("t"), One(), Text("v"), Text(megabyte) + "q\x01" + "0](" + Times("h\x01", 1'000'000) + "e"})))},
      {"pickle-keys_shared.pt", kInvalidArgument, "at most 4096 are read",
       Saved(Whole(Text(megabyte) + "q\x01" + "0}(" + Times("h\x01N", 1'000'000) + "u"))},
      {"pickle-tensors_shared.pt", kUnimplemented, "131073 tensors", Saved(Whole(tensors_of_a_list))},
      {"pickle-views.pt", kUnimplemented, "at most 16 times as many are read", Saved(Whole("}" + views + "u"))},
      {"pickle-dimensions.pt", kDataLoss, "arguments of the wrong kind",
       Saved(Whole(
           Dict({Text("t"), Tensor("0", 0, std::vector<int32_t>(100'000, 1), std::vector<int32_t>(100'000, 1))})))},
      {"pickle-record_elsewhere.pt", kDataLoss, "the record data/../../x is absent",
       Saved(Whole(Dict({Text("t"), Tensor("../../x", 0, {1}, {1})})))},
      {"pickle-record_name.pt", kDataLoss, "arguments of the wrong kind",
       Saved(Whole(Dict({Text("t"), Tensor(megabyte, 0, {1}, {1})})))},
      {"pickle-tensor_of_an_eib.pt", kDataLoss, "not in its record of 16 bytes",
       Saved(Whole(Dict({Text("t"), Tensor("0", 0, {2147483647, 2147483647}, {1, 1})})))},
      {"pickle-name_with_escapes.pt", kDataLoss, R"('\x1b[2J': a tensor that is not in its record)",
       Saved(Whole(Dict({Text("\x1b[2J"), Tensor("0", 9, {1}, {1})})))},
      {"pickle-values.pt", kInvalidArgument, "more keys than the 8192",
       Saved(Whole("}(" + Text("t") + One() +
                   [] {
                     std::string values;
                     for (int i = 0; i < 100'000; ++i) values += Text(fmt::format("{}", i)) + "N";
                     return values;
                   }() +
                   "u"))},
  };
}

}  // namespace
}  // namespace torch_files

std::vector<HostileCase> HostileTorchFiles() {
  std::vector<HostileCase> cases = torch_files::HostileArchives();
  for (HostileCase& more : torch_files::HostilePickles()) cases.push_back(std::move(more));
  return cases;
}

}  // namespace tidemark::fuzz
