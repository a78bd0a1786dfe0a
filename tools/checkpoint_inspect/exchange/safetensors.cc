#include "tools/checkpoint_inspect/exchange/safetensors.h"

#include <array>
#include <filesystem>
#include <set>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "snapshot/exchange/safetensors_header.h"
#include "snapshot/exchange/safetensors_index.h"
#include "storage/io/printable_text.h"
#include "tools/checkpoint_inspect/exchange/imported_file.h"

namespace tidemark::inspect {
namespace {

constexpr std::string_view kIndexEnding = ".index.json";

class SafetensorsSource : public TensorSource {
 public:
  explicit SafetensorsSource(std::string name) : name_(std::move(name)) {}

  // Adds the tensors of one file. `expected`: where an index names them, those that it says are there; else null.
  // `metadata` may be null.
  absl::Status AddFile(const std::string& path, const std::set<std::string_view>* expected, FileMetadata* metadata);

  const std::string& name() const override { return name_; }
  std::span<const StoredEntry> entries() const override { return entries_; }
  absl::Status Read(std::span<const StepReader::Window> windows) const override;
  uint64_t chunk_bytes() const override { return 1; }

 private:
  struct Place {
    size_t file = 0;
    uint64_t offset = 0;  // in the file
  };

  const std::string name_;
  std::vector<ImportedFile> files_;
  std::vector<StoredEntry> entries_;
  std::vector<Place> places_;  // of the entries
};

absl::Status CheckNames(const SafetensorsHeader& header, const std::set<std::string_view>& expected) {
  for (const SafetensorsTensor& tensor : header.tensors) {
    if (!expected.contains(tensor.name)) {
      return absl::DataLossError(fmt::format("tensor '{}' is in the file, but the index has another file for it",
                                             storage::PrintableText(tensor.name)));
    }
  }
  // Names are unique, so it is one of these that lacks.
  if (header.tensors.size() == expected.size()) return absl::OkStatus();
  std::set<std::string_view> lacking = expected;
  for (const SafetensorsTensor& tensor : header.tensors) lacking.erase(tensor.name);
  return absl::DataLossError(fmt::format("tensor '{}' is in the index but not in the file",
                                         storage::PrintableText(std::string(*lacking.begin()))));
}

absl::Status SafetensorsSource::AddFile(const std::string& path, const std::set<std::string_view>* expected,
                                        FileMetadata* metadata) {
  absl::StatusOr<ImportedFile> file = ImportedFile::Open(path);
  if (!file.ok()) return file.status();
  if (file->bytes() < kSafetensorsLengthBytes) {
    return absl::DataLossError(fmt::format("{}: {} bytes are too short for a safetensors file", path, file->bytes()));
  }
  std::array<std::byte, kSafetensorsLengthBytes> length_bytes;
  if (absl::Status status = file->ReadAt(0, length_bytes); !status.ok()) return status;
  const absl::StatusOr<uint64_t> length = DecodeSafetensorsLength(length_bytes, file->bytes());
  if (!length.ok()) return InFile(path, length.status());
  std::string text(*length, '\0');
  if (absl::Status status = file->ReadAt(kSafetensorsLengthBytes, std::as_writable_bytes(std::span(text)));
      !status.ok()) {
    return status;
  }
  const uint64_t data = kSafetensorsLengthBytes + *length;
  absl::StatusOr<SafetensorsHeader> header = DecodeSafetensorsHeader(text, file->bytes() - data);
  std::string().swap(text);
  if (!header.ok()) return InFile(path, header.status());
  if (expected != nullptr) {
    if (absl::Status status = CheckNames(*header, *expected); !status.ok()) return InFile(path, status);
  }
  if (metadata != nullptr) {
    if (absl::Status status = metadata->Add(path, std::move(header->metadata)); !status.ok()) return status;
  }
  if (entries_.empty()) {
    entries_.reserve(header->tensors.size());
    places_.reserve(header->tensors.size());
  }
  for (SafetensorsTensor& tensor : header->tensors) {
    StoredEntry& entry = entries_.emplace_back();
    entry.spec.name = std::move(tensor.name);
    entry.spec.dtype = tensor.dtype;
    entry.spec.shape = std::move(tensor.shape);
    entry.bytes = entry.stored_bytes = tensor.end - tensor.begin;
    places_.push_back({.file = files_.size(), .offset = data + tensor.begin});
  }
  files_.push_back(*std::move(file));
  return absl::OkStatus();
}

absl::Status SafetensorsSource::Read(std::span<const StepReader::Window> windows) const {
  for (const StepReader::Window& window : windows) {
    if (window.entry >= entries_.size()) {
      return absl::InvalidArgumentError(fmt::format("{} has no entry {}", name_, window.entry));
    }
    const uint64_t bytes = entries_[window.entry].bytes;
    if (window.offset > bytes || window.destination.size() > bytes - window.offset) {
      return absl::OutOfRangeError(fmt::format("[{}, {}) is not in the {} bytes of '{}'", window.offset,
                                               window.offset + window.destination.size(), bytes,
                                               entries_[window.entry].spec.name));
    }
    const Place& place = places_[window.entry];
    if (absl::Status status = files_[place.file].ReadAt(place.offset + window.offset, window.destination);
        !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsFiles> ReadIndex(const std::string& path) {
  const absl::StatusOr<ImportedFile> file = ImportedFile::Open(path);
  if (!file.ok()) return file.status();
  if (file->bytes() > kSafetensorsIndexBytesMax) {
    return absl::DataLossError(fmt::format("{}: safetensors index: {} bytes, where at most {} are expected", path,
                                           file->bytes(), kSafetensorsIndexBytesMax));
  }
  std::string text(file->bytes(), '\0');
  if (absl::Status status = file->ReadAt(0, std::as_writable_bytes(std::span(text))); !status.ok()) {
    return status;
  }
  absl::StatusOr<SafetensorsFiles> files = DecodeSafetensorsIndex(text);
  if (!files.ok()) return InFile(path, files.status());
  return files;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TensorSource>> OpenSafetensors(const std::string& path, FileMetadata* metadata) {
  auto source = std::make_unique<SafetensorsSource>(path);
  if (!path.ends_with(kIndexEnding)) {
    if (absl::Status status = source->AddFile(path, nullptr, metadata); !status.ok()) return status;
    return source;
  }
  const absl::StatusOr<SafetensorsFiles> files = ReadIndex(path);
  if (!files.ok()) return files.status();
  std::map<std::string_view, std::set<std::string_view>> tensors;
  for (const auto& [tensor, file] : *files) tensors[file].insert(tensor);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  for (const auto& [file, names] : tensors) {
    if (absl::Status status = source->AddFile(folder / file, &names, metadata); !status.ok()) return status;
  }
  return source;
}

}  // namespace tidemark::inspect
