#include "tests/storage/io/disk_image.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <system_error>
#include <vector>

#include "fmt/format.h"
#include "storage/io/check.h"
#include "tests/storage/io/disk_log.h"
#include "xxhash.h"

namespace tidemark::storage {
namespace {

const FileContents& NoContents() {
  static const FileContents& none = *new FileContents;
  return none;
}

// Calls `visit` with the path and the node of everything below the root, a directory before what is in it.
using PathVisitor = std::function<void(const std::string& path, uint64_t number, const DiskImage::Node& node)>;

void Walk(const DiskImage& image, uint64_t directory, const std::string& path, const PathVisitor& visit) {
  for (const auto& [name, number] : *image.nodes.at(directory).names) {
    const DiskImage::Node& node = image.nodes.at(number);
    const std::string below = path + "/" + name;
    visit(below, number, node);
    if (node.type == FileType::kDirectory) Walk(image, number, below, visit);
  }
}

void HashDirectory(const DiskImage& image, uint64_t directory, std::vector<uint64_t>& words) {
  const DiskImage::Node& node = image.nodes.at(directory);
  words.push_back(node.names->size());
  for (const auto& [name, number] : *node.names) {
    const DiskImage::Node& child = image.nodes.at(number);
    words.push_back(XXH3_64bits_withSeed(name.data(), name.size(), static_cast<XXH64_hash_t>(child.type)));
    if (child.type == FileType::kDirectory) {
      HashDirectory(image, number, words);
    } else {
      words.push_back(child.bytes == nullptr ? NoContents().Hash() : child.bytes->Hash());
    }
  }
}

void Reach(const DiskImage& image, uint64_t number, std::set<uint64_t>& reached) {
  reached.insert(number);
  for (const auto& [name, child] : *image.nodes.at(number).names) Reach(image, child, reached);
}

}  // namespace

const DirectoryNames::Map& DirectoryNames::operator*() const {
  static const Map& none = *new Map;
  return names_ == nullptr ? none : *names_;
}

DirectoryNames::Map& DirectoryNames::Edit() {
  if (names_ == nullptr || names_.use_count() > 1) names_ = std::make_shared<Map>(**this);
  return *names_;
}

const DiskNode* DiskNodes::Find(uint64_t number) const {
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), number,
                                      [](const Entry& entry, uint64_t wanted) { return entry.first < wanted; });
  return found == entries_.end() || found->first != number ? nullptr : &found->second;
}

const DiskNode& DiskNodes::at(uint64_t number) const {
  const DiskNode* const node = Find(number);
  Check(node != nullptr, "a disk has no node of that number");
  return *node;
}

DiskNode& DiskNodes::operator[](uint64_t number) {
  const auto place = std::lower_bound(entries_.begin(), entries_.end(), number,
                                      [](const Entry& entry, uint64_t wanted) { return entry.first < wanted; });
  if (place != entries_.end() && place->first == number) return place->second;
  return entries_.emplace(place, number, DiskNode{})->second;
}

void DiskNodes::RemoveIf(const std::function<bool(uint64_t)>& goes) {
  std::erase_if(entries_, [&](const Entry& entry) { return goes(entry.first); });
}

size_t FileContents::Read(uint64_t offset, std::span<std::byte> out) const {
  if (offset >= size_) return 0;
  const size_t there = std::min<uint64_t>(out.size(), size_ - offset);
  const size_t held = offset >= data_.size() ? 0 : std::min<uint64_t>(there, data_.size() - offset);
  if (held > 0) std::memcpy(out.data(), data_.data() + offset, held);
  if (there > held) std::memset(out.data() + held, 0, there - held);
  return there;
}

std::string FileContents::ToString() const {
  std::string all = data_;
  all.resize(size_, '\0');
  return all;
}

