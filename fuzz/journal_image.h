// A journal made of whatever an input says. Numbers and digests are right, because a reader stops at the first wrong
// one.

#ifndef TIDEMARK_FUZZ_JOURNAL_IMAGE_H_
#define TIDEMARK_FUZZ_JOURNAL_IMAGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzzing.h"
#include "storage/journal/entry.h"

namespace tidemark::fuzz {

// What an entry is. These are bits.
inline constexpr uint8_t kBeginsEpoch = 1;
inline constexpr uint8_t kOfHolder = 2;     // written by the holder of the newest epoch; else without an epoch
inline constexpr uint8_t kMissing = 4;      // its file is not made
inline constexpr uint8_t kCarriesLast = 8;  // it carries the entry before it, as if that were not known to be durable

// Thread-compatible.
class JournalImage {
 public:
  // Makes the folder `directory`, if it is not there.
  explicit JournalImage(std::string directory);

  // Makes the file of the next entry. `facts`: for each fact u16 size, and so many bytes.
  void Add(uint8_t what, FuzzInput facts);

  // Makes the file of the next number with these bytes. The next entry names the entry before this file as its
  // predecessor.
  void AddFile(std::string_view bytes);

 private:
  void Write(std::string_view bytes) const;

  const std::string directory_;
  storage::EntryNumber number_ = 0;  // of the last
  uint64_t epoch_ = 0;
  std::vector<storage::JournalEntry> entries_;
};

}  // namespace tidemark::fuzz

#endif  // TIDEMARK_FUZZ_JOURNAL_IMAGE_H_
