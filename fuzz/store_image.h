// A store made of whatever an input says. It has a journal and no index if the input has a file of a journal; else it
// is of the first format. Checksums and names are made right where a reader looks at nothing else if they are wrong: a
// shard has the header, the footer and the name of its place, a report its check and its name, an entry its number and
// digests.
//
// The input is files, one behind the other: u8 kind (FileKind), u8 place, u16 bytes, and so many bytes.
//
//   place & 3     which of four steps' folders, 0 to 3
//   place >> 2    what the kind makes of it

#ifndef TIDEMARK_FUZZ_STORE_IMAGE_H_
#define TIDEMARK_FUZZ_STORE_IMAGE_H_

#include <cstdint>
#include <string>

#include "fuzz/fuzzing.h"
#include "storage/shard/format/shard_format.h"

namespace tidemark::fuzz {

enum class FileKind : uint8_t {
  kIdentity = 0,     // store.json as it is; without one it is right
  kShard = 1,        // u8 size of chunks (SetShape), u16 bytes of chunks, chunks, index
  kWholeShard = 2,   // the file as it is
  kReport = 3,       // a report without its check, by the evaluator "e"
  kInboxReport = 4,  // the same, in inbox/
  kPin = 5,          // pin.json as it is
  kDeletion = 6,     // deleted.json as it is
  kAnything = 7,     // a name, its u8 length before it, and what is in it; place >> 2: the folder
  kLink = 8,         // the same, and where the link leads to
  kFifo = 9,         // a name
  kEntry = 10,       // the next entry of the journal: its facts; place >> 2: what it is (journal_image.h)
  kEntryFile = 11,   // the file of the next entry as it is
};
inline constexpr uint8_t kFileKinds = 12;

// Of the shard at that place. Its attempt is of the first epoch of a journal if `place` & 32, else of the first format.
storage::ShardIdentity IdentityAt(uint8_t place);

// What one byte of an input says of a shard: the size of chunks and, if it is 128 or more, that names are repeated.
void SetShape(uint8_t byte, storage::ShardHeader* header);

// The bytes of a shard from its parts; `data` lies behind the header. Index offset, sizes and digests are right, and
// the footer says whether the index is a delta.
std::string AssembleShard(const storage::ShardHeader& header, std::string_view data, std::string_view index);

// Makes the files in `directory`, which exists and is empty. What cannot be made, for a name that is too long or one
// that is taken, is left out. Nothing is made outside of it.
void MakeStore(FuzzInput in, const std::string& directory);

}  // namespace tidemark::fuzz

#endif  // TIDEMARK_FUZZ_STORE_IMAGE_H_
