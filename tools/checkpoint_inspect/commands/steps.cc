#include "tools/checkpoint_inspect/commands/steps.h"

#include <algorithm>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "storage/io/file_system.h"
#include "storage/io/link_free_path.h"
#include "storage/store/first_format/convert.h"
#include "storage/store/store_layout.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

constexpr int kJournalReadsMax = 3;

// In a sentence.
constexpr size_t kNamedStepsMax = 5;

bool HasCommittedStep(const StoreReader& reader) {
  return std::any_of(reader.Steps().begin(), reader.Steps().end(), IsCommitted);
}

// The reader's error for a store of the first format is one of many that are kFailedPrecondition.
absl::Status OpenError(const std::string& directory, const absl::Status& status) {
  if (!absl::IsFailedPrecondition(status)) return status;
  const absl::StatusOr<bool> is_old =
      storage::IsOfFirstFormat(storage::PosixFileSystem(), storage::StoreLayout(storage::FollowLinks(directory)));
  if (!is_old.value_or(false)) return status;
  return absl::UnimplementedError(
      fmt::format("an older version of Tidemark wrote the store {}, and this one reads it when it has been converted: "
                  "start its trainer with this version, or run checkpoint-inspect repair --apply",
                  directory));
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreReader>> OpenStore(const std::string& directory, bool untrusted) {
  if (untrusted) return StoreReader::OpenUntrusted(directory);
  absl::StatusOr<std::unique_ptr<StoreReader>> reader = StoreReader::Open(directory);
  if (!reader.ok()) return OpenError(directory, reader.status());
  if (!(*reader)->journal_problem().ok()) {
    if (absl::Status status = RefreshStore(**reader); !status.ok()) return status;
  }
  return reader;
}

absl::Status RefreshStore(StoreReader& reader) {
  absl::Status status = reader.Refresh();
  for (int reads = 1; reads < kJournalReadsMax && status.ok() && !reader.journal_problem().ok(); ++reads) {
    status = reader.Refresh();
  }
  return status;
}

ExitCode OpenExitCode(const absl::Status& status) {
  // kFailedPrecondition: something that is no directory.
  if (absl::IsNotFound(status) || absl::IsFailedPrecondition(status)) return ExitCode::kNoStore;
  return StepExitCode(status);
}

ExitCode WriteExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return ExitCode::kNoStore;
    case absl::StatusCode::kUnavailable:
      return ExitCode::kLocked;
    case absl::StatusCode::kFailedPrecondition:  // nobody can say which store it is
      return ExitCode::kIntegrity;
    default:
      return StepExitCode(status);
  }
}

ExitCode StepExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kCancelled:
      return ExitCode::kInterrupted;
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kNotFound:
      return ExitCode::kIntegrity;
    case absl::StatusCode::kUnimplemented:
      return ExitCode::kNewerFormat;
    default:
      return ExitCode::kFailure;
  }
}

ExitCode SelectorExitCode(const StoreReader& reader, const absl::Status& status) {
  if (absl::IsInvalidArgument(status)) return ExitCode::kUsage;
  if (!absl::IsFailedPrecondition(status)) return ExitCode::kFailure;
  return reader.journal_problem().ok() ? ExitCode::kNothingRestorable : ExitCode::kIntegrity;
}

ExitCode StoreExitCode(const StoreReader& reader) {
  if (reader.journal_problem().ok()) return ExitCode::kOk;
  return HasCommittedStep(reader) ? ExitCode::kDamagedButUsable : ExitCode::kIntegrity;
}

bool KnowsCreated(const StepInfo& info) { return info.created != absl::UnixEpoch(); }

std::string UnhealthyText(const StoreReader& reader, int64_t step, std::optional<int64_t> healthy) {
  const absl::StatusOr<StepInfo> info = reader.FindStep(step);
  const std::string why = info.ok() ? info->unhealthy() : "";
  if (why.empty()) return "";
  return fmt::format("; it is unhealthy ({}), and {}", Escape(why),
                     healthy ? fmt::format("the latest healthy one is step {}", *healthy) : "no step is healthy");
}

std::string StepsText(const std::vector<int64_t>& steps) {
  const size_t named = std::min(steps.size(), kNamedStepsMax);
  std::string text = fmt::format("step{} {}", steps.size() == 1 ? "" : "s",
                                 fmt::join(steps.begin(), steps.begin() + static_cast<ptrdiff_t>(named), ", "));
  if (steps.size() > named) text += fmt::format(" and {} more", steps.size() - named);
  return text;
}

std::string AgeOf(const StepInfo& info, absl::Time now) { return KnowsCreated(info) ? Age(now - info.created) : "-"; }

std::string PinText(const StepInfo& info) {
  std::string text = info.tags.empty() ? "pinned" : fmt::format("tagged {}", fmt::join(info.tags, ", "));
  if (!info.pin_note.empty()) text += ": " + info.pin_note;
  return text;
}

std::string KeptText(const StepInfo& info) { return info.pinned ? "" : info.kept; }

Colour StateColour(StepState state) {
  switch (state) {
    case StepState::kCommitted:
      return Colour::kGood;
    case StepState::kFailed:
      return Colour::kWarning;
    case StepState::kDamaged:
    case StepState::kLost:
      return Colour::kBad;
    case StepState::kDeleted:
    case StepState::kUnsaved:
      return Colour::kNone;
  }
  return Colour::kNone;
}

Colour OutcomeColour(Evaluation::Outcome outcome) {
  switch (outcome) {
    case Evaluation::Outcome::kDone:
      return Colour::kGood;
    case Evaluation::Outcome::kSkipped:
      return Colour::kWarning;
    case Evaluation::Outcome::kFailed:
      return Colour::kBad;
  }
  return Colour::kNone;
}

bool IsCommitted(const StepInfo& info) { return info.state == StepState::kCommitted; }

bool HasFiles(const StepInfo& info) {
  return info.state != StepState::kFailed && info.state != StepState::kDeleted && info.state != StepState::kUnsaved;
}

bool IsOnDisk(const StepInfo& info) { return info.state == StepState::kCommitted || info.state == StepState::kDamaged; }

}  // namespace tidemark::inspect
