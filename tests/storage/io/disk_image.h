// What is on a simulated disk at one moment, and how it changes by one operation.

#ifndef TIDEMARK_TESTS_STORAGE_IO_DISK_IMAGE_H_
#define TIDEMARK_TESTS_STORAGE_IO_DISK_IMAGE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "storage/io/file_system.h"

namespace tidemark::storage {

struct DiskOperation;

// The unit in which a disk writes: whole or not at all.
inline constexpr uint64_t kSectorBytes = 512;

// What LostOperation has for all of it.
inline constexpr uint64_t kAllSectors = ~uint64_t{0};

// The bytes of a file. Zeros at its end take no memory: files are allocated far ahead. Thread-compatible; Hash() of one
// that nobody changes may be called by several threads.
class FileContents {
 public:
  FileContents() = default;
  explicit FileContents(std::string data) : data_(std::move(data)), size_(data_.size()) {}
  FileContents(const FileContents& other) : data_(other.data_), size_(other.size_) {}
  FileContents& operator=(const FileContents&) = delete;

  uint64_t size() const { return size_; }
  // All bytes, or all but zeros at the end.
  std::string_view data() const { return data_; }
  // How many bytes there were from `offset` on, `out.size()` at most.
  size_t Read(uint64_t offset, std::span<std::byte> out) const;
  std::string ToString() const;
  // Equal for equal contents, in every process. Found once.
  uint64_t Hash() const;

  // A write, an allocation or a truncation, but for the sectors that are lost as LostOperation has it.
  void Apply(const DiskOperation& operation, uint64_t lost_sectors = 0);

 private:
  void Write(uint64_t offset, std::string_view bytes, uint64_t lost_sectors);
  void Resize(uint64_t size);

  std::string data_;  // no longer than size_
  uint64_t size_ = 0;
  mutable std::atomic<uint64_t> hash_{0};  // 0: not known
};

// The nodes in a directory by name. A value; copies share it until one of them is edited. The copies that may be edited
// belong to one thread.
class DirectoryNames {
 public:
  using Map = std::map<std::string, uint64_t>;

  DirectoryNames() = default;
  DirectoryNames(std::initializer_list<Map::value_type> names) : names_(std::make_shared<Map>(names)) {}

  const Map& operator*() const;
  const Map* operator->() const { return &**this; }
  // To change this copy alone. Not to be kept: a later copy shares what it returns.
  Map& Edit();

 private:
  std::shared_ptr<Map> names_;  // null: none
};

struct DiskNode {
  FileType type = FileType::kDirectory;       // kOther: what nothing can be done with but to move and remove it
  std::shared_ptr<const FileContents> bytes;  // of a file; null: it is empty
  DirectoryNames names;                       // of a directory; all the nodes exist

  uint64_t Size() const { return bytes == nullptr ? 0 : bytes->size(); }
};

// The nodes of a disk by number, in order. In one piece of memory, because a test makes an image for each of tens of
// thousands of crashes: copies of a tree of nodes took most of its time. Thread-compatible.
class DiskNodes {
 public:
  using Entry = std::pair<uint64_t, DiskNode>;

  DiskNodes(std::initializer_list<Entry> entries) : entries_(entries) {}

  size_t size() const { return entries_.size(); }
  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }
  const Entry& back() const { return entries_.back(); }

  // Null: there is none. What it returns is good until a node is added or removed.
  const DiskNode* Find(uint64_t number) const;
  // Precondition: it is there.
  const DiskNode& at(uint64_t number) const;
  DiskNode& at(uint64_t number) { return const_cast<DiskNode&>(std::as_const(*this).at(number)); }
  // Adds it where it is not there.
  DiskNode& operator[](uint64_t number);

  void RemoveIf(const std::function<bool(uint64_t)>& goes);

 private:
  std::vector<Entry> entries_;
};

// Files and directories as a boot finds them. A value; copies share the contents of files and of directories until they
// are changed.
struct DiskImage {
  static constexpr uint64_t kRoot = 1;
  using Node = DiskNode;
  DiskNodes nodes = {{kRoot, Node{}}};
  // How many operations there were on this disk, in all its boots and whether or not they have survived: no number of a
  // node is given twice.
  uint64_t time = 0;

  // Equal for images in which the same paths have the same contents, whatever the numbers of their nodes and the times;
  // nodes that no path leads to do not count.
  uint64_t Fingerprint() const;
  // Writes it below an existing empty directory of the real file system, for a person to look at.
  absl::Status ExportTo(const std::string& directory) const;
  // The contents of all files by path, "/x/y"; directories end in a slash and have none.
  using Files = std::map<std::string, std::string>;
  Files Contents() const;
  // Takes out the nodes that no path leads to.
  void RemoveOrphans();
};

// An image under change. Names are entries of directories, each standing for a node, and an operation sets or clears
// entries, whatever the ones before it have left there: where a creation is lost and the rename of what it created is
// kept, the new name stands for the node. A node has one name, unless it was linked: a rename takes it from wherever it
// is. Of a node that was linked it takes the name that it renames, if that stands for it.
// Thread-compatible.
class ImageEditor {
 public:
  explicit ImageEditor(DiskImage image) : image_(std::move(image)) {}

  // `lost_sectors`: of a write, as LostOperation has them.
  void Apply(const DiskOperation& operation, uint64_t lost_sectors = 0);
  // Time goes on, and there is a node that a later operation may name.
  void Lose(const DiskOperation& operation);

  // Precondition for what follows: the node is there. Of a file `bytes` may be old.
  const DiskImage::Node& node(uint64_t number) const { return image_.nodes.at(number); }
  const FileContents& contents(uint64_t number) const;
  // How many names stand for the node.
  size_t NamesOf(uint64_t number) const;

  // As it is now.
  const DiskImage& image();
  // The same of an editor that is not used any more.
  DiskImage Take();
  // Of a file, whatever was written to it.
  void Set(uint64_t number, std::shared_ptr<const FileContents> contents) {
    image_.nodes.at(number).bytes = std::move(contents);
  }

 private:
  void Name(uint64_t directory, const std::string& name, uint64_t node);
  void Unname(uint64_t directory, const std::string& name);
  void Rename(const DiskOperation& operation);
  FileContents& Edit(uint64_t number);

  DiskImage image_;
  absl::flat_hash_set<uint64_t> linked_;                                 // nodes that were given a second name
  absl::flat_hash_map<uint64_t, std::shared_ptr<FileContents>> edited_;  // files whose bytes in image_ are old
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_DISK_IMAGE_H_
