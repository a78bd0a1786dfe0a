#include <unistd.h>

#include <filesystem>
#include <utility>

#include "fmt/format.h"
#include "snapshot/exchange/export_metadata.h"
#include "snapshot/exchange/export_sink.h"
#include "snapshot/exchange/output_file.h"
#include "snapshot/exchange/safetensors_header.h"
#include "snapshot/exchange/safetensors_index.h"
#include "storage/io/printable_text.h"

namespace tidemark {
namespace {

constexpr std::string_view kEnding = ".safetensors";

std::string Stem(const std::string& out) {
  return out.ends_with(kEnding) ? out.substr(0, out.size() - kEnding.size()) : out;
}

class SafetensorsSink : public ExportSink {
 public:
  SafetensorsSink(const ExportPlan& plan, std::string out, bool replace)
      : plan_(plan), out_(std::move(out)), replace_(replace) {}

  absl::Status Start(const ExportMetadata& metadata, ExportMetadata values);
  absl::Status Begin(const ExportItem& item) override {
    file_ = item.file;
    return absl::OkStatus();
  }
  absl::Status Write(std::span<const std::byte> bytes) override {
    exported_[file_].bytes += bytes.size();
    return files_[file_]->Write(bytes);
  }
  absl::StatusOr<std::vector<ExportedFile>> Commit() override;

 private:
  absl::Status StartFile(const std::string& path, size_t file, ExportMetadata metadata);

  const ExportPlan& plan_;
  const std::string out_;
  const bool replace_;
  std::vector<std::unique_ptr<OutputFile>> files_;  // the index, where there is one, comes last
  std::vector<ExportedFile> exported_;              // of the same
  size_t file_ = 0;                                 // that is being written
};

absl::Status SafetensorsSink::StartFile(const std::string& path, size_t file, ExportMetadata metadata) {
  SafetensorsHeader header{.metadata = std::move(metadata)};
  if (plan_.files == 1) header.tensors.reserve(plan_.tensors.size());
  uint64_t end = 0;
  for (const ExportItem& item : plan_.tensors) {
    if (item.file != file || !item.tied_to.empty()) continue;
    const uint64_t begin = std::exchange(end, end + item.bytes);
    header.tensors.push_back({item.spec.name, item.spec.dtype, item.spec.shape, begin, end});
  }
  const absl::StatusOr<std::string> encoded = EncodeSafetensorsHeader(header);
  if (!encoded.ok()) return encoded.status();
  absl::StatusOr<std::unique_ptr<OutputFile>> output = OutputFile::Create(path, replace_);
  if (!output.ok()) return output.status();
  files_.push_back(*std::move(output));
  exported_.push_back({.path = path, .bytes = encoded->size(), .tensors = header.tensors.size()});
  return files_.back()->Write(*encoded);
}

absl::Status SafetensorsSink::Start(const ExportMetadata& metadata, ExportMetadata values) {
  ExportMetadata first = metadata;
  const auto add = [&](const std::string& name, std::string text, std::string_view kind) {
    if (!name.starts_with(kKindPrefix) && first.try_emplace(name, std::move(text)).second) {
      first.emplace(std::string(kKindPrefix) + name, kind);
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        fmt::format("'{}' cannot go into the file's metadata, because the name is taken; rename or exclude it",
                    storage::PrintableText(name)));
  };
  for (const ExportItem& item : plan_.values) {
    const std::string& name = item.spec.name;
    absl::Status status = add(name, std::move(values.at(name)), EntryKindName(item.spec.kind));
    if (!status.ok()) return status;
  }
  values.clear();
  // As safetensors.torch.save_model has it, and load_model reads it.
  for (const ExportItem& item : plan_.tensors) {
    if (item.tied_to.empty()) continue;
    if (absl::Status status = add(item.spec.name, item.tied_to, kTiedKind); !status.ok()) return status;
  }
  ExportMetadata others = metadata;
  others.erase(std::string(kUserMetadataKey));
  const std::vector<std::string> paths = plan_.files == 1 ? std::vector{out_} : ShardPaths(out_, plan_.files);
  for (size_t file = 0; file < paths.size(); ++file) {
    if (absl::Status status = StartFile(paths[file], file, file == 0 ? std::move(first) : others); !status.ok()) {
      return status;
    }
  }
  if (plan_.files == 1) return absl::OkStatus();
  SafetensorsFiles map;
  for (const ExportItem& item : plan_.tensors) {
    if (item.tied_to.empty()) map[item.spec.name] = std::filesystem::path(paths[item.file]).filename();
  }
  const std::string path = ShardIndexPath(out_);
  absl::StatusOr<std::unique_ptr<OutputFile>> index = OutputFile::Create(path, replace_);
  if (!index.ok()) return index.status();
  const std::string text = EncodeSafetensorsIndex(map, plan_.tensor_bytes);
  files_.push_back(*std::move(index));
  exported_.push_back({.path = path, .bytes = text.size()});
  return files_.back()->Write(text);
}

absl::StatusOr<std::vector<ExportedFile>> SafetensorsSink::Commit() {
  for (size_t i = 0; i < files_.size(); ++i) {
    const absl::Status status = files_[i]->Commit();
    if (status.ok()) continue;
    // What was replaced cannot come back; what was new goes.
    for (size_t named = 0; named < i && !replace_; ++named) unlink(files_[named]->path().c_str());
    return status;
  }
  return exported_;
}

}  // namespace

std::vector<std::string> ShardPaths(const std::string& out, size_t files) {
  std::vector<std::string> paths;
  for (size_t file = 1; file <= files; ++file) {
    paths.push_back(fmt::format("{}-{:05}-of-{:05}{}", Stem(out), file, files, kEnding));
  }
  return paths;
}

std::string ShardIndexPath(const std::string& out) { return fmt::format("{}{}.index.json", Stem(out), kEnding); }

absl::StatusOr<std::unique_ptr<ExportSink>> MakeSafetensorsSink(const ExportPlan& plan, const std::string& out,
                                                                bool replace, const ExportMetadata& metadata,
                                                                ExportMetadata values) {
  auto sink = std::make_unique<SafetensorsSink>(plan, out, replace);
  if (absl::Status status = sink->Start(metadata, std::move(values)); !status.ok()) return status;
  return sink;
}

}  // namespace tidemark
