#include "storage/io/held_names.h"

#include "absl/status/statusor.h"
#include "fmt/format.h"

namespace tidemark::storage {

absl::Status HeldNames::Add(const std::string& path) {
  const absl::StatusOr<FileId> id = files_.Identify(path);
  if (id.ok()) names_.emplace_back(path, *id);
  return absl::IsFailedPrecondition(id.status()) ? Moved(std::string(id.status().message())) : id.status();
}

absl::Status HeldNames::Check() const {
  for (const auto& [path, id] : names_) {
    const absl::StatusOr<FileId> now = files_.Identify(path);
    if (absl::IsNotFound(now.status()) || absl::IsFailedPrecondition(now.status())) {
      return Moved(std::string(now.status().message()));
    }
    if (!now.ok()) return now.status();
    if (*now != id) return Moved(fmt::format("{}: another file has that name now", path));
  }
  return absl::OkStatus();
}

absl::Status HeldNames::Moved(const std::string& how) const {
  return absl::FailedPreconditionError(fmt::format("{} was moved or replaced while it was open: {}", what_, how));
}

}  // namespace tidemark::storage
