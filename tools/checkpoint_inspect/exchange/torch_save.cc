#include "tools/checkpoint_inspect/exchange/torch_save.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "snapshot/exchange/torch_contents.h"
#include "snapshot/exchange/torch_pickle.h"
#include "snapshot/exchange/zip_directory.h"
#include "storage/io/printable_text.h"
#include "tools/checkpoint_inspect/exchange/imported_file.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

using std::string_view_literals::operator""sv;

constexpr std::string_view kZipMagic = "PK\x03\x04"sv;
constexpr std::string_view kPickleMagic = "\x80"sv;  // of a protocol of 2 or more
constexpr std::string_view kTarMagic = "ustar"sv;
constexpr uint64_t kTarMagicAt = 257;
constexpr uint64_t kHeadBytes = kTarMagicAt + kTarMagic.size();

enum class Format { kOther, kZip, kPickle, kTar };

absl::StatusOr<Format> FormatOf(const ImportedFile& file) {
  std::array<char, kHeadBytes> bytes = {};
  const size_t count = std::min<uint64_t>(file.bytes(), bytes.size());
  if (absl::Status status = file.ReadAt(0, std::as_writable_bytes(std::span(bytes).first(count))); !status.ok()) {
    return status;
  }
  const std::string_view head(bytes.data(), bytes.size());
  if (head.starts_with(kZipMagic)) return Format::kZip;
  if (head.substr(kTarMagicAt) == kTarMagic) return Format::kTar;
  // A safetensors file may begin so, too, with the length of its header; '{' is behind that.
  const bool is_pickle = head.starts_with(kPickleMagic) && head[1] >= 2 && head[1] <= 5 && head[8] != '{';
  return is_pickle ? Format::kPickle : Format::kOther;
}

// Records of an archive by their names within its only folder.
class Archive {
 public:
  static absl::StatusOr<Archive> Open(const ImportedFile& file) {
    absl::StatusOr<std::vector<ZipRecord>> records = ReadZipDirectory(
        file.bytes(),
        [&](uint64_t offset, std::span<std::byte> destination) { return file.ReadAt(offset, destination); });
    if (!records.ok()) return records.status();
    Archive archive;
    for (ZipRecord& record : *records) {
      const size_t slash = record.name.find('/');
      std::string name = slash == std::string::npos ? record.name : record.name.substr(slash + 1);
      const std::string folder = record.name.substr(0, slash == std::string::npos ? 0 : slash);
      const bool is_first = archive.records_.empty();
      if (is_first) archive.folder_ = folder;
      if (folder != archive.folder_) {
        return absl::InvalidArgumentError(
            fmt::format("it has records in '{}' and '{}', where torch.save writes one folder",
                        Shorten(Escape(archive.folder_), 200), Shorten(Escape(folder), 200)));
      }
      const auto [known, is_new] = archive.records_.try_emplace(std::move(name), std::move(record));
      if (!is_new) {
        return absl::DataLossError(fmt::format("record '{}' is there twice", Shorten(Escape(known->second.name), 200)));
      }
    }
    return archive;
  }

  const ZipRecord* Find(const std::string& name) const {
    const auto found = records_.find(name);
    return found == records_.end() ? nullptr : &found->second;
  }

 private:
  std::string folder_;
  absl::flat_hash_map<std::string, ZipRecord> records_;
};

// Reads the record piece by piece into `bytes`.
absl::Status CheckCrc(const ImportedFile& file, const ZipRecord& record, std::span<std::byte> bytes) {
  uLong crc = crc32(0, nullptr, 0);
  for (uint64_t done = 0; done < record.bytes;) {
    const uint64_t count = std::min<uint64_t>(bytes.size(), record.bytes - done);
    if (absl::Status status = file.ReadAt(record.offset + done, bytes.first(count)); !status.ok()) return status;
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), count);
    done += count;
  }
  if (crc == record.crc) return absl::OkStatus();
  return absl::DataLossError(fmt::format("{}: record '{}' is damaged: its checksum is {:08x}, expected {:08x}",
                                         file.path(), Shorten(Escape(record.name), 200), crc, record.crc));
}

class TorchSource : public TensorSource {
 public:
  explicit TorchSource(ImportedFile file) : file_(std::move(file)) {}

  void Add(TorchTensor tensor, const ZipRecord& record) {
    const uint64_t element_bytes = GetDtypeInfo(tensor.spec.dtype).element_bytes;
    Place place{.offset = record.offset + tensor.offset * element_bytes, .element_bytes = element_bytes};
    // Contiguous from the last dimension on; one of a single index may have any stride.
    uint64_t expected = 1;
    place.is_contiguous = true;
    for (size_t d = tensor.strides.size(); d > 0; --d) {
      const auto size = static_cast<uint64_t>(tensor.spec.shape[d - 1]);
      const auto stride = static_cast<uint64_t>(tensor.strides[d - 1]);
      if (tensor.bytes == 0 || size == 1) continue;
      place.is_contiguous = place.is_contiguous && stride == expected;
      place.span_bytes += (size - 1) * stride * element_bytes;
      expected *= size;
    }
    place.span_bytes += element_bytes;
    if (!place.is_contiguous) place.strides = std::move(tensor.strides);
    StoredEntry& entry = entries_.emplace_back();
    entry.spec = std::move(tensor.spec);
    entry.bytes = entry.stored_bytes = tensor.bytes;
    places_.push_back(std::move(place));
  }

