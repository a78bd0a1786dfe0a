#include "fuzz/journal_image.h"

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "storage/io/file_system.h"
#include "storage/journal/journal_files.h"

namespace tidemark::fuzz {

JournalImage::JournalImage(std::string directory) : directory_(std::move(directory)) {
  std::error_code error;
  const storage::JournalFiles files(storage::PosixFileSystem(), directory_);
  std::filesystem::create_directories(files.FolderOf(1), error);
}

void JournalImage::Add(uint8_t what, FuzzInput facts) {
  storage::JournalEntry entry{.number = ++number_};
  entry.id.bytes.fill(static_cast<uint8_t>(number_));
  entry.durable = number_ - 1;
  if ((what & kBeginsEpoch) != 0) {
    entry.epoch = ++epoch_;
    entry.begins_epoch = true;
  } else if ((what & kOfHolder) != 0) {
    entry.epoch = epoch_;
  }
  while (!facts.empty()) entry.facts.emplace_back(facts.TakeText(facts.Take<uint16_t>()));
  storage::EntryFile file;
  if (!entries_.empty()) {
    entry.previous = DigestOfEntry(entries_.back());
    if ((what & kCarriesLast) != 0 && entries_.back().number == number_ - 1) {
      entry.durable = number_ - 2;
      file.carried.push_back(entries_.back());
    }
  }
  entries_.push_back(entry);
  file.entry = std::move(entry);
  const auto bytes = EncodeEntryFile(file);
  Require(bytes.ok(), "an entry of a made-up journal cannot be encoded");
  if ((what & kMissing) == 0) Write(*bytes);
}

void JournalImage::AddFile(std::string_view bytes) {
  ++number_;
  Write(bytes);
}

void JournalImage::Write(std::string_view bytes) const {
  const storage::JournalFiles files(storage::PosixFileSystem(), directory_);
  const std::string path = files.PathOf(number_);
  std::error_code error;
  if (std::filesystem::symlink_status(path, error).type() != std::filesystem::file_type::not_found) return;
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

}  // namespace tidemark::fuzz
