// The corpus of hostile files: what somebody would put into a store, or beside it, to harm its reader, checksums made
// right. The functions below make them, CLASS-NAME.ENDING each; in the tree is the table of the error that each must
// get, hostile/cases.txt, and tests/fuzz holds them to it.

#ifndef TIDEMARK_FUZZ_HOSTILE_CASE_H_
#define TIDEMARK_FUZZ_HOSTILE_CASE_H_

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"

namespace tidemark::fuzz {

// What is too large for any field.
inline constexpr uint64_t kUint64Max = std::numeric_limits<uint64_t>::max();

struct HostileCase {
  // What it is by the ending: .tmk, .identity, .step, .lease, .entry and .segment (of a journal, number 1), .far-entry
  // (of the highest number there is), .fact, .report, .request and .note (pin.json and deleted.json, of stores of the
  // first format), .safetensors, .index.json, .pt.
  std::string file;
  absl::StatusCode code = absl::StatusCode::kDataLoss;  // kOk of notes alone, which are there whatever they say
  std::string message;  // a part of the error's; of a note that gets none, of what is left of it
  std::string bytes;
  // The number of zeros before bytes[hole_at], as a hole: they take no room on the disk or in memory.
  uint64_t hole_at = 0;
  uint64_t hole_bytes = 0;
  uint64_t island_every = 0;  // a byte that is not zero at each so many bytes of the hole, which takes a block; 0: none
};

// False if it cannot be written.
bool WriteHostileFile(const HostileCase& hostile, const std::string& path);

std::vector<HostileCase> HostileFrames();   // header, footer, and the sizes of files
std::vector<HostileCase> HostileIndices();  // index of a shard
std::vector<HostileCase> HostileChunks();   // what the chunks hold
std::vector<HostileCase> HostileCosts();    // shards that are small, and made to take time and memory
std::vector<HostileCase> HostileTexts();    // JSON
std::vector<HostileCase> HostileJournals();
std::vector<HostileCase> HostileSafetensors();
std::vector<HostileCase> HostileTorchFiles();

// The file of a journal's first entry with this fact.
std::string EntryFileWith(const std::string& fact);

// All of them, by name.
std::vector<HostileCase> HostileCases();

// A line of each: the name, the code and the part of the message, with tabs between them.
std::string HostileTable(const std::vector<HostileCase>& cases);

// Of the shards among them: any other one lies in another place than it says.
inline constexpr uint8_t kHostilePlace = 1;  // see IdentityAt

}  // namespace tidemark::fuzz

#endif  // TIDEMARK_FUZZ_HOSTILE_CASE_H_
