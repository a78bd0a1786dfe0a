#include "snapshot/exchange/strict_json.h"

#include "fmt/format.h"
#include "storage/bytes/utf8.h"
#include "storage/io/printable_text.h"
#include "storage/records/c_locale.h"
#include "storage/records/json_fields.h"

namespace tidemark {
namespace {

// The parser takes a NUL for the end of the text, holds a string in memory several times over, and skips a byte order
// mark; none of these gets as far as the parser.
absl::Status CheckBytes(std::string_view text, size_t string_bytes_max) {
  if (text.empty() || text.front() != '{') {
    return absl::DataLossError(
        fmt::format("expected '{{' as its first byte, found {}",
                    text.empty() ? "nothing" : "'" + storage::PrintableText(text.substr(0, 1)) + "'"));
  }
  if (!storage::IsUtf8(text)) return absl::DataLossError("it is not UTF-8");
  bool in_string = false;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\0') return absl::DataLossError(fmt::format("byte {} is a NUL", i));
    if (in_string && text[i] == '\\') {
      ++i;
    } else if (text[i] == '"') {
      in_string = !in_string;
      begin = i + 1;
    }
    if (in_string && i >= begin + string_bytes_max) {
      return absl::DataLossError(fmt::format("a string at byte {} has more than {} bytes", begin, string_bytes_max));
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool StrictJsonHandler::parse_error(size_t, const std::string&, const nlohmann::json::exception& error) {
  return Refuse(storage::JsonProblem(error));
}

bool StrictJsonHandler::Refuse(std::string_view why) {
  status_ = absl::DataLossError(std::string(why));
  return false;
}

absl::Status ParseStrictJson(std::string_view text, size_t string_bytes_max, StrictJsonHandler& handler) {
  if (absl::Status status = CheckBytes(text, string_bytes_max); !status.ok()) return status;
  const storage::CLocale c_locale;
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &handler)) return absl::OkStatus();
  return handler.status();
}

std::string QuotedJson(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', /*ensure_ascii=*/false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tidemark
