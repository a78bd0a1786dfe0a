// What the manifest's records and the notes beside it say. The first byte of the input says which; what can be read is
// written and read again, and is then the same.

#include <string>

#include "fuzz/allocation_count.h"
#include "fuzz/fuzzing.h"
#include "storage/records/best_modes.h"
#include "storage/records/manifest_records.h"
#include "storage/records/phases_record.h"
#include "storage/records/tag.h"
#include "storage/store/first_format/folder_note.h"
#include "storage/store/lease.h"
#include "storage/store/store_identity.h"
#include "tests/storage/records/step_record_json.h"
#include "tests/storage/store/first_format/written_files.h"

namespace tidemark::fuzz {
namespace {

template <typename Record>
void Try(std::string_view bytes, absl::StatusOr<Record> (*decode)(std::string_view),
         std::string (*encode)(const Record&)) {
  const absl::StatusOr<Record> record = decode(bytes);
  if (!record.ok()) {
    Require((absl::IsDataLoss(record.status()) || absl::IsUnimplemented(record.status())) &&
                !record.status().message().empty(),
            "a record is refused for another reason than damage or a newer version");
    return;
  }
  const std::string written = encode(*record);
  const absl::StatusOr<Record> again = decode(written);
  Require(again.ok(), "a record cannot be read once it is written");
  Require(encode(*again) == written, "a record is not what it was once it is written");
}

void TryNote(std::string_view bytes) {
  const storage::FolderNote note = storage::DecodeFolderNote(bytes);
  Require(note.text.size() <= storage::kFolderNoteBytesMax && storage::CheckTags(note.tags).ok(),
          "a note breaks the rules of notes and tags");
  if (!note.problem.ok()) {
    Require(absl::IsDataLoss(note.problem) && note.text.empty() && note.tags.empty(),
            "a note whose bytes are wrong is believed");
    return;
  }
  const storage::FolderNote again = storage::DecodeFolderNote(storage::EncodeFolderNote(note.text, note.tags));
  Require(again.problem.ok() && again.text == note.text && again.tags == note.tags,
          "a note is not what it was once it is written");
}

}  // namespace
}  // namespace tidemark::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tidemark::storage;
  using tidemark::fuzz::Try;
  const tidemark::fuzz::AllocationBudget budget(size);
  tidemark::fuzz::FuzzInput in(data, size);
  const auto kind = in.Take<uint8_t>();
  const std::string_view bytes = in.TakeRest();
  switch (kind % 8) {
    case 0:
      Try(bytes, DecodeStepRecord, EncodeStepRecord);
      break;
    case 1:
      Try(bytes, DecodeStoreRecord, EncodeStoreRecord);
      break;
    case 2:
      Try(bytes, DecodeDeletionRecord, EncodeDeletionRecord);
      break;
    case 3:
      Try(bytes, DecodeBestModes, EncodeBestModes);
      break;
    case 4:
      Try(bytes, DecodeLeaseNote, EncodeLeaseNote);
      break;
    case 5:
      Try(bytes, DecodeStoreIdentity, EncodeStoreIdentity);
      break;
    case 6:
      Try(bytes, DecodePhasesRecord, EncodePhasesRecord);
      break;
    case 7:
      tidemark::fuzz::TryNote(bytes);
      break;
  }
  return 0;
}
