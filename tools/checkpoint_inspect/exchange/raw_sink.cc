#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

#include "fmt/format.h"
#include "snapshot/exchange/output_file.h"
#include "storage/bytes/ids.h"
#include "storage/io/errno_status.h"
#include "tools/checkpoint_inspect/exchange/export_sinks.h"
#include "tools/checkpoint_inspect/output/json.h"

namespace tidemark::inspect {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kIndexName = "index.json";
constexpr int kIndexVersion = 1;  // grows when a field goes away or changes its meaning

// Writes into a folder with a name of its own, which gets the one that it is to have when everything is in it.
class RawSink : public ExportSink {
 public:
  RawSink(const ExportPlan& plan, std::string out, ExportMetadata metadata)
      : plan_(plan), out_(std::move(out)), metadata_(std::move(metadata)) {}
  ~RawSink() override {
    std::error_code error;
    if (!temporary_.empty()) fs::remove_all(temporary_, error);
  }

  absl::Status Start();
  absl::Status Begin(const ExportItem& item) override;
  absl::Status Write(std::span<const std::byte> bytes) override { return file_->Write(bytes); }
  absl::StatusOr<std::vector<ExportedFile>> Commit() override;

 private:
  // Of an entry; none is called as the index is.
  static std::string FileName(const ExportItem& item) { return SafeFileName(item.spec.name, item.entry) + ".bin"; }
  // Adds its bytes to `bytes`.
  absl::Status WriteIndex(OutputFile& file, uint64_t* bytes) const;

  const ExportPlan& plan_;
  const std::string out_;
  const ExportMetadata metadata_;
  std::string temporary_;  // empty: none is there
  std::unique_ptr<OutputFile> file_;
};

absl::Status RawSink::Start() {
  std::string out = out_;
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  struct stat present = {};
  if (lstat(out.c_str(), &present) == 0) {
    return absl::AlreadyExistsError(fmt::format("{} exists; export never replaces a folder", out_));
  }
  const fs::path path(out);
  const fs::path parent = path.parent_path().empty() ? "." : path.parent_path();
  std::string name = parent / fmt::format(".{}.{}", path.filename().string(), storage::ToHex(storage::RandomBytes16()));
  if (mkdir(name.c_str(), 0777) != 0) return storage::ErrnoStatus(errno, "create", out_);
  temporary_ = std::move(name);
  return absl::OkStatus();
}

absl::Status RawSink::Begin(const ExportItem& item) {
  if (file_ != nullptr) {
    if (absl::Status status = file_->Commit(); !status.ok()) return status;
  }
  absl::StatusOr<std::unique_ptr<OutputFile>> file =
      OutputFile::Create(fmt::format("{}/{}", temporary_, FileName(item)), /*replace=*/false);
  if (!file.ok()) return file.status();
  file_ = *std::move(file);
  return absl::OkStatus();
}

absl::Status RawSink::WriteIndex(OutputFile& file, uint64_t* bytes) const {
  std::map<std::string_view, const ExportItem*> owners;  // that others are tied to
  for (const ExportItem& item : plan_.tensors) {
    if (!item.tied_to.empty()) owners[item.tied_to] = nullptr;
  }
  for (const ExportItem& item : plan_.tensors) {
    if (const auto owner = owners.find(item.spec.name); owner != owners.end()) owner->second = &item;
  }
  constexpr size_t kPieceBytes = 1 << 16;
  std::string piece;
  absl::Status status;
  const auto write = [&] {
    *bytes += piece.size();
    if (status.ok()) status = file.Write(piece);
    piece.clear();
  };
  const Json document = {{"schema_version", kIndexVersion}, {"metadata", metadata_}};
  const auto add_all = [&](const std::function<void(const Json&)>& add) {
    for (const ExportItem& item : plan_.tensors) {
      add({{"name", item.spec.name},
           {"kind", EntryKindName(item.spec.kind)},
           {"dtype", GetDtypeInfo(item.spec.dtype).name},
           {"shape", item.spec.shape},
           {"bytes", item.bytes},
           {"file", FileName(item.tied_to.empty() ? item : *owners.at(item.tied_to))}});
    }
  };
  WriteWithArray(document, "entries", add_all, [&](std::string_view text) {
    piece += text;
    if (piece.size() >= kPieceBytes) write();
  });
  write();
  return status;
}

absl::StatusOr<std::vector<ExportedFile>> RawSink::Commit() {
  absl::Status status = file_ == nullptr ? absl::OkStatus() : file_->Commit();
  uint64_t bytes = plan_.tensor_bytes;
  if (status.ok()) {
    absl::StatusOr<std::unique_ptr<OutputFile>> index =
        OutputFile::Create(fmt::format("{}/{}", temporary_, kIndexName), /*replace=*/false);
    status = index.ok() ? WriteIndex(**index, &bytes) : index.status();
    if (status.ok()) status = (*index)->Commit();
  }
  if (!status.ok()) return status;
  if (absl::Status named = NameAnew(temporary_, out_); !named.ok()) return named;
  temporary_.clear();
  return std::vector<ExportedFile>{{.path = out_, .bytes = bytes, .tensors = plan_.tensors.size()}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExportSink>> MakeRawSink(const ExportPlan& plan, const std::string& out,
                                                        const ExportMetadata& metadata) {
  auto sink = std::make_unique<RawSink>(plan, out, metadata);
  if (absl::Status status = sink->Start(); !status.ok()) return status;
  return sink;
}

}  // namespace tidemark::inspect
