#include <zlib.h>

#include <utility>

#include "fmt/format.h"
#include "snapshot/exchange/npy_format.h"
#include "snapshot/exchange/output_file.h"
#include "snapshot/exchange/zip_format.h"
#include "tools/checkpoint_inspect/exchange/export_sinks.h"

namespace tidemark::inspect {
namespace {

class NpzSink : public ExportSink {
 public:
  explicit NpzSink(std::unique_ptr<OutputFile> file) : file_(std::move(file)) {}

  absl::Status Begin(const ExportItem& item) override;
  absl::Status Write(std::span<const std::byte> bytes) override;
  absl::StatusOr<std::vector<ExportedFile>> Commit() override;

 private:
  absl::Status Append(std::span<const std::byte> bytes) {
    end_ += bytes.size();
    return file_->Write(bytes);
  }
  absl::Status Append(const std::string& text) { return Append(std::as_bytes(std::span(text))); }
  absl::Status EndMember();

  const std::unique_ptr<OutputFile> file_;
  uint64_t end_ = 0;  // of the archive so far
  std::vector<ZipMember> members_;
};

absl::Status NpzSink::Begin(const ExportItem& item) {
  if (absl::Status status = EndMember(); !status.ok()) return status;
  const std::string header = EncodeNpyHeader(item.spec.dtype, item.spec.shape);
  members_.push_back({.name = SafeFileName(item.spec.name, members_.size()) + ".npy",
                      .bytes = header.size() + item.bytes,
                      .offset = end_});
  if (absl::Status status = Append(EncodeZipMemberHeader(members_.back())); !status.ok()) return status;
  return Write(std::as_bytes(std::span(header)));
}

absl::Status NpzSink::Write(std::span<const std::byte> bytes) {
  uint32_t& crc = members_.back().crc;
  crc = static_cast<uint32_t>(crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
  return Append(bytes);
}

// The checksum stands before the bytes.
absl::Status NpzSink::EndMember() {
  if (members_.empty()) return absl::OkStatus();
  const std::string header = EncodeZipMemberHeader(members_.back());
  return file_->WriteAt(members_.back().offset, std::as_bytes(std::span(header)));
}

absl::StatusOr<std::vector<ExportedFile>> NpzSink::Commit() {
  absl::Status status = EndMember();
  if (status.ok()) status = Append(EncodeZipDirectory(members_, end_));
  if (status.ok()) status = file_->Commit();
  if (!status.ok()) return status;
  return std::vector<ExportedFile>{{.path = file_->path(), .bytes = end_, .tensors = members_.size()}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<ExportSink>> MakeNpzSink(const ExportPlan&, const std::string& out, bool replace) {
  absl::StatusOr<std::unique_ptr<OutputFile>> file = OutputFile::Create(out, replace);
  if (!file.ok()) return file.status();
  return std::make_unique<NpzSink>(*std::move(file));
}

}  // namespace tidemark::inspect
