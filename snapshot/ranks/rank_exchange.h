// RankExchange: what the ranks of a job tell each other on their trainers' threads, through the function that the job
// gives (RankOptions::all_gather).

#ifndef TIDEMARK_SNAPSHOT_RANKS_RANK_EXCHANGE_H_
#define TIDEMARK_SNAPSHOT_RANKS_RANK_EXCHANGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tidemark/ranks.h"

namespace tidemark {

// Thread-compatible: the trainer's.
class RankExchange {
 public:
  explicit RankExchange(RankOptions options) : options_(std::move(options)) {}

  const RankOptions& options() const { return options_; }
  bool is_coordinator() const { return options_.rank == 0; }

  // What each rank gives, in the order of the ranks. All ranks call it in the same order, with the same `call`, the
  // function that the trainer has called. Errors; from the first one on it is returned by every later call:
  // - kFailedPrecondition: a rank is in another call, or two ranks disagree on rank or world size.
  // - kUnimplemented: a rank has a newer version of the library.
  // - kInternal: the function threw, or did not return one text of a rank for each.
  // - other codes: of the function.
  absl::StatusOr<std::vector<std::string>> Gather(std::string_view call, std::string_view bytes);

  // What rank 0 gives to all, `bytes` or its error; what another rank gives does not count.
  absl::StatusOr<std::string> FromRank0(std::string_view call, const absl::Status& status, std::string_view bytes);

  // Ok: it is ok on every rank. Else the error of the lowest rank that has one, with its number; on every rank alike.
  absl::Status Agree(std::string_view call, const absl::Status& own);

 private:
  absl::StatusOr<std::vector<std::string>> GatherOnce(std::string_view call, std::string_view bytes) const;

  const RankOptions options_;
  absl::Status failed_;
};

// A status as bytes, for what one rank tells the others.
std::string EncodeStatus(const absl::Status& status);
// `*decoded` becomes the status. kDataLoss: no such bytes.
absl::Status DecodeStatus(std::string_view bytes, absl::Status* decoded);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_RANKS_RANK_EXCHANGE_H_
