#include "storage/store/store_layout.h"

#include <algorithm>
#include <initializer_list>

namespace tidemark::storage {
namespace {

bool IsAmong(const std::string& path, std::initializer_list<std::string> paths) {
  return std::find(paths.begin(), paths.end(), path) != paths.end();
}

}  // namespace

bool StoreLayout::IsOwnName(std::string_view name) const {
  return IsAmong(directory_ + "/" + std::string(name),
                 {lock(), identity(), identity() + ".tmp", manifest(), journal(), index(), steps(), inbox(), leases(),
                  ranks(), retired(), reserve(), quarantine()});
}

bool StoreLayout::MeansNothing(std::string_view name) const {
  return name == "lost+found" || name.starts_with(".") ||
         IsAmong(directory_ + "/" + std::string(name), {lock(), identity() + ".tmp"});
}

}  // namespace tidemark::storage
