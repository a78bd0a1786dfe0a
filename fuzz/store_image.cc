#include "fuzz/store_image.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>

#include "fmt/format.h"
#include "fuzz/journal_image.h"
#include "storage/records/metric_report.h"
#include "storage/shard/format/aligned_buffer.h"
#include "storage/shard/format/shard_index_layout.h"
#include "storage/store/garbage.h"
#include "storage/store/store_identity.h"
#include "storage/store/store_layout.h"
#include "tests/storage/store/first_format/written_files.h"

namespace tidemark::fuzz {
namespace {

constexpr size_t kFilesMax = 32;
constexpr std::string_view kEvaluator = "e";

storage::StoreId TheStore() {
  storage::StoreId id;
  id.bytes.fill(0xa0);
  return id;
}

// The same text for a store that has no journal yet.
std::string FirstFormat(std::string text) {
  const std::string format = fmt::format("\"format\":{}", storage::kStoreFormat);
  const size_t at = text.find(format);
  Require(at != std::string::npos, "store.json has no format");
  return text.replace(at, format.size(), fmt::format("\"format\":{}", storage::kFirstStoreFormat));
}

// Over files, or nothing: opening a fifo would wait for its reader.
void WriteFile(const std::string& path, std::string_view bytes) {
  std::error_code error;
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) return;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

// Nothing happens where a file has that name.
void MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directory(path, error);
}

std::string Checked(std::string_view report) {
  return fmt::format("{},\"check\":\"{:016x}\"}}\n", report, storage::ChecksumOf(AsBytes(report)));
}

// One component of a path, whatever the input has.
std::string NameOf(std::string_view text) {
  std::string name(text);
  for (char& c : name) {
    if (c == '/' || c == '\0') c = '_';
  }
  return name.empty() || name == "." || name == ".." ? "_" : name;
}

class StoreMaker {
 public:
  explicit StoreMaker(const std::string& directory) : layout_(directory) {
    for (const std::string& path : {layout_.steps(), layout_.inbox(), layout_.quarantine(), layout_.manifest()}) {
      MakeFolder(path);
    }
    WriteFile(layout_.identity(), FirstFormat(EncodeStoreIdentity(TheStore())));
  }

  void Make(FileKind kind, uint8_t place, std::string_view bytes) {
    const storage::ShardIdentity identity = IdentityAt(place);
    const std::string folder = layout_.attempt(identity.step, identity.attempt);
    switch (kind) {
      case FileKind::kIdentity:
        return WriteFile(layout_.identity(), bytes);
      case FileKind::kShard:
        return MakeShard(identity, bytes);
      case FileKind::kWholeShard:
        return WriteFile(ShardPath(identity), bytes);
      case FileKind::kReport:
        MakeFolder(folder);
        return WriteFile(folder + "/" + storage::MetricFileName(kEvaluator), Checked(bytes));
      case FileKind::kInboxReport:
        return WriteFile(layout_.inbox() + "/" + storage::InboxFileName(identity.step, identity.attempt, kEvaluator),
                         Checked(bytes));
      case FileKind::kPin:
        return WriteFile(folder + "/pin.json", bytes);
      case FileKind::kDeletion:
        return WriteFile(folder + "/deleted.json", bytes);
      case FileKind::kEntry:
        return Journal().Add(place >> 2, FuzzInput(bytes));
      case FileKind::kEntryFile:
        return Journal().AddFile(bytes);
      case FileKind::kAnything:
      case FileKind::kLink:
      case FileKind::kFifo:
        return MakeNamed(kind, FolderAt(place, folder), bytes);
    }
  }

 private:
  std::string ShardPath(const storage::ShardIdentity& identity) const {
    const std::string path = layout_.shard(identity.step, identity.attempt, identity.rank, identity.world_size);
    MakeFolder(std::filesystem::path(path).parent_path());
    return path;
  }

