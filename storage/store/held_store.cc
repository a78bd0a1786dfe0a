#include "storage/store/held_store.h"

#include <utility>

#include "storage/bytes/frame.h"

namespace tidemark::storage {
namespace {

constexpr FrameKind kFrame = {.magic = "TMKHELDS", .name = "a held store"};

}  // namespace

std::string EncodeHeldStore(const HeldStore& held) {
  ByteWriter writer;
  BeginFrame(writer, kFrame);
  writer.PutBytes16(held.id.bytes);
  writer.PutBytes16(held.session.bytes);
  writer.Put<uint64_t>(held.epoch);
  writer.Put<uint64_t>(held.place.number);
  writer.PutBytes16(held.place.digest.bytes);
  writer.Put<uint64_t>(held.place.epoch);
  writer.Put<uint64_t>(held.sequence);
  EndFrame(writer);
  return std::move(writer).Take();
}

absl::StatusOr<HeldStore> DecodeHeldStore(std::string_view bytes) {
  constexpr std::string_view kWhat = "held store";
  const absl::StatusOr<std::string_view> checked = CheckFrame(kWhat, kFrame, bytes);
  if (!checked.ok()) return checked.status();
  ByteReader reader(AsBytes(*checked), kWhat);
  SkipFrame(reader);
  HeldStore held;
  held.id = StoreId{reader.GetBytes16("store id")};
  held.session = SessionId{reader.GetBytes16("session")};
  held.epoch = reader.Get<uint64_t>("epoch");
  held.place.number = reader.Get<uint64_t>("number of an entry");
  held.place.digest = Digest128{reader.GetBytes16("digest of an entry")};
  held.place.epoch = reader.Get<uint64_t>("epoch of an entry");
  held.sequence = reader.Get<uint64_t>("sequence");
  reader.ExpectEnd();
  if (!reader.ok()) return reader.status();
  return held;
}

}  // namespace tidemark::storage
