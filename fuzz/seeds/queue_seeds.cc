#include <cstdint>
#include <utility>
#include <vector>

#include "fuzz/seeds/seed_lists.h"
#include "storage/bytes/byte_writer.h"

namespace tidemark::fuzz {
namespace {

using storage::ByteWriter;

// A round of io_queue_fuzzer.cc: what is changed before it, and eight transfers that do not meet. `file`: 0 or 1, or 2
// for both in turn.
struct QueueRound {
  uint8_t change = 0;
  uint16_t amount = 0;
  bool write = false;
  int file = 0;
  uint8_t fill = 0;
};

std::string QueueSeed(bool direct, const std::vector<QueueRound>& rounds) {
  ByteWriter seed;
  seed.Put<uint8_t>(direct ? 1 : 0);
  for (const QueueRound& round : rounds) {
    seed.Put<uint8_t>(round.change);
    seed.Put<uint16_t>(round.amount);
    for (int i = 0; i < 8; ++i) {
      const int file = round.file == 2 ? i % 2 : round.file;
      seed.Put<uint8_t>(static_cast<uint8_t>((round.write ? 1 : 0) | file << 3));
      seed.Put<uint8_t>(static_cast<uint8_t>(round.fill + i));
      seed.Put<uint16_t>(static_cast<uint16_t>(8192 * i + 5));
      seed.Put<uint16_t>(8186);
    }
  }
  return std::move(seed).Take();
}

}  // namespace

std::map<std::string, std::string> QueueSeeds() {
  std::map<std::string, std::string> seeds;
  constexpr uint8_t kTruncate = 1, kRegisterFile = 2, kUnregisterFile = 3, kRegisterMemory = 4, kUnregisterMemory = 5;
  constexpr uint8_t kSecondFile = 8;
  constexpr uint16_t kAllMemory = 0xffff;
  const std::vector<QueueRound> rounds = {
      {.write = true, .file = 2, .fill = 1},
      {.change = kRegisterMemory, .amount = kAllMemory, .file = 2},
      {.change = kRegisterFile, .write = true, .file = 2, .fill = 20},
      {.file = 2},
      // Other pages in the place of those that were registered.
      {.change = kUnregisterMemory, .write = true, .fill = 40},
      {},
      {.change = kRegisterFile | kSecondFile, .write = true, .file = 2, .fill = 60},
      // Some of the transfers lie in what is registered, and one in a part of it.
      {.change = kRegisterMemory, .amount = 23'500, .file = 2},
      {.change = kTruncate | kSecondFile, .amount = 27'000, .file = 2},
      {.change = kUnregisterFile, .write = true, .file = 1, .fill = 80},
      {.change = kRegisterMemory, .amount = kAllMemory, .file = 2},
  };
  seeds["io_queue/registered"] = QueueSeed(/*direct=*/false, rounds);
  seeds["io_queue/registered_direct"] = QueueSeed(/*direct=*/true, rounds);
  uint32_t random = 7;
  for (const size_t bytes : {24, 200}) {
    std::string seed;
    for (size_t i = 0; i < bytes; ++i)
      seed.push_back(static_cast<char>((random = random * 1664525 + 1013904223) >> 24));
    seeds["io_queue/random_" + std::to_string(bytes)] = seed;
  }
  return seeds;
}

}  // namespace tidemark::fuzz
