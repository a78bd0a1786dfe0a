// Hostile files of a journal: an entry's own, segments, and the facts of entries. Checksums and digests are right, but
// for those that are about them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "fuzz/fuzzing.h"
#include "fuzz/hostile_case.h"
#include "fuzz/store_image.h"
#include "storage/bytes/byte_writer.h"
#include "storage/journal/entry.h"
#include "storage/records/fact.h"

namespace tidemark::fuzz {
namespace {

using storage::ByteWriter;

constexpr uint32_t kUint32Max = std::numeric_limits<uint32_t>::max();

// An entry as it is written, with counts and sizes that may be others than those of what is there.
struct WrittenEntry {
  uint64_t number = 1;
  uint64_t epoch = 1;
  uint8_t flags = 1;
  uint64_t durable = 0;
  storage::Digest128 previous;
  std::vector<std::string> facts = {};
  std::optional<uint32_t> count;
  std::optional<uint32_t> size;  // of the last fact
};

std::string BytesOf(const WrittenEntry& entry) {
  ByteWriter out;
  out.Put<uint64_t>(entry.number);
  out.PutBytes16({7});
  out.Put<uint64_t>(entry.epoch);
  out.Put<uint8_t>(entry.flags);
  out.Put<uint64_t>(entry.durable);
  out.PutBytes16(entry.previous.bytes);
  out.Put<uint32_t>(entry.count.value_or(static_cast<uint32_t>(entry.facts.size())));
  for (size_t i = 0; i < entry.facts.size(); ++i) {
    const auto size = static_cast<uint32_t>(entry.facts[i].size());
    out.Put<uint32_t>(i + 1 == entry.facts.size() ? entry.size.value_or(size) : size);
    out.PutText(entry.facts[i]);
  }
  return std::move(out).Take();
}

std::string WithChecksum(std::string bytes) {
  const uint64_t checksum = storage::ChecksumOf(AsBytes(bytes));
  return bytes.append(reinterpret_cast<const char*>(&checksum), sizeof(checksum));
}

std::string EntryFileOf(const std::vector<WrittenEntry>& entries, std::string_view behind = "", uint16_t version = 1) {
  ByteWriter out;
  out.PutText("TMKENTRY");
  out.Put<uint16_t>(version);
  for (const WrittenEntry& entry : entries) out.PutText(BytesOf(entry));
  out.PutText(behind);
  return WithChecksum(std::move(out).Take());
}

// Of a segment.
struct Segment {
  uint16_t version = 1;
  uint64_t first = 1;
  std::optional<uint32_t> count;
  std::vector<WrittenEntry> entries = {};
  std::optional<uint32_t> size;  // of the last entry
  std::string behind = "";
};

// As its writer would, with each entry's digest in the next one.
std::vector<WrittenEntry> Chained(std::vector<WrittenEntry> entries) {
  for (size_t i = 1; i < entries.size(); ++i) {
    entries[i].previous = storage::DigestOf(AsBytes(BytesOf(entries[i - 1])));
  }
  return entries;
}

std::string SegmentOf(const Segment& segment) {
  ByteWriter out;
  out.PutText("TMKSGMNT");
  out.Put<uint16_t>(segment.version);
  out.Put<uint64_t>(segment.first);
  out.Put<uint32_t>(segment.count.value_or(static_cast<uint32_t>(segment.entries.size())));
  for (size_t i = 0; i < segment.entries.size(); ++i) {
    const std::string bytes = BytesOf(segment.entries[i]);
    const auto size = static_cast<uint32_t>(bytes.size());
    out.Put<uint32_t>(i + 1 == segment.entries.size() ? segment.size.value_or(size) : size);
    out.PutText(bytes);
  }
  out.PutText(segment.behind);
  return WithChecksum(std::move(out).Take());
}

std::vector<HostileCase> HostileJournalEntries() {
  using enum absl::StatusCode;
  const std::string sound = EntryFileOf({{.facts = {"fact"}}});
  const WrittenEntry two{.number = 2, .flags = 0, .durable = 1};
  std::string flipped = sound;
  flipped[30] ^= 1;
  const WrittenEntry last{.number = kUint64Max, .flags = 0};
  WrittenEntry claims_one = last;
  claims_one.durable = kUint64Max - 2;
  WrittenEntry other_carried = last;
  other_carried.number = 5;
  const auto with = [](const std::function<void(WrittenEntry&)>& change) {
    WrittenEntry entry;
    change(entry);
    return EntryFileOf({entry});
  };
  return {
      {"truncation-entry_empty.entry", kDataLoss, "0 bytes that do not begin as an entry does", ""},
      {"truncation-entry.entry", kDataLoss, "with the checksum", sound.substr(0, sound.size() - 1)},
      {"truncation-entry_of_magic.entry", kDataLoss, "8 bytes that do not begin as an entry does", "TMKENTRY"},
      {"truncation-entry_of_nothing.entry", kDataLoss, "number at byte 10: expected 8 bytes, found 0 bytes left",
       EntryFileOf({})},
      {"entry-checksum.entry", kDataLoss, "with the checksum", flipped},
      {"entry-magic.entry", kDataLoss, "do not begin as an entry does", WithChecksum("TMKENTRX" + sound.substr(8))},
      {"entry-newer.entry", kUnimplemented, "has version 2", EntryFileOf({WrittenEntry()}, "", 2)},
      {"entry-version_zero.entry", kDataLoss, "version at byte 8: expected 1, found 0",
       EntryFileOf({WrittenEntry()}, "", 0)},
      {"entry-of_another_number.entry", kDataLoss, "the file is that of entry 2", EntryFileOf({two})},
      {"overflow-entry_number.entry", kDataLoss, "the file is that of entry 18446744073709551615", EntryFileOf({last})},
      {"overflow-entry_number_zero.entry", kDataLoss, "number at byte 10: expected 1 or more, found 0",
       with([](WrittenEntry& entry) { entry.number = 0; })},
      {"overflow-entry_durable.entry", kDataLoss, "durable at byte 43: expected less than the entry's number, 1",
       with([](WrittenEntry& entry) { entry.durable = kUint64Max; })},
      {"entry-flags.entry", kDataLoss, "flags at byte 42: expected 0 or 1, found 255",
       with([](WrittenEntry& entry) { entry.flags = 255; })},
      {"entry-begins_no_epoch.entry", kDataLoss, "expected 0, since the entry has no epoch, found 1",
       with([](WrittenEntry& entry) { entry.epoch = 0; })},
      {"count-entry_facts.entry", kDataLoss, "count of facts at byte 71: expected at most 0 of 4 bytes or more",
       with([](WrittenEntry& entry) { entry.count = kUint32Max; })},
      {"count-entry_fact.entry", kDataLoss, "fact at byte 75: expected 4294967295 bytes, found 4 bytes left",
       EntryFileOf({{.facts = {"fact"}, .size = kUint32Max}})},
      {"count-entry_fact_over_the_next.entry", kDataLoss, "size of a fact at byte",
       EntryFileOf({{.facts = {"fact"}, .count = 2}})},
      {"count-entry_too_large.entry", kDataLoss, "bytes, more than 67108864", sound, 8, size_t{64} << 20},
      {"entry-bytes_behind_it.entry", kDataLoss, "padding at byte 71: expected zero, found 0x78",
       EntryFileOf({WrittenEntry()}, "x")},
      {"entry-another_behind_it.entry", kDataLoss, "padding at byte 71: expected zero",
       EntryFileOf({WrittenEntry(), two})},
      // So it says that it carries all the others.
      {"count-entry_carries_2_64.far-entry", kDataLoss, "carried entries at byte 71: expected at most 0 of 61 bytes",
       EntryFileOf({last})},
      {"count-entry_carries_none_of_one.far-entry", kDataLoss,
       "carried entries at byte 71: expected at most 0 of 61 bytes", EntryFileOf({claims_one})},
      {"entry-carries_another.far-entry", kDataLoss,
       "number of a carried entry at byte 124: expected 18446744073709551614, found 5",
       EntryFileOf({claims_one, other_carried})},
      {"entry-carries_itself.far-entry", kDataLoss, "expected 18446744073709551614, found 18446744073709551615",
       EntryFileOf({claims_one, claims_one})},
  };
}

std::vector<HostileCase> HostileSegments() {
  using enum absl::StatusCode;
  const std::vector<WrittenEntry> three =
      Chained({{.number = 1}, {.number = 2, .flags = 0, .durable = 1}, {.number = 3, .flags = 0, .durable = 2}});
  const std::string sound = SegmentOf({.entries = three});
  std::string flipped = sound;
  flipped[40] ^= 1;
  std::vector<WrittenEntry> other = three;
  other[1].previous = {};
  const std::vector<WrittenEntry> gap = Chained({three[0], three[2]});
  const std::vector<WrittenEntry> twice = Chained({three[0], three[0]});
  const WrittenEntry last{.number = kUint64Max, .flags = 0};
  return {
      {"truncation-segment.segment", kDataLoss, "with the checksum", sound.substr(0, sound.size() - 1)},
      {"truncation-segment_of_magic.segment", kDataLoss, "8 bytes that do not begin as a segment does", "TMKSGMNT"},
      {"segment-checksum.segment", kDataLoss, "with the checksum", flipped},
      {"segment-newer.segment", kUnimplemented, "has version 2", SegmentOf({.version = 2, .entries = three})},
      {"segment-version_zero.segment", kDataLoss, "version at byte 8: expected 1, found 0",
       SegmentOf({.version = 0, .entries = three})},
      {"count-segment_none.segment", kDataLoss, "count of entries at byte 18: expected 1 or more, found 0",
       SegmentOf({})},
      {"count-segment_all.segment", kDataLoss, "count of entries at byte 22: expected at most 3 of 65 bytes or more",
       SegmentOf({.count = kUint32Max, .entries = three})},
      {"count-segment_one_more.segment", kDataLoss, "count of entries at byte 22: expected at most 3 of 65 bytes",
       SegmentOf({.count = 4, .entries = three})},
      {"count-segment_entry.segment", kDataLoss, "entry at byte 156: expected 4294967295 bytes",
       SegmentOf({.entries = three, .size = kUint32Max})},
      {"count-segment_facts.segment", kDataLoss, "count of facts at byte 61: expected at most 0 of 4 bytes",
       SegmentOf({.entries = {{.count = kUint32Max}}})},
      {"overflow-segment_first.segment", kDataLoss, "is entry 1 of another history",
       SegmentOf({.first = kUint64Max, .entries = {three[0]}})},
      {"overflow-segment_last.segment", kDataLoss, "the segment has the journal entries 18446744073709551615 to",
       SegmentOf({.first = kUint64Max, .entries = {last}})},
      {"overflow-segment_beyond_the_last.segment", kDataLoss, "in the place of entry 0 is entry 1 of another history",
       SegmentOf({.first = kUint64Max, .entries = {last, three[0]}})},
      {"segment-of_other_numbers.segment", kDataLoss, "the segment has the journal entries 2 to 3",
       SegmentOf({.first = 2, .entries = {three[1], three[2]}})},
      {"segment-of_another_history.segment", kDataLoss, "in the place of entry 2 is entry 2 of another history",
       SegmentOf({.entries = other})},
      {"segment-with_a_gap.segment", kDataLoss, "in the place of entry 2 is entry 3 of another history",
       SegmentOf({.entries = gap})},
      {"segment-with_an_entry_twice.segment", kDataLoss, "in the place of entry 2 is entry 1 of another history",
       SegmentOf({.entries = twice})},
      {"segment-bytes_behind_it.segment", kDataLoss, "end at byte 217: expected no more bytes, found 1 bytes more",
       SegmentOf({.entries = three, .behind = "x"})},
      {"segment-entry_with_bytes_behind_it.segment", kDataLoss,
       "end at byte 61: expected no more bytes, found 1 bytes more",
       SegmentOf({.entries = {three[0]}, .size = 62, .behind = "x"})},
  };
}

// A fact that says this with a change at `offset`.
std::string Changed(const storage::Fact& fact, size_t offset, std::string_view bytes) {
  std::string encoded = EncodeFact(fact).value();
  return encoded.replace(offset, bytes.size(), bytes);
}

// The fact of a step without references in the form of version 1, with this count of shards and no shard.
std::string OfVersion1(const storage::StepFact& step, std::string_view shards) {
  constexpr size_t kDigestBytes = 16, kCountBytes = 4;
  std::string encoded = Changed(step, 1, "\x01");
  return encoded.replace(encoded.size() - kDigestBytes - kCountBytes, kDigestBytes, shards);
}

std::string LittleEndian32(uint32_t number) { return {reinterpret_cast<const char*>(&number), sizeof(number)}; }

std::vector<HostileCase> HostileFacts() {
  using enum absl::StatusCode;
  const std::string attempt = storage::ToHex(IdentityAt(kHostilePlace).attempt.bytes);
  const storage::PinFact pin{.step = 1, .attempt = attempt, .pinned = true, .note = "best", .tags = {"a", "b"}};
  const storage::EvaluationFact evaluation{
      .step = 1, .attempt = attempt, .evaluation = {.evaluator = "e", .metrics = {{"loss", 0.5}, {"mean", 1}}}};
  const storage::DeletionRequestFact request{.id = attempt, .step = 1, .attempt = attempt, .asker = "somebody"};
  storage::StepRecord record;
  record.info.step = 1;
  record.info.attempt = attempt;
  const storage::StepFact step{record};
  const storage::AnswerFact answer{.id = attempt, .refused = "it is pinned"};
  const std::string all_ones(8, '\xff');
  const std::string too_many = LittleEndian32(kUint32Max);
  // Kind and version, a step, an id; and where the texts of a pin are.
  constexpr size_t kStep = 2, kIdBytes = 16, kNote = kStep + 8 + kIdBytes + 1, kTags = kNote + 4 + 4;
  constexpr size_t kEvaluator = kStep + 8 + 1 + kIdBytes;
  return {
      {"truncation-fact_empty.fact", kDataLoss, "kind at byte 0: expected 1 bytes, found 0 bytes left", ""},
      {"truncation-fact.fact", kDataLoss, "pin fact: tags at byte", EncodeFact(pin)->substr(0, kTags + 8)},
      {"fact-of_no_kind.fact", kDataLoss, "kind at byte 0: expected 1 or more, found 0", Changed(pin, 0, {"\0", 1})},
      {"fact-of_a_newer_kind.fact", kUnimplemented, "fact of kind 255; this library knows the kinds up to 10",
       Changed(pin, 0, "\xff")},
      {"fact-newer.fact", kUnimplemented, "pin fact has version 2", Changed(pin, 1, "\x02")},
      {"fact-version_zero.fact", kDataLoss, "version at byte 1: expected 1 or more, found 0",
       Changed(pin, 1, {"\0", 1})},
      {"overflow-fact_step.fact", kDataLoss, "step at byte 2: expected 0 or more, found -1",
       Changed(pin, kStep, all_ones)},
      {"fact-pinned_twice.fact", kDataLoss, "pinned at byte 26: expected 0 to 1, found 2",
       Changed(pin, kNote - 1, "\x02")},
      {"fact-tags_without_pin.fact", kDataLoss, "expected none, since the step is not pinned, found some",
       Changed(pin, kNote - 1, {"\0", 1})},
      {"count-fact_note.fact", kDataLoss, "note at byte 27: expected at most 65536 bytes, found 4294967295",
       Changed(pin, kNote, too_many)},
      {"count-fact_tags.fact", kDataLoss, "tags at byte 39: expected at most", Changed(pin, kTags, too_many)},
      {"name-fact_tag_twice.fact", kDataLoss, "expected sorted, valid tags", Changed(pin, kTags + 4 + 5 + 4, "a")},
      {"name-fact_tag_with_escapes.fact", kDataLoss, "expected sorted, valid tags",
       Changed(pin, kTags + 4 + 5 + 4, "\x1b")},
      {"utf8-fact_note.fact", kDataLoss, "note at byte 27: expected UTF-8", Changed(pin, kNote + 4, "\xff")},
      {"path-fact_evaluator.fact", kDataLoss, "the evaluator's name '/' has a '/'",
       Changed(evaluation, kEvaluator + 4, "/")},
      {"name-fact_evaluator_with_escapes.fact", kDataLoss, "has a control character",
       Changed(evaluation, kEvaluator + 4, "\x1b")},
      {"overflow-fact_took.fact", kDataLoss, "took at byte",
       Changed(evaluation, kEvaluator + 5 + 4 + 1 + 4 + 4 + 8, all_ones)},
      {"name-fact_metric_twice.fact", kDataLoss, "expected names in ascending order, each once",
       Changed(evaluation, EncodeFact(evaluation)->find("mean"), "loss")},
      {"count-fact_metrics.fact", kDataLoss, "metrics of the evaluation at byte",
       Changed(evaluation, EncodeFact(evaluation)->find("loss") - 8, too_many)},
      {"count-fact_evaluation_too_large.fact", kDataLoss, "size at byte 0: expected at most 1048576 bytes",
       *EncodeFact(evaluation) + std::string(1 << 20, '\0')},
      {"count-fact_asker.fact", kDataLoss, "asker at byte 46: expected at most 1024 bytes, found 4294967295",
       Changed(request, kStep + kIdBytes + 8 + kIdBytes + 4, too_many)},
      {"fact-state.fact", kDataLoss, "state at byte 10: expected 1 to 6, found 7", Changed(step, kStep + 8, "\x07")},
      {"fact-attempt_missing.fact", kDataLoss,
       "attempt at byte 11: expected one, since the step is committed, found none",
       Changed(step, kStep + 8 + 1, {"\0", 1})},
      {"count-fact_references.fact", kDataLoss, "references at byte",
       Changed(step, EncodeFact(step)->size() - 4, too_many)},
      {"count-fact_shards.fact", kDataLoss, "shards at byte", OfVersion1(step, too_many)},
      {"fact-bytes_behind_it.fact", kDataLoss, "end at byte 34: expected no more bytes, found 1 bytes more",
       *EncodeFact(answer) + "x"},
  };
}

}  // namespace

std::string EntryFileWith(const std::string& fact) { return EntryFileOf({{.facts = {fact}}}); }

std::vector<HostileCase> HostileJournals() {
  std::vector<HostileCase> cases = HostileJournalEntries();
  for (HostileCase& more : HostileSegments()) cases.push_back(std::move(more));
  for (HostileCase& more : HostileFacts()) cases.push_back(std::move(more));
  return cases;
}

}  // namespace tidemark::fuzz
