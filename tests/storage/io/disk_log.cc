#include "tests/storage/io/disk_log.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "fmt/format.h"
#include "storage/io/check.h"

namespace tidemark::storage {
namespace {

using Kind = DiskOperation::Kind;

// Goes through a log and finds out with which operation each one is settled: sure to survive, or without a difference.
class Settlement {
 public:
  Settlement(const DiskImage& boot, std::vector<DiskOperation>& operations) : operations_(operations) {
    for (const auto& [number, node] : boot.nodes) {
      for (const auto& [name, named] : *node.names) ++objects_[named].names;
    }
  }

  void Go() {
    for (size_t i = 0; i < operations_.size(); ++i) {
      DiskOperation& operation = operations_[i];
      operation.durable_from = DiskOperation::kNever;
      operation.moot_from = DiskOperation::kNever;
      if (operation.IsName()) {
        AddName(i);
      } else if (operation.IsData()) {
        Object& file = objects_[operation.node];
        if (file.dead) operation.moot_from = i;
        file.unsynced_data.push_back(i);
      } else {
        operation.durable_from = i;
        if (operation.kind == Kind::kSyncData) SyncData(i);
        if (operation.kind == Kind::kSyncDirectory) SettleNames(operation.node, i, /*synced=*/true);
        if (operation.kind == Kind::kFailedSync) Doubt(operation.node);
      }
    }
  }

 private:
  struct Object {
    size_t names = 0;
    bool dead = false;     // no state from here on has it
    size_t unsettled = 0;  // operations that gave it a name or took one, and may be lost
    std::vector<size_t> unsynced_data;
    std::vector<size_t> unsynced_names;  // of a directory
    // The same, but that a sync of it has failed: none covers it.
    std::vector<size_t> doubtful_data;
    std::vector<size_t> doubtful_names;
    std::optional<size_t> doubtful_creation;  // of this object: what else it was called makes up for that
  };

  void AddName(size_t i) {
    const DiskOperation& operation = operations_[i];
    ++objects_[operation.node].unsettled;
    if (operation.kind == Kind::kRemove) --objects_[operation.node].names;
    if (operation.kind < Kind::kRename || operation.kind == Kind::kLink) ++objects_[operation.node].names;
    const uint64_t directory = operation.kind == Kind::kLink ? operation.new_parent : operation.parent;
    objects_[directory].unsynced_names.push_back(i);
    halves_[i] = 1;
    if (operation.kind != Kind::kRename) return;
    if (operation.replaced != 0) {
      ++objects_[operation.replaced].unsettled;
      --objects_[operation.replaced].names;
    }
    if (operation.new_parent != operation.parent) {
      objects_[operation.new_parent].unsynced_names.push_back(i);
      halves_[i] = 2;
    }
  }

  void SyncData(size_t at) {
    Object& file = objects_[operations_[at].node];
    for (const size_t i : file.unsynced_data) operations_[i].durable_from = at;
    file.unsynced_data.clear();
  }

  // A sync of the node has failed. A rename across two directories is in doubt where one of them is.
  void Doubt(uint64_t node) {
    Object& object = objects_[node];
    for (const size_t i : std::exchange(object.unsynced_data, {})) object.doubtful_data.push_back(i);
    for (const size_t i : std::exchange(object.unsynced_names, {})) {
      object.doubtful_names.push_back(i);
      const DiskOperation& operation = operations_[i];
      const bool creation = operation.kind == Kind::kCreateFile || operation.kind == Kind::kCreateDirectory;
      if (creation) objects_[operation.node].doubtful_creation = i;
    }
  }

  // What was done to the names in a directory can be lost no more: they were synced, or the directory is gone for good.
  void SettleNames(uint64_t directory, size_t at, bool synced) {
    Object& object = objects_[directory];
    std::vector<size_t> settled = std::exchange(object.unsynced_names, {});
    if (!synced) settled.insert(settled.end(), object.doubtful_names.begin(), object.doubtful_names.end());
    for (const size_t i : settled) {
      if (--halves_[i] > 0) continue;
      DiskOperation& operation = operations_[i];
      size_t& from = synced ? operation.durable_from : operation.moot_from;
      from = std::min(from, at);
      Release(operation.node, at);
      if (operation.replaced != 0) Release(operation.replaced, at);
    }
  }

  void Release(uint64_t number, size_t at) {
    Object& object = objects_[number];
    const size_t in_doubt = object.doubtful_creation ? 1 : 0;
    if (--object.unsettled > in_doubt || object.names > 0 || object.dead) return;
    object.dead = true;
    if (object.doubtful_creation) operations_[*object.doubtful_creation].moot_from = at;
    for (const size_t i : object.unsynced_data) operations_[i].moot_from = at;
    for (const size_t i : object.doubtful_data) operations_[i].moot_from = at;
    SettleNames(number, at, /*synced=*/false);
  }

  std::vector<DiskOperation>& operations_;
  std::map<uint64_t, Object> objects_;  // by node
  std::map<size_t, int> halves_;        // of operations on names: directories that are to be synced still
};

std::string RangeOf(const DiskOperation& operation) {
  return fmt::format("{} [{}, {})", operation.path, operation.offset, operation.offset + operation.bytes->size());
}

}  // namespace

std::string DiskOperation::ToString() const {
  switch (kind) {
    case Kind::kCreateFile:
      return "create " + path;
    case Kind::kCreateDirectory:
      return "create directory " + path;
    case Kind::kRename:
      return fmt::format("rename {} to {}", path, new_path);
    case Kind::kLink:
      return fmt::format("link {} to {}", path, new_path);
    case Kind::kRemove:
      return "remove " + path;
    case Kind::kWrite:
      return "write " + RangeOf(*this);
    case Kind::kAllocate:
      return fmt::format("allocate {} bytes for {}", offset, path);
    case Kind::kTruncate:
      return fmt::format("truncate {} to {}", path, offset);
    case Kind::kSyncData:
      return "sync " + path;
    case Kind::kSyncDirectory:
      return "sync directory " + path;
    case Kind::kFailedSync:
      return "sync in vain " + path;
    case Kind::kMark:
      return "mark " + name;
  }
  return "";
}

void DiskLog::Settle() { Settlement(boot, operations).Go(); }

std::vector<size_t> DiskLog::Unsynced(size_t prefix) const {
  Check(prefix <= operations.size(), "more operations were asked for than a disk has seen");
  std::vector<size_t> unsynced;
  for (size_t i = 0; i < prefix; ++i) {
    if (operations[i].MayBeLostAt(prefix)) unsynced.push_back(i);
  }
  return unsynced;
}

DiskImage DiskLog::StateAfter(size_t prefix, const std::vector<LostOperation>& lost) const {
  Check(prefix <= operations.size(), "more operations were asked for than a disk has seen");
  ImageEditor editor(boot);
  auto next = lost.begin();
  for (size_t i = 0; i < prefix; ++i) {
    if (next == lost.end() || next->index != i) {
      editor.Apply(operations[i]);
      continue;
    }
    Check(operations[i].MayBeLostAt(prefix), "an operation is lost that was synced");
    if (next->sector_mask != kAllSectors) {
      Check(operations[i].kind == Kind::kWrite, "sectors are lost of what is no write");
      editor.Apply(operations[i], next->sector_mask);
    } else {
      editor.Lose(operations[i]);
    }
    ++next;
  }
  Check(next == lost.end(), "operations are lost out of order, or have not happened yet");
  return editor.Take();
}

}  // namespace tidemark::storage
