// A journal made of whatever an input says: what chains its entries together is right, else nothing behind that would
// be reached.

#ifndef TIDEMARK_FUZZ_JOURNAL_IMAGE_H_
#define TIDEMARK_FUZZ_JOURNAL_IMAGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/fuzzing.h"
#include "storage/journal/entry.h"

namespace tidemark::fuzz {

// What an entry is, by its bits.
inline constexpr uint8_t kBeginsEpoch = 1;
inline constexpr uint8_t kOfHolder = 2;     // of the newest epoch; else written by anybody
inline constexpr uint8_t kMissing = 4;      // its file is not made
inline constexpr uint8_t kCarriesLast = 8;  // its writer did not know whether the entry before is durable

// Thread-compatible.
class JournalImage {
 public:
  // Makes the folder `directory`, if it is not there.
  explicit JournalImage(std::string directory);

  // The file of the next entry. `facts`: u16 size and so many bytes, for each.
  void Add(uint8_t what, FuzzInput facts);

  // The file of the next number, as it is. The entry after it follows the one before it.
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
