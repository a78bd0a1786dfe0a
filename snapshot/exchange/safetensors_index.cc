#include "snapshot/exchange/safetensors_index.h"

#include <utility>

#include "fmt/format.h"
#include "snapshot/exchange/safetensors_header.h"
#include "snapshot/exchange/strict_json.h"
#include "storage/io/printable_text.h"

namespace tidemark {
namespace {

constexpr std::string_view kMapKey = "weight_map";
constexpr size_t kFileNameBytesMax = 255;  // of every file system

bool IsPlainFileName(std::string_view name) {
  return !name.empty() && name.size() <= kFileNameBytesMax && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

class IndexHandler : public StrictJsonHandler {
 public:
  SafetensorsFiles TakeFiles() { return std::move(files_); }
  bool has_map() const { return has_map_; }

  // Of what is skipped every value is welcome.
  bool null() override { return skipped_ > 0 || Value("null"); }
  bool boolean(bool) override { return skipped_ > 0 || Value("a boolean"); }
  bool number_integer(int64_t) override { return skipped_ > 0 || Value("a number"); }
  bool number_unsigned(uint64_t) override { return skipped_ > 0 || Value("a number"); }
  bool number_float(double, const std::string&) override { return skipped_ > 0 || Value("a number"); }

  bool string(std::string& text) override {
    if (skipped_ > 0 || where_ != Where::kMap) return skipped_ > 0 || Value("a string");
    if (!IsPlainFileName(text)) {
      return Refuse(fmt::format("'{}' has the file '{}', which is not a plain file name", storage::PrintableText(key_),
                                storage::PrintableText(text)));
    }
    files_[key_] = std::move(text);
    return true;
  }

  bool start_array(size_t) override { return Skip("an array"); }
  bool end_array() override {
    --skipped_;
    return true;
  }

  bool start_object(size_t) override {
    if (where_ == Where::kOutside) {
      where_ = Where::kTop;
      return true;
    }
    if (where_ == Where::kTop && skipped_ == 0 && key_ == kMapKey) {
      where_ = Where::kMap;
      return true;
    }
    return Skip("an object");
  }

  bool end_object() override {
    if (skipped_ > 0) {
      --skipped_;
    } else if (where_ == Where::kMap) {
      where_ = Where::kTop;
    }
    return true;
  }

  bool key(std::string& text) override {
    if (skipped_ > 0) return true;
    if (where_ == Where::kTop && text == kMapKey && std::exchange(has_map_, true)) {
      return Refuse("'weight_map' is there twice");
    }
    if (where_ == Where::kMap && files_.contains(text)) {
      return Refuse(fmt::format("tensor '{}' is there twice", storage::PrintableText(text)));
    }
    if (where_ == Where::kMap && files_.size() == kSafetensorsTensorsMax) {
      return Refuse(fmt::format("it names more than {} tensors", kSafetensorsTensorsMax));
    }
    key_ = std::move(text);
    return true;
  }

 private:
  enum class Where { kOutside, kTop, kMap };

  bool Skip(std::string_view found) {
    if (skipped_ == 0 && !Value(found)) return false;
    ++skipped_;
    return true;
  }

  // A value that is not skipped with what it is in: next to the map it is of no interest.
  bool Value(std::string_view found) { return (where_ == Where::kTop && key_ != kMapKey) || Unexpected(found); }

  bool Unexpected(std::string_view found) override {
    if (where_ == Where::kOutside) return Refuse(fmt::format("expected an object, found {}", found));
    if (where_ == Where::kTop) return Refuse(fmt::format("'weight_map': expected an object, found {}", found));
    return Refuse(fmt::format("tensor '{}': expected a file name, found {}", storage::PrintableText(key_), found));
  }

  SafetensorsFiles files_;
  Where where_ = Where::kOutside;
  std::string key_;
  bool has_map_ = false;
  size_t skipped_ = 0;  // arrays and objects that are open within something of no interest
};

}  // namespace

absl::StatusOr<SafetensorsFiles> DecodeSafetensorsIndex(std::string_view text) {
  IndexHandler handler;
  absl::Status status = ParseStrictJson(text, kSafetensorsStringBytesMax, handler);
  if (status.ok() && !handler.has_map()) status = absl::DataLossError("it has no 'weight_map'");
  if (status.ok()) return handler.TakeFiles();
  return absl::Status(status.code(), fmt::format("safetensors index: {}", std::string(status.message())));
}

std::string EncodeSafetensorsIndex(const SafetensorsFiles& files, uint64_t total_bytes) {
  std::string text = fmt::format("{{\n  \"metadata\": {{\"total_size\": {}}},\n  \"{}\": {{", total_bytes, kMapKey);
  const char* separator = "\n";
  for (const auto& [tensor, file] : files) {
    text += fmt::format("{}    {}: {}", std::exchange(separator, ",\n"), QuotedJson(tensor), QuotedJson(file));
  }
  return text + "\n  }\n}\n";
}

}  // namespace tidemark
