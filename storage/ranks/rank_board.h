// The files in which the ranks of a job state votes and outcomes: one for each rank and one for the coordinator, each
// replaced as a whole. Nothing is synced (statements.h).
//
//   ranks/<session>/vote-<rank>
//   ranks/<session>/refused-<rank>
//   ranks/<session>/outcomes
//   ranks/<session>/here-<rank>   this rank takes part; empty

#ifndef TIDEMARK_STORAGE_RANKS_RANK_BOARD_H_
#define TIDEMARK_STORAGE_RANKS_RANK_BOARD_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/ranks/statements.h"
#include "storage/store/store_layout.h"

namespace tidemark::storage {

// Thread-compatible. Each rank has one. `files` is not owned.
class RankBoard {
 public:
  RankBoard(FileSystem& files, const StoreLayout& layout, const SessionId& session, uint32_t rank);

  // Makes the folders that are not there yet, and takes the rank's place. kFailedPrecondition: it is taken. A process
  // that was started again does not know what the one before it has stated, so it needs a new session.
  absl::Status Open();

  // Removes what earlier sessions have stated, as far as it can. Their ranks find out from the journal.
  void RemoveOtherSessions() const;

  // Errors: those of FileSystem, and of the encoding. The statement may be there all the same.
  absl::Status StateVote(const RankVote& vote);
  absl::Status StateOutcomes(const RankOutcomes& outcomes);
  // Of any rank: the last attempts on which it has voted no, as the aborts that they are. A later vote does not replace
  // them.
  absl::Status StateRefusals(const RankOutcomes& refusals);

  // What is stated there, which may be an older statement. No value: nothing yet. Errors: those of FileSystem; what the
  // decoders give.
  absl::StatusOr<std::optional<RankVote>> ReadVote(uint32_t rank) const;
  absl::StatusOr<std::optional<RankOutcomes>> ReadOutcomes() const;
  absl::StatusOr<std::optional<RankOutcomes>> ReadRefusals(uint32_t rank) const;

  // The next reading finds what a file server has by now. Best effort (storage/io/fresh_look.h).
  void LookAfresh() const;

 private:
  absl::Status State(std::string_view name, const absl::StatusOr<std::string>& bytes);
  absl::StatusOr<std::optional<RankOutcomes>> ReadList(std::string_view name) const;
  std::string PathOf(std::string_view name) const;

  FileSystem& files_;
  const std::string ranks_;      // the folder of all sessions
  const std::string directory_;  // that of this one
  const uint32_t rank_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_RANKS_RANK_BOARD_H_
