#include "storage/store/store_identity.h"

#include <unistd.h>

#include <cerrno>
#include <exception>
#include <new>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "storage/io/exception_status.h"
#include "storage/io/printable_text.h"
#include "storage/records/checked_json.h"
#include "storage/records/json_fields.h"

namespace tidemark::storage {
namespace {

constexpr size_t kIdentityBytesMax = 64 * 1024;

absl::StatusOr<StoreId> DecodeIdentity(std::string_view text, int* format) {
  try {
    ScopedJson scoped(ParseJson(text));
    const Json& json = *scoped;
    const int64_t said = DecodeInt64(json.at("format"));
    if (said > kStoreFormat) {
      return absl::UnimplementedError(
          fmt::format("the store has format {}; this library reads up to {}", said, kStoreFormat));
    }
    const std::string& text = json.at("store_id").get_ref<const std::string&>();
    const auto id = FromHex(text);
    if (said < kFirstStoreFormat || !id) return absl::DataLossError("it has no valid format and store_id");
    const std::string& check = json.at("check").get_ref<const std::string&>();
    if (check != CheckOf(text)) {
      return absl::DataLossError(
          fmt::format("the check of its store_id is '{}', expected '{}'", PrintableText(check), CheckOf(text)));
    }
    *format = static_cast<int>(said);
    return StoreId{*id};
  } catch (const std::bad_alloc&) {
    return ExceptionStatus("reading the store's identity");
  } catch (const std::exception& error) {
    return absl::DataLossError(JsonProblem(error));
  }
}

}  // namespace

std::string EncodeStoreIdentity(const StoreId& id) {
  const std::string text = ToHex(id.bytes);
  return DumpJson(JsonObject("format", kStoreFormat, "store_id", text, "check", CheckOf(text))) + "\n";
}

absl::StatusOr<StoreId> DecodeStoreIdentity(std::string_view text) {
  int format = 0;
  return DecodeIdentity(text, &format);
}

absl::StatusOr<StoreId> ReadStoreIdentity(FileSystem& files, const StoreLayout& layout, int* format) {
  absl::StatusOr<std::string> text = ReadSmallFile(files, layout.identity(), kIdentityBytesMax);
  if (!text.ok()) return text.status();
  int ignored = 0;
  absl::StatusOr<StoreId> id = DecodeIdentity(*text, format == nullptr ? &ignored : format);
  if (!id.ok()) {
    return absl::Status(id.status().code(),
                        fmt::format("{}: {}", layout.identity(), std::string(id.status().message())));
  }
  return id;
}

bool IsMissingOrDamaged(const absl::Status& status) { return absl::IsNotFound(status) || absl::IsDataLoss(status); }

absl::Status CheckIsEmpty(FileSystem& files, const StoreLayout& layout) {
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files.ListDirectory(layout.directory());
  if (!entries.ok()) return entries.status();
  for (const DirectoryEntry& entry : *entries) {
    if (layout.MeansNothing(entry.name)) continue;
    if (entry.name == "steps" && entry.type == FileType::kDirectory) {
      absl::StatusOr<std::vector<DirectoryEntry>> steps = files.ListDirectory(layout.steps());
      if (!steps.ok()) return steps.status();
      if (steps->empty()) continue;
    }
    return absl::FailedPreconditionError(fmt::format("{} is not a Tidemark store: it has no store.json, and holds '{}'",
                                                     layout.directory(), PrintableText(entry.name)));
  }
  return absl::OkStatus();
}

std::string DescribeThisProcess() {
  char host[256] = "unknown";
  gethostname(host, sizeof(host) - 1);
  return DumpJson(JsonObject("pid", getpid(), "host", host, "program", program_invocation_short_name, "since",
                             absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone()))) +
         "\n";
}

bool MayBeInspect(std::string_view note) {
  if (note.empty()) return true;
  ScopedJson json(ParseJson(note, nullptr, /*allow_exceptions=*/false));
  if (!json->is_object()) return false;
  const auto program = json->find("program");
  return program != json->end() && *program == "checkpoint-inspect";
}

}  // namespace tidemark::storage