uint64_t FileContents::Hash() const {
  uint64_t hash = hash_.load(std::memory_order_relaxed);
  if (hash != 0) return hash;
  const size_t last = data_.find_last_not_of('\0');
  const size_t held = last == std::string::npos ? 0 : last + 1;
  hash = XXH3_64bits_withSeed(data_.data(), held, size_);
  if (hash == 0) hash = 1;
  hash_.store(hash, std::memory_order_relaxed);
  return hash;
}

void FileContents::Apply(const DiskOperation& operation, uint64_t lost_sectors) {
  if (lost_sectors == kAllSectors) return;
  switch (operation.kind) {
    case DiskOperation::Kind::kWrite:
      Write(operation.offset, *operation.bytes, lost_sectors);
      break;
    case DiskOperation::Kind::kAllocate:
      Resize(std::max(size_, operation.offset));
      break;
    case DiskOperation::Kind::kTruncate:
      Resize(operation.offset);
      break;
    default:
      Check(false, "what does not change a file was done to its contents");
  }
}

void FileContents::Write(uint64_t offset, std::string_view bytes, uint64_t lost_sectors) {
  if (bytes.empty()) return;
  hash_.store(0, std::memory_order_relaxed);
  const uint64_t end = offset + bytes.size();
  size_ = std::max(size_, end);
  if (data_.size() < end) data_.resize(end, '\0');
  if (lost_sectors == 0) {
    bytes.copy(data_.data() + offset, bytes.size());
    return;
  }
  for (uint64_t from = offset; from < end;) {
    const uint64_t sector = from / kSectorBytes;
    const uint64_t to = std::min(end, (sector + 1) * kSectorBytes);
    if ((lost_sectors >> (sector % 64) & 1) == 0) bytes.copy(data_.data() + from, to - from, from - offset);
    from = to;
  }
}

void FileContents::Resize(uint64_t size) {
  if (size == size_) return;
  hash_.store(0, std::memory_order_relaxed);
  size_ = size;
  if (data_.size() > size) data_.resize(size);
}

uint64_t DiskImage::Fingerprint() const {
  std::vector<uint64_t> words;
  words.reserve(4 * nodes.size());
  HashDirectory(*this, kRoot, words);
  return XXH3_64bits(words.data(), words.size() * sizeof(uint64_t));
}

absl::Status DiskImage::ExportTo(const std::string& directory) const {
  absl::Status status;
  Walk(*this, kRoot, directory, [&](const std::string& path, uint64_t, const Node& node) {
    std::error_code error;
    if (node.type == FileType::kDirectory) {
      std::filesystem::create_directory(path, error);
    } else if (node.type == FileType::kOther) {
      std::filesystem::create_symlink("other", path, error);
    } else {
      const FileContents& contents = node.bytes == nullptr ? NoContents() : *node.bytes;
      std::ofstream out(path, std::ios::binary);
      out << contents.data();
      out.close();
      if (!out) error = std::make_error_code(std::errc::io_error);
      if (!error) std::filesystem::resize_file(path, contents.size(), error);
    }
    if (error && status.ok()) status = absl::InternalError(fmt::format("export {}: {}", path, error.message()));
  });
  return status;
}

DiskImage::Files DiskImage::Contents() const {
  Files contents;
  Walk(*this, kRoot, "", [&](const std::string& path, uint64_t, const Node& node) {
    const bool directory = node.type == FileType::kDirectory;
    contents[directory ? path + "/" : path] = node.bytes == nullptr ? "" : node.bytes->ToString();
  });
  return contents;
}

void DiskImage::RemoveOrphans() {
  std::set<uint64_t> reached;
  Reach(*this, kRoot, reached);
  if (reached.size() == nodes.size()) return;
  nodes.RemoveIf([&](uint64_t number) { return !reached.contains(number); });
}