  void MakeShard(const storage::ShardIdentity& identity, std::string_view bytes) const {
    FuzzInput in(bytes);
    storage::ShardHeader header{.identity = identity};
    SetShape(in.Take<uint8_t>(), &header);
    const std::string_view data = in.TakeText(in.Take<uint16_t>());
    WriteFile(ShardPath(identity), AssembleShard(header, data, in.TakeRest()));
  }

  std::string FolderAt(uint8_t place, const std::string& step_folder) const {
    switch ((place >> 2) % 6) {
      case 0:
        return step_folder;
      case 1:
        return layout_.steps();
      case 2:
        return layout_.inbox();
      case 3:
        return layout_.quarantine();
      case 4:
        return layout_.manifest();
      default:
        return layout_.directory();
    }
  }

  static void MakeNamed(FileKind kind, const std::string& folder, std::string_view bytes) {
    MakeFolder(folder);
    std::error_code error;
    FuzzInput in(bytes);
    const std::string path = folder + "/" + NameOf(in.TakeText(in.Take<uint8_t>()));
    const std::string_view rest = in.TakeRest();
    if (std::filesystem::symlink_status(path, error).type() != std::filesystem::file_type::not_found) return;
    if (kind == FileKind::kAnything) return WriteFile(path, rest);
    const int made =
        kind == FileKind::kFifo ? mkfifo(path.c_str(), 0600) : symlink(std::string(rest).c_str(), path.c_str());
    Require(made == 0 || errno != EPERM, "no links and fifos can be made here");
  }

  // The store is of the present format from then on.
  JournalImage& Journal() {
    if (!journal_) {
      journal_.emplace(layout_.journal());
      WriteFile(layout_.identity(), EncodeStoreIdentity(TheStore()));
    }
    return *journal_;
  }

  const storage::StoreLayout layout_;
  std::optional<JournalImage> journal_;
};

}  // namespace

storage::ShardIdentity IdentityAt(uint8_t place) {
  storage::ShardIdentity identity{.store = TheStore(), .step = place & 3};
  identity.attempt.bytes.fill(static_cast<uint8_t>(0xb0 + (place & 7)));
  if ((place & 32) != 0) identity.attempt = storage::MakeAttemptId(1, place & 7);
  identity.sequence = place;
  identity.world_size = (place & 64) != 0 ? 2 : 1;
  identity.rank = (place & 128) != 0 ? identity.world_size - 1 : 0;
  return identity;
}

void SetShape(uint8_t byte, storage::ShardHeader* header) {
  header->chunk_bytes = storage::kChunkBytesMin * (1 + byte % 128);
  header->repeats_names = byte >= 128;
}

std::string AssembleShard(const storage::ShardHeader& header, std::string_view data, std::string_view index) {
  std::string file = EncodeShardHeader(header);
  file += data;
  file.resize(storage::AlignUp(file.size()));
  storage::ShardFooter footer;
  footer.index_offset = file.size();
  footer.index_bytes = index.size();
  footer.index_digest = storage::DigestOf(AsBytes(index));
  footer.index_is_delta = index.starts_with(storage::kDeltaMagic);
  file += index;
  file.resize(storage::AlignUp(file.size()));
  footer.file_bytes = file.size() + storage::kShardBlockBytes;
  return file + EncodeShardFooter(footer);
}

void MakeStore(FuzzInput in, const std::string& directory) {
  // Links last, so that no file is written through one, to a place outside of the directory.
  StoreMaker maker(directory);
  FuzzInput again = in;
  for (const bool links : {false, true}) {
    FuzzInput& files = links ? again : in;
    for (size_t count = 0; count < kFilesMax && !files.empty(); ++count) {
      const auto kind = static_cast<FileKind>(files.Take<uint8_t>() % kFileKinds);
      const auto place = files.Take<uint8_t>();
      const std::string_view bytes = files.TakeText(files.Take<uint16_t>());
      if (links == (kind == FileKind::kLink)) maker.Make(kind, place, bytes);
    }
  }
}

}  // namespace tidemark::fuzz
