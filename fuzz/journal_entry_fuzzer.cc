// Files of a journal, one after the other as entries 1, 2 and so on: for each its length and its bytes. The first byte
// of the input says whether the checksums at their ends are made right, or are what the input says. A length of 0: the
// file is missing.

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "storage/bytes/ids.h"
#include "storage/journal/entry.h"
#include "storage/journal/journal_view.h"

namespace tidemark::fuzz {
namespace {

void TryFile(storage::EntryNumber number, const std::string& bytes) {
  const absl::StatusOr<storage::EntryFile> file = storage::DecodeEntryFile(number, bytes);
  if (!file.ok()) {
    return Require(absl::IsDataLoss(file.status()) || absl::IsUnimplemented(file.status()),
                   "an entry is refused for another reason than damage or a newer version");
  }
  const absl::StatusOr<std::string> written = storage::EncodeEntryFile(*file);
  Require(written.ok() && storage::PadEntryFile(*written, bytes.size()) == bytes,
          "an entry is not what it was once it is written");
}

void TryJournal(const std::vector<std::optional<std::string>>& files) {
  storage::JournalView view;
  const absl::Status learned = view.Learn(files);
  if (!learned.ok()) {
    Require(absl::IsDataLoss(learned) || absl::IsUnimplemented(learned),
            "a journal is refused for another reason than damage or a newer version");
    return Require(view == storage::JournalView(), "a journal that is refused has changed what was known");
  }
  Require(view.last().number == files.size(), "a reading has other entries than the journal");
  Require(view.established() <= view.last().number, "more is durable than is there");
  storage::Digest128 previous;
  for (const storage::KnownEntry& known : view.entries()) {
    Require(known.entry.previous == previous, "an entry follows another one than its writer knew");
    previous = known.place.digest;
  }
  const storage::JournalView first = view;
  const std::vector<std::optional<std::string>> again(files.begin() + static_cast<ptrdiff_t>(view.established()),
                                                      files.end());
  Require(view.Learn(again).ok() && view == first, "a second reading says something else");
  view.Drop(view.established());
  Require(view.Learn(again).ok() && view.last() == first.last(), "a reading after a place says something else");
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark;
  const fuzz::AllocationBudget budget(size);
  fuzz::FuzzInput in(data, size);
  const bool as_it_is = (in.Take<uint8_t>() & 1) != 0;
  std::vector<std::optional<std::string>> files;
  while (!in.empty()) {
    const size_t length = in.Take<uint16_t>();
    std::optional<std::string>& file = files.emplace_back();
    if (length == 0) continue;
    file = std::string(in.TakeText(length));
    if (!as_it_is) {
      const uint64_t checksum = storage::ChecksumOf(fuzz::AsBytes(*file));
      file->append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
    }
    fuzz::TryFile(files.size(), *file);
  }
  // A listing ends with a file.
  while (!files.empty() && !files.back()) files.pop_back();
  fuzz::TryJournal(files);
  return 0;
}
