#include "tools/checkpoint_inspect/checks/store_owner.h"

#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fmt/format.h"

namespace tidemark::inspect {
namespace {

std::string UserText(uid_t user) {
  const passwd* entry = getpwuid(user);
  return entry == nullptr ? fmt::format("user {}", user) : fmt::format("{} (user {})", entry->pw_name, user);
}

}  // namespace

absl::Status CheckOwner(const std::string& directory) {
  struct stat info;
  // The directory itself may have been there before the store.
  if (stat((directory + "/steps").c_str(), &info) != 0 && stat(directory.c_str(), &info) != 0) return absl::OkStatus();
  if (info.st_uid == geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(fmt::format(
      "store {} belongs to {}, who could not open the files that {} would write: run this as its owner (sudo "
      "-u '#{}' checkpoint-inspect ...)",
      directory, UserText(info.st_uid), UserText(geteuid()), info.st_uid));
}

std::string ThisUser() {
  const passwd* entry = getpwuid(geteuid());
  return entry == nullptr ? fmt::format("{}", geteuid()) : std::string(entry->pw_name);
}

}  // namespace tidemark::inspect
