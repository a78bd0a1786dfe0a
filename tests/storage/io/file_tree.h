// What lies below a directory, as a value: a small store is kept in memory, changed in one place, and put into a file
// system again.

#ifndef TIDEMARK_TESTS_STORAGE_IO_FILE_TREE_H_
#define TIDEMARK_TESTS_STORAGE_IO_FILE_TREE_H_

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "gtest/gtest.h"
#include "storage/io/file_system.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {

// Names are paths below the tree's directory.
struct FileTree {
  std::map<std::string, std::string> files;
  std::set<std::string> directories;  // in this order a directory comes before what is in it
};

inline void ReadTreeInto(FileSystem& files, const std::string& directory, const std::string& below, FileTree* tree) {
  constexpr size_t kFileBytesMax = 64 << 20;
  const auto entries = files.ListDirectory(directory + below);
  ASSERT_THAT(entries, IsOk());
  for (const DirectoryEntry& entry : *entries) {
    const std::string path = below + "/" + entry.name;
    if (entry.type == FileType::kDirectory) {
      tree->directories.insert(path);
      ReadTreeInto(files, directory, path, tree);
    } else {
      const auto bytes = ReadSmallFile(files, directory + path, kFileBytesMax);
      ASSERT_THAT(bytes, IsOk());
      tree->files[path] = *bytes;
    }
  }
}

inline FileTree ReadTree(FileSystem& files, const std::string& directory) {
  FileTree tree;
  ReadTreeInto(files, directory, "", &tree);
  return tree;
}

// In the place of what is there, if there is anything.
inline void PutFile(FileSystem& files, const std::string& path, std::string_view bytes) {
  files.RemoveFile(path).IgnoreError();
  auto file = files.Create(path, /*direct=*/false);
  ASSERT_THAT(file, IsOk());
  ASSERT_THAT((*file)->WriteAt(0, std::as_bytes(std::span(bytes))), IsOk());
  ASSERT_THAT((*file)->Close(), IsOk());
}

// Makes the directory, which is not there yet, and everything in it.
inline void WriteTree(FileSystem& files, const std::string& directory, const FileTree& tree) {
  ASSERT_THAT(files.CreateDirectory(directory), IsOk());
  for (const std::string& path : tree.directories) ASSERT_THAT(files.CreateDirectory(directory + path), IsOk());
  for (const auto& [path, bytes] : tree.files) PutFile(files, directory + path, bytes);
}

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_FILE_TREE_H_
