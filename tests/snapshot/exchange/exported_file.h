// What tests look for in an exported safetensors file.

#ifndef TIDEMARK_TESTS_SNAPSHOT_EXCHANGE_EXPORTED_FILE_H_
#define TIDEMARK_TESTS_SNAPSHOT_EXCHANGE_EXPORTED_FILE_H_

#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "snapshot/exchange/safetensors_header.h"

namespace tidemark {

// Empty if there is no such file.
inline std::string ReadExported(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

inline ptrdiff_t FilesIn(const std::string& folder) {
  ptrdiff_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) files += entry.is_regular_file() ? 1 : 0;
  return files;
}

class ExportedTensors {
 public:
  explicit ExportedTensors(const std::string& path) : file_(ReadExported(path)) {
    if (file_.size() < kSafetensorsLengthBytes) {
      ADD_FAILURE() << path << " has no header";
      return;
    }
    const auto bytes = std::as_bytes(std::span(file_));
    const auto length = DecodeSafetensorsLength(bytes.first<kSafetensorsLengthBytes>(), file_.size());
    if (!length.ok()) {
      ADD_FAILURE() << length.status();
      return;
    }
    data_ = kSafetensorsLengthBytes + *length;
    const auto header =
        DecodeSafetensorsHeader(std::string_view(file_).substr(kSafetensorsLengthBytes, *length), file_.size() - data_);
    if (header.ok()) {
      header_ = *header;
    } else {
      ADD_FAILURE() << header.status();
    }
  }

  const SafetensorsHeader& header() const { return header_; }

  std::string Bytes(std::string_view name) const {
    for (const SafetensorsTensor& tensor : header_.tensors) {
      if (tensor.name == name) return file_.substr(data_ + tensor.begin, tensor.end - tensor.begin);
    }
    ADD_FAILURE() << "no tensor " << name;
    return "";
  }

  // The step that the file says; "" if it says none.
  std::string step() const {
    const auto found = header_.metadata.find("tidemark.step");
    return found == header_.metadata.end() ? "" : found->second;
  }

 private:
  const std::string file_;
  size_t data_ = 0;  // where it begins
  SafetensorsHeader header_;
};

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_EXCHANGE_EXPORTED_FILE_H_
