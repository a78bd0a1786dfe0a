#include "tools/checkpoint_inspect/steps.h"

#include <algorithm>
#include <charconv>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/text.h"

namespace tidemark::inspect {
namespace {

constexpr int kManifestReadsMax = 3;

bool HasCommittedStep(const StoreReader& reader) {
  return std::any_of(reader.steps().begin(), reader.steps().end(),
                     [](const StepInfo& info) { return info.state == StepState::kCommitted; });
}

}  // namespace

absl::StatusOr<std::unique_ptr<StoreReader>> OpenStore(const std::string& directory, bool untrusted) {
  if (untrusted) return StoreReader::OpenUntrusted(directory);
  absl::StatusOr<std::unique_ptr<StoreReader>> reader = StoreReader::Open(directory);
  if (!reader.ok()) return reader;
  for (int reads = 1; reads < kManifestReadsMax && !(*reader)->manifest_problem().ok(); ++reads) {
    if (absl::Status status = (*reader)->Refresh(); !status.ok()) return status;
  }
  return reader;
}

ExitCode OpenExitCode(const absl::Status& status) {
  // kFailedPrecondition: something that is no directory.
  if (absl::IsNotFound(status) || absl::IsFailedPrecondition(status)) return ExitCode::kNoStore;
  return StepExitCode(status);
}

ExitCode StepExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kNotFound:
      return ExitCode::kIntegrity;
    case absl::StatusCode::kUnimplemented:
      return ExitCode::kNewerFormat;
    default:
      return ExitCode::kFailure;
  }
}

absl::StatusOr<StepInfo> FindStep(const StoreReader& reader, const std::string& directory, int64_t step) {
  absl::StatusOr<StepInfo> found = reader.Find(step);
  if (!absl::IsNotFound(found.status())) return found;
  const std::vector<StepInfo>& steps = reader.steps();
  if (steps.empty())
    return absl::NotFoundError(fmt::format("step {} is not in {}, which has no steps", step, directory));
  const auto above =
      std::find_if(steps.begin(), steps.end(), [step](const StepInfo& info) { return info.step > step; });
  std::string nearest;
  if (above != steps.begin()) nearest += fmt::format("{}", (above - 1)->step);
  if (above != steps.end()) nearest += fmt::format("{}{}", nearest.empty() ? "" : " and ", above->step);
  return absl::NotFoundError(fmt::format("step {} is not in {}; nearest: {}", step, directory, nearest));
}

ExitCode StoreExitCode(const StoreReader& reader) {
  if (reader.manifest_problem().ok()) return ExitCode::kOk;
  return HasCommittedStep(reader) ? ExitCode::kDamagedButUsable : ExitCode::kIntegrity;
}

bool KnowsCreated(const StepInfo& info) { return info.created != absl::UnixEpoch(); }

std::string AgeOf(const StepInfo& info, absl::Time now) { return KnowsCreated(info) ? Age(now - info.created) : "-"; }

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

bool HasFiles(const StepInfo& info) {
  return info.state != StepState::kFailed && info.state != StepState::kDeleted && info.state != StepState::kUnsaved;
}

std::optional<int64_t> ParseStep(std::string_view text) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || end != text.data() + text.size() || step < 0) return std::nullopt;
  return step;
}

}  // namespace tidemark::inspect
