#include "storage/store/first_format/store_request.h"

#include <stdexcept>

#include "fmt/format.h"
#include "storage/records/checked_json.h"
#include "storage/records/json_fields.h"
#include "storage/records/tag.h"

namespace tidemark::storage {
namespace {

constexpr std::string_view kNameBegin = "request-";
constexpr std::string_view kNameEnd = ".json";

StoreRequest::Kind DecodeKind(const std::string& name) {
  using enum StoreRequest::Kind;
  for (StoreRequest::Kind kind : {kPin, kUnpin, kDelete, kTag, kUntag}) {
    if (name == RequestKindName(kind)) return kind;
  }
  throw std::invalid_argument(fmt::format("request '{}' is unknown", name));
}

std::string DecodeText(const Json& json, std::string_view what, size_t bytes_max) {
  std::string text = json.get<std::string>();
  if (text.size() > bytes_max) {
    throw std::invalid_argument(
        fmt::format("its {} has {} bytes, where at most {} are expected", what, text.size(), bytes_max));
  }
  return text;
}

StoreRequest DecodeRequestFields(const Json& json) {
  StoreRequest request;
  request.kind = DecodeKind(json.at("request").get_ref<const std::string&>());
  request.store = DecodeId<StoreId>(json.at("store"));
  request.step = DecodeStep(json.at("step"));
  request.attempt = DecodeId<AttemptId>(json.at("attempt"));
  request.text = DecodeText(json.at("text"), "text", kRequestTextBytesMax);
  if (request.kind == StoreRequest::Kind::kTag || request.kind == StoreRequest::Kind::kUntag) {
    if (absl::Status status = CheckTag(request.text); !status.ok()) {
      throw std::invalid_argument(std::string(status.message()));
    }
  }
  request.asker = DecodeText(json.at("asker"), "asker", kRequestAskerBytesMax);
  request.asked = absl::FromUnixNanos(DecodeInt64(json.at("asked_unix_ns")));
  return request;
}

}  // namespace

std::string_view RequestKindName(StoreRequest::Kind kind) {
  switch (kind) {
    case StoreRequest::Kind::kPin:
      return "pin";
    case StoreRequest::Kind::kUnpin:
      return "unpin";
    case StoreRequest::Kind::kDelete:
      return "delete";
    case StoreRequest::Kind::kTag:
      return "tag";
    case StoreRequest::Kind::kUntag:
      return "untag";
  }
  return "";
}

absl::StatusOr<StoreRequest> DecodeStoreRequest(std::string_view bytes) {
  // The check comes first, in every version: of bytes that are not as they were written, the version says nothing.
  if (absl::Status status = CheckEnd("request", bytes, kStoreRequestBytesMax); !status.ok()) return status;
  return DecodeJson<StoreRequest>("request", bytes, kStoreRequestVersion, DecodeRequestFields, ParseStrictly);
}

bool IsRequestFileName(std::string_view name) {
  if (!name.starts_with(kNameBegin) || !name.ends_with(kNameEnd)) return false;
  name.remove_prefix(kNameBegin.size());
  if (name.size() < kNameEnd.size()) return false;
  name.remove_suffix(kNameEnd.size());
  const size_t dash = name.rfind('-');
  return dash != std::string_view::npos && ParseStepFolderName(name.substr(0, dash)) && FromHex(name.substr(dash + 1));
}

}  // namespace tidemark::storage
