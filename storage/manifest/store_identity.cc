#include "storage/manifest/store_identity.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <exception>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace tidemark::storage {
namespace {

constexpr size_t kIdentityBytesMax = 64 * 1024;

bool BelongsToStore(std::string_view name) {
  for (std::string_view known : {"LOCK", "store.json", "manifest", "steps", "leases", "quarantine", "lost+found"}) {
    if (name == known) return true;
  }
  // What a crash in the middle of a rebuild or of WriteFileDurably may leave.
  return name.starts_with("manifest.") || name.starts_with("store.json.") || name.starts_with(".");
}

}  // namespace

std::string EncodeStoreIdentity(const StoreId& id) {
  return nlohmann::json({{"format", kStoreFormat}, {"store_id", ToHex(id.bytes)}}).dump() + "\n";
}

absl::StatusOr<StoreId> DecodeStoreIdentity(std::string_view text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    const int64_t format = json.at("format").get<int64_t>();
    if (format > kStoreFormat) {
      return absl::UnimplementedError(
          fmt::format("the store has format {}; this library reads up to {}", format, kStoreFormat));
    }
    const auto id = FromHex(json.at("store_id").get_ref<const std::string&>());
    if (format < 1 || !id) return absl::DataLossError("it has no valid format and store_id");
    return StoreId{*id};
  } catch (const std::exception& error) {
    return absl::DataLossError(error.what());
  }
}

absl::StatusOr<StoreId> ReadStoreIdentity(FileSystem& files, const StoreLayout& layout) {
  absl::StatusOr<std::string> text = ReadSmallFile(files, layout.identity(), kIdentityBytesMax);
  if (!text.ok()) return text.status();
  absl::StatusOr<StoreId> id = DecodeStoreIdentity(*text);
  if (!id.ok()) {
    return absl::Status(id.status().code(),
                        fmt::format("{}: {}", layout.identity(), std::string(id.status().message())));
  }
  return id;
}

absl::Status CheckIsStoreOrEmpty(FileSystem& files, const StoreLayout& layout) {
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files.ListDirectory(layout.directory());
  if (!entries.ok()) return entries.status();
  const auto stranger = std::find_if(entries->begin(), entries->end(),
                                     [](const DirectoryEntry& entry) { return !BelongsToStore(entry.name); });
  if (stranger == entries->end()) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("{} is not a Tidemark store: it has no store.json, and holds '{}'",
                                                   layout.directory(), stranger->name));
}

std::string DescribeThisProcess() {
  char host[256] = "unknown";
  gethostname(host, sizeof(host) - 1);
  return nlohmann::json({{"pid", getpid()},
                         {"host", host},
                         {"program", program_invocation_short_name},
                         {"since", absl::FormatTime(absl::RFC3339_sec, absl::Now(), absl::UTCTimeZone())}})
             .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) +
         "\n";
}

}  // namespace tidemark::storage
