#include "snapshot/ranks/rank_exchange.h"

#include <string>

#include "fmt/format.h"
#include "snapshot/guarded.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"
#include "storage/bytes/frame.h"
#include "storage/io/printable_text.h"

namespace tidemark {
namespace {

constexpr storage::FrameKind kFrame = {.magic = "TMKRANKM", .name = "a rank's message"};
constexpr std::string_view kWhat = "message of a rank";

// A rank's message, which says who gives it and in which call.
std::string Encode(const RankOptions& options, std::string_view call, std::string_view bytes) {
  storage::ByteWriter writer;
  storage::BeginFrame(writer, kFrame);
  writer.Put<int32_t>(options.rank);
  writer.Put<int32_t>(options.world_size);
  writer.Put<uint32_t>(static_cast<uint32_t>(call.size()));
  writer.PutText(call);
  writer.PutText(bytes);
  storage::EndFrame(writer);
  return std::move(writer).Take();
}

// What the rank gave as number `place`. kFailedPrecondition: it is not that rank's, or of another call.
absl::StatusOr<std::string> Decode(const RankOptions& own, int32_t place, std::string_view call,
                                   std::string_view message) {
  const absl::StatusOr<std::string_view> checked = storage::CheckFrame(kWhat, kFrame, message);
  if (!checked.ok()) return checked.status();
  storage::ByteReader reader(storage::AsBytes(*checked), kWhat);
  storage::SkipFrame(reader);
  const int32_t rank = reader.Get<int32_t>("rank");
  const int32_t world_size = reader.Get<int32_t>("world size");
  const std::string_view theirs = reader.GetText(reader.Get<uint32_t>("length of a call"), "call");
  const std::string_view bytes = reader.GetText(reader.remaining(), "bytes");
  if (!reader.ok()) return reader.status();
  if (rank != place || world_size != own.world_size) {
    return absl::FailedPreconditionError(
        fmt::format("process {} of the job says that it is rank {} of {}, and rank {} has {} as the world size", place,
                    rank, world_size, own.rank, own.world_size));
  }
  if (theirs != call) {
    return absl::FailedPreconditionError(
        fmt::format("rank {} calls {}, and rank {} calls {}: all ranks must call alike", rank,
                    storage::PrintableText(theirs), own.rank, call));
  }
  return std::string(bytes);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> RankExchange::Gather(std::string_view call, std::string_view bytes) {
  if (!failed_.ok()) return failed_;
  absl::StatusOr<std::vector<std::string>> gathered = GatherOnce(call, bytes);
  // Whether the others have heard of it is not known, so nothing that follows would be of the same call.
  if (!gathered.ok()) failed_ = gathered.status();
  return gathered;
}

absl::StatusOr<std::vector<std::string>> RankExchange::GatherOnce(std::string_view call, std::string_view bytes) const {
  const std::string message = Encode(options_, call, bytes);
  absl::StatusOr<std::vector<std::string>> messages =
      Guarded("RankOptions::all_gather", [&] { return options_.all_gather(message); });
  if (!messages.ok()) {
    return absl::Status(messages.status().code(), fmt::format("{}: the ranks could not be asked: {}", call,
                                                              std::string(messages.status().message())));
  }
  if (messages->size() != static_cast<size_t>(options_.world_size)) {
    return absl::InternalError(
        fmt::format("RankOptions::all_gather returned {} texts for {} ranks", messages->size(), options_.world_size));
  }
  std::vector<std::string> gathered;
  for (int32_t rank = 0; rank < options_.world_size; ++rank) {
    absl::StatusOr<std::string> given = Decode(options_, rank, call, (*messages)[static_cast<size_t>(rank)]);
    if (absl::IsDataLoss(given.status())) {
      return absl::InternalError(fmt::format("RankOptions::all_gather returned for rank {} what no rank gave: {}", rank,
                                             std::string(given.status().message())));
    }
    if (!given.ok()) return given.status();
    gathered.push_back(*std::move(given));
  }
  return gathered;
}

absl::StatusOr<std::string> RankExchange::FromRank0(std::string_view call, const absl::Status& status,
                                                    std::string_view bytes) {
  storage::ByteWriter writer;
  if (is_coordinator()) {
    writer.Put<uint32_t>(static_cast<uint32_t>(bytes.size()));
    writer.PutText(bytes);
    writer.PutText(EncodeStatus(status));
  }
  const absl::StatusOr<std::vector<std::string>> given = Gather(call, writer.view());
  // Its own error says more than that it could not be told.
  if (is_coordinator() && !status.ok()) return status;
  if (!given.ok()) return given.status();
  storage::ByteReader reader(storage::AsBytes(given->front()), "what rank 0 says");
  const std::string_view of_rank_0 = reader.GetText(reader.Get<uint32_t>("length"), "bytes");
  absl::Status its_status;
  absl::Status decoded = DecodeStatus(reader.GetText(reader.remaining(), "status"), &its_status);
  if (!reader.ok()) return reader.status();
  if (!decoded.ok()) return decoded;
  if (!its_status.ok()) return its_status;
  return std::string(of_rank_0);
}

absl::Status RankExchange::Agree(std::string_view call, const absl::Status& own) {
  const absl::StatusOr<std::vector<std::string>> given = Gather(call, EncodeStatus(own));
  if (!given.ok()) return own.ok() ? given.status() : own;
  for (size_t rank = 0; rank < given->size(); ++rank) {
    absl::Status status;
    if (absl::Status decoded = DecodeStatus((*given)[rank], &status); !decoded.ok()) return decoded;
    if (!status.ok())
      return absl::Status(status.code(), fmt::format("rank {}: {}", rank, std::string(status.message())));
  }
  return absl::OkStatus();
}

std::string EncodeStatus(const absl::Status& status) {
  storage::ByteWriter writer;
  writer.Put<int32_t>(static_cast<int32_t>(status.code()));
  writer.PutText({status.message().data(), status.message().size()});
  return std::move(writer).Take();
}

absl::Status DecodeStatus(std::string_view bytes, absl::Status* decoded) {
  storage::ByteReader reader(storage::AsBytes(bytes), "status of a rank");
  const int32_t code = reader.Get<int32_t>("code");
  const std::string_view message = reader.GetText(reader.remaining(), "message");
  if (!reader.ok()) return reader.status();
  *decoded = absl::Status(static_cast<absl::StatusCode>(code), std::string(message));
  return absl::OkStatus();
}

}  // namespace tidemark
