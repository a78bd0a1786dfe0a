// A segment of a journal. The first byte of the input says whether the checksum at its end is made right, or is what
// the input says.

#include <string>
#include <vector>

#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "storage/bytes/ids.h"
#include "storage/journal/journal_view.h"
#include "storage/journal/segment.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark;
  const fuzz::AllocationBudget budget(size);
  fuzz::FuzzInput in(data, size);
  const bool as_it_is = (in.Take<uint8_t>() & 1) != 0;
  std::string bytes(in.TakeRest());
  if (!as_it_is) {
    const uint64_t checksum = storage::ChecksumOf(fuzz::AsBytes(bytes));
    bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
  }
  auto entries = storage::DecodeSegment("segment", bytes);
  if (!entries.ok()) {
    fuzz::Require(absl::IsDataLoss(entries.status()) || absl::IsUnimplemented(entries.status()),
                  "a segment is refused for another reason than damage or a newer version");
    return 0;
  }
  const absl::StatusOr<std::string> written = storage::EncodeSegment(*entries);
  fuzz::Require(written.ok() && *written == bytes, "a segment is not what it was once it is written");
  for (const storage::DigestedEntry& entry : *entries) {
    fuzz::Require(storage::DigestOfEntry(entry.entry) == entry.digest, "an entry has another digest than its bytes");
  }
  const storage::EntryNumber first = entries->front().entry.number;
  const storage::EntryNumber last = entries->back().entry.number;
  storage::JournalView view({.number = first - 1, .digest = entries->front().entry.previous});
  fuzz::Require(view.LearnPacked(*std::move(entries)).ok() && view.established() == last,
                "a segment does not follow the entry before it");
  return 0;
}