  const std::string& name() const override { return file_.path(); }
  std::span<const StoredEntry> entries() const override { return entries_; }
  uint64_t chunk_bytes() const override { return 1; }

  absl::Status Read(std::span<const StepReader::Window> windows) const override {
    for (const StepReader::Window& window : windows) {
      if (window.entry >= entries_.size()) {
        return absl::InvalidArgumentError(fmt::format("{} has no entry {}", name(), window.entry));
      }
      const uint64_t bytes = entries_[window.entry].bytes;
      if (window.offset > bytes || window.destination.size() > bytes - window.offset) {
        return absl::OutOfRangeError(fmt::format("[{}, {}) is not in the {} bytes of '{}'", window.offset,
                                                 window.offset + window.destination.size(), bytes,
                                                 entries_[window.entry].spec.name));
      }
      if (window.destination.empty()) continue;
      const Place& place = places_[window.entry];
      absl::Status status =
          place.is_contiguous ? file_.ReadAt(place.offset + window.offset, window.destination) : Gather(window, place);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

 private:
  struct Place {
    uint64_t offset = 0;  // of the first element, in the file
    uint64_t element_bytes = 1;
    uint64_t span_bytes = 0;  // from the first element to the last in the file
    bool is_contiguous = false;
    std::vector<int64_t> strides;  // where it is not
  };

  // The last tensor that was gathered, whole.
  struct Gathered {
    std::optional<size_t> entry;
    std::vector<std::byte> bytes;
  };

  // The rows of a window, one element at a time, each from where its strides say that it is.
  absl::Status Gather(const StepReader::Window& window, const Place& place) const {
    const uint64_t element_bytes = place.element_bytes;
    if (window.offset % element_bytes != 0 || window.destination.size() % element_bytes != 0) {
      return absl::InvalidArgumentError("a window cuts an element in two");
    }
    absl::MutexLock lock(&mutex_);
    const bool in_memory = place.span_bytes <= kGatheredBytesMax;
    if (in_memory && gathered_.entry != window.entry) {
      gathered_.entry.reset();
      gathered_.bytes.resize(place.span_bytes);
      if (absl::Status status = file_.ReadAt(place.offset, gathered_.bytes); !status.ok()) return status;
      gathered_.entry = window.entry;
    }
    const std::vector<int64_t>& shape = entries_[window.entry].spec.shape;
    std::vector<uint64_t> index(shape.size());
    uint64_t rest = window.offset / element_bytes;
    uint64_t at = 0;  // in elements, from the first
    for (size_t d = shape.size(); d > 0; --d) {
      index[d - 1] = rest % static_cast<uint64_t>(shape[d - 1]);
      rest /= static_cast<uint64_t>(shape[d - 1]);
      at += index[d - 1] * static_cast<uint64_t>(place.strides[d - 1]);
    }
    for (size_t done = 0; done < window.destination.size(); done += element_bytes) {
      const std::span<std::byte> element = window.destination.subspan(done, element_bytes);
      if (in_memory) {
        std::memcpy(element.data(), gathered_.bytes.data() + at * element_bytes, element_bytes);
      } else if (absl::Status status = file_.ReadAt(place.offset + at * element_bytes, element); !status.ok()) {
        return status;
      }
      // The next index, from the last dimension on.
      for (size_t d = shape.size(); d > 0; --d) {
        const auto stride = static_cast<uint64_t>(place.strides[d - 1]);
        at += stride;
        if (++index[d - 1] < static_cast<uint64_t>(shape[d - 1])) break;
        at -= index[d - 1] * stride;
        index[d - 1] = 0;
      }
    }
    return absl::OkStatus();
  }

  const ImportedFile file_;
  std::vector<StoredEntry> entries_;
  std::vector<Place> places_;  // of the entries
  mutable absl::Mutex mutex_;
  mutable Gathered gathered_ ABSL_GUARDED_BY(mutex_);
};

absl::Status CheckFormat(const ImportedFile& file) {
  const absl::StatusOr<Format> format = FormatOf(file);
  if (!format.ok()) return format.status();
  if (*format == Format::kZip) return absl::OkStatus();
  if (*format == Format::kOther) return absl::InvalidArgumentError("it is not a file of torch.save");
  return absl::InvalidArgumentError(
      "a file of torch.save before PyTorch 1.6, or a pickle of another program, which is not read; to convert it, in "
      "Python: torch.save(torch.load('OLD', map_location='cpu', weights_only=True), 'NEW')");
}

struct Contents {
  Archive archive;
  TorchContents torch;
};

// Everything but the tensors' bytes.
absl::StatusOr<Contents> ReadContents(const ImportedFile& file, std::span<std::byte> buffer) {
  if (absl::Status status = CheckFormat(file); !status.ok()) return InFile(file.path(), status);
  absl::StatusOr<Archive> archive = Archive::Open(file);
  if (!archive.ok()) return InFile(file.path(), archive.status());
  const ZipRecord* pickle_record = archive->Find("data.pkl");
  if (pickle_record == nullptr) {
    return absl::InvalidArgumentError(
        fmt::format("{}: a zip archive without a record data.pkl, so torch.save did not write it", file.path()));
  }
  if (pickle_record->bytes > kTorchPickleBytesMax) {
    return absl::UnimplementedError(fmt::format("{}: a pickle of {} bytes; at most {} are read", file.path(),
                                                pickle_record->bytes, kTorchPickleBytesMax));
  }
  if (const ZipRecord* order = archive->Find("byteorder"); order != nullptr) {
    std::string text(std::min<uint64_t>(order->bytes, 6), '\0');
    if (absl::Status status = CheckCrc(file, *order, buffer); !status.ok()) return status;
    if (absl::Status status = file.ReadAt(order->offset, std::as_writable_bytes(std::span(text))); !status.ok()) {
      return status;
    }
    if (text != "little") return absl::UnimplementedError(file.path() + ": its numbers are big-endian");
  }
  std::string bytes(pickle_record->bytes, '\0');
  if (absl::Status status = CheckCrc(file, *pickle_record, buffer); !status.ok()) return status;
  if (absl::Status status = file.ReadAt(pickle_record->offset, std::as_writable_bytes(std::span(bytes)));
      !status.ok()) {
    return status;
  }
  const absl::StatusOr<Pickle> pickle = ReadPickle(bytes);
  if (!pickle.ok()) return InFile(file.path(), pickle.status());
  absl::StatusOr<TorchContents> torch =
      FindTorchContents(*pickle, /*prefix=*/"", [&](const std::string& record) -> std::optional<uint64_t> {
        const ZipRecord* found = archive->Find(record);
        return found == nullptr ? std::nullopt : std::optional(found->bytes);
      });
  if (!torch.ok()) return InFile(file.path(), torch.status());
  return Contents{*std::move(archive), *std::move(torch)};
}

absl::Status AddTo(const std::string& path, const TorchContents& torch, FileMetadata* metadata) {
  std::map<std::string, std::string> strings;
  for (const TorchValue& value : torch.values) {
    if (metadata->with_step() && !strings.emplace(value.name, value.text).second) {
      return absl::InvalidArgumentError(fmt::format("{}: two values have the name '{}'; --metadata replaces them", path,
                                                    storage::PrintableText(value.name)));
    }
  }
  if (absl::Status status = metadata->Add(path, std::move(strings)); !status.ok()) return status;
  for (const TorchTensor& tensor : torch.tensors) {
    if (!tensor.tied_to) continue;
    absl::Status status =
        metadata->AddTie({.file = path, .name = tensor.spec.name, .tied_to = torch.tensors[*tensor.tied_to].spec.name});
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> IsTorchSave(const std::string& path) {
  const absl::StatusOr<ImportedFile> file = ImportedFile::Open(path);
  if (!file.ok()) return file.status();
  const absl::StatusOr<Format> format = FormatOf(*file);
  if (!format.ok()) return format.status();
  return *format != Format::kOther;
}

absl::StatusOr<std::unique_ptr<TensorSource>> OpenTorchSave(const std::string& path, FileMetadata* metadata,
                                                            std::string* left_out) {
  constexpr size_t kBufferBytes = size_t{1} << 20;
  absl::StatusOr<ImportedFile> file = ImportedFile::Open(path);
  if (!file.ok()) return file.status();
  std::vector<std::byte> buffer(kBufferBytes);
  absl::StatusOr<Contents> contents = ReadContents(*file, buffer);
  if (!contents.ok()) return contents.status();
  TorchContents& torch = contents->torch;
  if (metadata != nullptr) {
    if (absl::Status status = AddTo(path, torch, metadata); !status.ok()) return status;
  }
  if (left_out != nullptr && torch.left_out > 0) {
    *left_out = fmt::format("{}: left out {} object{} that {} neither tensors nor plain values: {}{}", path,
                            torch.left_out, torch.left_out == 1 ? "" : "s", torch.left_out == 1 ? "is" : "are",
                            Shorten(torch.first_left_out, 200), torch.left_out == 1 ? "" : ", ...");
  }
  for (const std::string& name : torch.records) {
    if (absl::Status status = CheckCrc(*file, *contents->archive.Find(name), buffer); !status.ok()) return status;
  }
  auto source = std::make_unique<TorchSource>(*std::move(file));
  for (TorchTensor& tensor : torch.tensors) {
    if (tensor.tied_to) continue;
    const ZipRecord& record = *contents->archive.Find(torch.records[tensor.record]);
    source->Add(std::move(tensor), record);
  }
  return source;
}

}  // namespace tidemark::inspect