void ImageEditor::Apply(const DiskOperation& operation, uint64_t lost_sectors) {
  using Kind = DiskOperation::Kind;
  ++image_.time;
  switch (operation.kind) {
    case Kind::kCreateFile:
    case Kind::kCreateDirectory:
      image_.nodes[operation.node].type =
          operation.kind == Kind::kCreateFile ? FileType::kRegular : FileType::kDirectory;
      Name(operation.parent, operation.name, operation.node);
      break;
    case Kind::kLink:
      linked_.insert(operation.node);
      Name(operation.new_parent, operation.new_name, operation.node);
      break;
    case Kind::kRename:
      Rename(operation);
      break;
    case Kind::kRemove:
      Unname(operation.parent, operation.name);
      break;
    case Kind::kWrite:
    case Kind::kAllocate:
    case Kind::kTruncate:
      Edit(operation.node).Apply(operation, lost_sectors);
      break;
    case Kind::kSyncData:
    case Kind::kSyncDirectory:
    case Kind::kFailedSync:
    case Kind::kMark:
      break;
  }
}

void ImageEditor::Lose(const DiskOperation& operation) {
  using Kind = DiskOperation::Kind;
  ++image_.time;
  if (operation.kind == Kind::kLink) linked_.insert(operation.node);
  if (operation.kind != Kind::kCreateFile && operation.kind != Kind::kCreateDirectory) return;
  image_.nodes[operation.node].type = operation.kind == Kind::kCreateFile ? FileType::kRegular : FileType::kDirectory;
}

const FileContents& ImageEditor::contents(uint64_t number) const {
  if (const auto edited = edited_.find(number); edited != edited_.end()) return *edited->second;
  const DiskImage::Node& node = image_.nodes.at(number);
  return node.bytes == nullptr ? NoContents() : *node.bytes;
}

size_t ImageEditor::NamesOf(uint64_t number) const {
  size_t names = 0;
  for (const auto& [directory, node] : image_.nodes) {
    for (const auto& [name, named] : *node.names) names += named == number ? 1 : 0;
  }
  return names;
}

const DiskImage& ImageEditor::image() {
  for (auto& [number, contents] : edited_) image_.nodes.at(number).bytes = std::move(contents);
  edited_.clear();
  return image_;
}

DiskImage ImageEditor::Take() {
  image();
  return std::move(image_);
}

void ImageEditor::Name(uint64_t directory, const std::string& name, uint64_t node) {
  image_.nodes.at(directory).names.Edit()[name] = node;
}

void ImageEditor::Unname(uint64_t directory, const std::string& name) {
  DirectoryNames& names = image_.nodes.at(directory).names;
  if (names->contains(name)) names.Edit().erase(name);
}

void ImageEditor::Rename(const DiskOperation& operation) {
  const DirectoryNames::Map& names = *image_.nodes.at(operation.parent).names;
  const auto found = names.find(operation.name);
  // An earlier rename of the node was lost: it still has the name from before that, wherever that is.
  const bool has_it = found != names.end() && found->second == operation.node;
  if (linked_.contains(operation.node)) {
    if (has_it) Unname(operation.parent, operation.name);
    return Name(operation.new_parent, operation.new_name, operation.node);
  }
  if (!has_it) {
    for (auto& [number, directory] : image_.nodes) {
      const auto is_it = [&](const auto& entry) { return entry.second == operation.node; };
      if (std::any_of(directory.names->begin(), directory.names->end(), is_it)) {
        std::erase_if(directory.names.Edit(), is_it);
      }
    }
  }
  Unname(operation.parent, operation.name);
  Name(operation.new_parent, operation.new_name, operation.node);
}

FileContents& ImageEditor::Edit(uint64_t number) {
  std::shared_ptr<FileContents>& edited = edited_[number];
  if (edited == nullptr) {
    const DiskImage::Node& node = image_.nodes.at(number);
    Check(node.type == FileType::kRegular, "bytes of what is no file were changed");
    edited = node.bytes == nullptr ? std::make_shared<FileContents>() : std::make_shared<FileContents>(*node.bytes);
  }
  return *edited;
}

}  // namespace tidemark::storage
