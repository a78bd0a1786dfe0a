#include "snapshot/ranks/ranked_restore.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/guarded.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"
#include "storage/records/fact.h"

namespace tidemark {
namespace {

// Three exchanges: what rank 0 wants of the others, what came of it, and what each is about to return.
constexpr std::string_view kNext = "Restore (which step)";
constexpr std::string_view kTried = "Restore (the result)";
constexpr std::string_view kEnded = "Restore (the end)";

// What rank 0 says in kNext; the others say nothing.
enum class Next : uint8_t { kTry = 1, kEnd = 2 };

absl::StatusOr<std::string> EncodeTry(const storage::StepRecord& record) {
  absl::StatusOr<std::string> fact = storage::EncodeFact(storage::StepFact{record});
  if (!fact.ok()) return fact.status();
  storage::ByteWriter writer;
  writer.Put<uint8_t>(static_cast<uint8_t>(Next::kTry));
  writer.PutText(*fact);
  return std::move(writer).Take();
}

using PassedOver = std::vector<std::pair<int64_t, std::string>>;

std::string EncodeEnd(const absl::Status& status, const PassedOver& passed_over) {
  storage::ByteWriter writer;
  writer.Put<uint8_t>(static_cast<uint8_t>(Next::kEnd));
  writer.Put<uint32_t>(static_cast<uint32_t>(passed_over.size()));
  for (const auto& [step, reason] : passed_over) {
    writer.Put<int64_t>(step);
    writer.Put<uint32_t>(static_cast<uint32_t>(reason.size()));
    writer.PutText(reason);
  }
  writer.PutText(EncodeStatus(status));
  return std::move(writer).Take();
}

// What rank 0 said: a record to restore from, or the end.
struct Told {
  storage::StepRecord record;
  bool has_ended = false;
  absl::Status status;
  PassedOver passed_over;
};

absl::StatusOr<Told> DecodeNext(std::string_view bytes) {
  storage::ByteReader reader(storage::AsBytes(bytes), "what rank 0 says of a restore");
  const auto next = static_cast<Next>(reader.Get<uint8_t>("kind"));
  Told told;
  if (next == Next::kTry) {
    absl::StatusOr<storage::Fact> fact = storage::DecodeFact(reader.GetText(reader.remaining(), "record"));
    if (!fact.ok()) return fact.status();
    auto* step = std::get_if<storage::StepFact>(&*fact);
    if (step == nullptr) return absl::DataLossError("what rank 0 says of a restore: a fact that is no step's");
    told.record = std::move(step->record);
    return told;
  }
  if (next != Next::kEnd) reader.FailAt(0, "kind", "1 or 2", fmt::format("{}", static_cast<int>(next)));
  told.has_ended = true;
  const uint32_t count = reader.Get<uint32_t>("steps passed over");
  reader.CheckCount(count, sizeof(int64_t) + sizeof(uint32_t), "steps passed over");
  for (uint32_t i = 0; i < count && reader.ok(); ++i) {
    const int64_t step = reader.Get<int64_t>("step");
    told.passed_over.emplace_back(step, reader.GetText(reader.Get<uint32_t>("length of a reason"), "reason"));
  }
  const std::string_view status = reader.GetText(reader.remaining(), "status");
  if (!reader.ok()) return reader.status();
  if (absl::Status decoded = DecodeStatus(status, &told.status); !decoded.ok()) return decoded;
  return told;
}

// What ends a restore comes first, then what sends it to an older step.
int Badness(RestoreResult::Cause cause) {
  switch (cause) {
    case RestoreResult::Cause::kNone:
      return 0;
    case RestoreResult::Cause::kDevice:
      return 1;
    case RestoreResult::Cause::kCheckpoint:
      return 2;
    case RestoreResult::Cause::kState:
      return 3;
  }
  return 3;
}

// A failure of the exchange itself ends the restore.
RestoreResult Failed(RestoreResult own, absl::Status why) {
  own.status = std::move(why);
  own.cause = RestoreResult::Cause::kState;
  return own;
}

// Restores here, and returns what came of it on all ranks, which each of them learns.
RestoreResult RestoreAndShare(RankExchange& exchange, const storage::StepRecord& record, RestoreHere restore) {
  RestoreResult own;
  // The other ranks wait for the result, whatever it is.
  const absl::Status ended = Guarded("restore", [&] { own = restore(record); });
  if (!ended.ok()) own = {.status = ended, .cause = RestoreResult::Cause::kState};
  storage::ByteWriter writer;
  writer.Put<uint8_t>(static_cast<uint8_t>(Badness(own.cause)));
  writer.PutText(EncodeStatus(own.status));
  const absl::StatusOr<std::vector<std::string>> given = exchange.Gather(kTried, writer.view());
  if (!given.ok()) return Failed(std::move(own), given.status());
  RestoreResult all = std::move(own);
  const int own_badness = Badness(all.cause);
  int worst = 0;
  for (size_t rank = 0; rank < given->size(); ++rank) {
    storage::ByteReader reader(storage::AsBytes((*given)[rank]), "a rank's result of a restore");
    const int badness = reader.Get<uint8_t>("cause");
    absl::Status status;
    absl::Status decoded = DecodeStatus(reader.GetText(reader.remaining(), "status"), &status);
    if (!decoded.ok()) return Failed(std::move(all), std::move(decoded));
    if (badness <= worst) continue;
    worst = badness;
    all.status = absl::Status(status.code(), fmt::format("rank {}: {}", rank, std::string(status.message())));
    for (const auto cause :
         {RestoreResult::Cause::kDevice, RestoreResult::Cause::kCheckpoint, RestoreResult::Cause::kState}) {
      if (Badness(cause) == badness) all.cause = cause;
    }
  }
  all.is_of_other_rank = worst > own_badness;
  if (!all.status.ok() && own_badness == 0) {
    // This rank's restore had come to its end.
    all.written.insert(all.written.end(), all.values.begin(), all.values.end());
  }
  return all;
}

// What all ranks return: this rank's report, unless one has an error.
absl::StatusOr<RestoreReport> AgreeOnEnd(RankExchange& exchange, absl::StatusOr<RestoreReport> own) {
  absl::Status agreed = exchange.Agree(kEnded, own.status());
  if (!agreed.ok()) return agreed;
  return own;
}

}  // namespace

RestoreResult RestoreOnAllRanks(RankExchange& exchange, const storage::StepRecord& record, RestoreHere restore) {
  const absl::StatusOr<std::string> message = EncodeTry(record);
  if (!message.ok()) return Failed({}, message.status());
  const absl::StatusOr<std::vector<std::string>> given = exchange.Gather(kNext, *message);
  if (!given.ok()) return Failed({}, given.status());
  return RestoreAndShare(exchange, record, restore);
}

absl::StatusOr<RestoreReport> EndRestore(RankExchange& exchange, absl::StatusOr<RestoreReport> report) {
  const std::string message = EncodeEnd(report.status(), report.ok() ? report->passed_over : PassedOver());
  const absl::StatusOr<std::vector<std::string>> given = exchange.Gather(kNext, message);
  if (!given.ok()) return report.ok() ? given.status() : report.status();
  // The others have heard of it.
  if (!report.ok()) return report;
  return AgreeOnEnd(exchange, std::move(report));
}

absl::StatusOr<RestoreReport> FollowRestore(RankExchange& exchange, RestoreHere restore,
                                            absl::FunctionRef<void()> damage_seen) {
  RestoreReport report;
  std::set<std::string> half_written;
  for (;;) {
    const absl::StatusOr<std::vector<std::string>> given = exchange.Gather(kNext, "");
    if (!given.ok()) return given.status();
    absl::StatusOr<Told> told = DecodeNext(given->front());
    if (!told.ok()) return told.status();
    if (told->has_ended) {
      if (!told->status.ok()) return told->status;
      report.passed_over = std::move(told->passed_over);
      if (half_written.empty()) return AgreeOnEnd(exchange, std::move(report));
      return AgreeOnEnd(exchange, absl::DataLossError(fmt::format(
                                      "step {} was restored, and these entries hold parts of a newer, damaged step: {}",
                                      report.step, fmt::join(half_written, ", "))));
    }
    RestoreResult result = RestoreAndShare(exchange, told->record, restore);
    using Cause = RestoreResult::Cause;
    if (result.cause == Cause::kDevice || result.cause == Cause::kCheckpoint) damage_seen();
    if (result.status.ok()) {
      for (const std::string& name : result.written) half_written.erase(name);
      for (const std::string& name : result.values) half_written.erase(name);
      report = std::move(result.report);
    } else {
      half_written.insert(result.written.begin(), result.written.end());
    }
  }
}

}  // namespace tidemark
