#include "tidemark/step_selector.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "fmt/format.h"
#include "storage/io/printable_text.h"
#include "storage/records/best_modes.h"
#include "storage/records/tag.h"

namespace tidemark {
namespace {

constexpr std::string_view kSelectors =
    "latest, latest-healthy, best:METRIC, best:METRIC:lowest, best:METRIC:highest, tag:NAME, step:N or N";

bool TakePrefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool TakeSuffix(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

std::optional<int64_t> ParseNumber(std::string_view text) {
  int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || end != text.data() + text.size() || step < 0) return std::nullopt;
  return step;
}

// The finite value of the metric; nullopt: the step has none.
std::optional<double> ValueOf(const StepInfo& info, const std::string& metric) {
  const auto found = info.metrics.find(metric);
  if (found == info.metrics.end() || !std::isfinite(found->second)) return std::nullopt;
  return found->second;
}

}  // namespace

StepSelector::StepSelector(Kind kind, std::string name, std::optional<BestMode> mode)
    : kind_(kind), name_(std::move(name)), mode_(mode) {}

StepSelector::StepSelector(int64_t step) : kind_(Kind::kStep), step_(step) {}

StepSelector StepSelector::Latest() { return StepSelector(Kind::kLatest, "", std::nullopt); }

StepSelector StepSelector::LatestHealthy() { return StepSelector(Kind::kLatestHealthy, "", std::nullopt); }

StepSelector StepSelector::Best(std::string metric, std::optional<BestMode> mode) {
  return StepSelector(Kind::kBest, std::move(metric), mode);
}

StepSelector StepSelector::Tag(std::string name) { return StepSelector(Kind::kTag, std::move(name), std::nullopt); }

absl::StatusOr<StepSelector> StepSelector::Parse(std::string_view text) {
  if (text == "latest") return Latest();
  if (text == "latest-healthy") return LatestHealthy();
  if (text == "best" || text == "best:") {
    return absl::InvalidArgumentError("best needs a metric, as in best:loss or best:validation/loss");
  }
  std::string_view rest = text;
  if (TakePrefix(rest, "best:")) {
    std::optional<BestMode> mode;
    if (TakeSuffix(rest, ":highest")) {
      mode = BestMode::kHighest;
    } else if (TakeSuffix(rest, ":lowest")) {
      mode = BestMode::kLowest;
    }
    if (!rest.empty()) return Best(std::string(rest), mode);
  } else if (TakePrefix(rest, "tag:")) {
    if (storage::CheckTag(rest).ok()) return Tag(std::string(rest));
  } else {
    TakePrefix(rest, "step:");
    if (const std::optional<int64_t> step = ParseNumber(rest)) return StepSelector(*step);
  }
  return absl::InvalidArgumentError(fmt::format("'{}' names no step; a step is one of: {}", text, kSelectors));
}

std::string StepSelector::ToString() const {
  switch (kind_) {
    case Kind::kLatest:
      return "latest";
    case Kind::kLatestHealthy:
      return "latest-healthy";
    case Kind::kBest: {
      if (mode_) return fmt::format("best:{}:{}", name_, *mode_ == BestMode::kLowest ? "lowest" : "highest");
      // Without the mode, the end of such a name would be read as a mode.
      const bool ends_like_a_mode = name_.ends_with(":lowest") || name_.ends_with(":highest");
      return fmt::format("best:{}{}", name_, ends_like_a_mode ? ":lowest" : "");
    }
    case Kind::kTag:
      return fmt::format("tag:{}", name_);
    case Kind::kStep:
      return fmt::format("{}", step_);
  }
  return "";
}

absl::StatusOr<StepSelector> StepSelector::WithMode(
    const std::map<std::string, BestMode, std::less<>>& recorded) const {
  if (kind_ != Kind::kBest || mode_) return *this;
  const std::optional<BestMode> mode = storage::FindBestMode(recorded, name_);
  if (!mode) {
    const std::string best = fmt::format("best:{}", storage::PrintableText(name_));
    return absl::InvalidArgumentError(
        fmt::format("{0}: neither the trainer nor the name says whether lower or higher is better; use {0}:lowest or "
                    "{0}:highest",
                    best));
  }
  return Best(name_, mode);
}

absl::StatusOr<std::vector<const StepInfo*>> StepSelector::Choose(const std::vector<StepInfo>& steps,
                                                                  Purpose purpose) const {
  if (kind_ == Kind::kBest && !mode_) {
    const absl::StatusOr<StepSelector> with_mode = WithMode({});
    if (!with_mode.ok()) return with_mode.status();
    return with_mode->Choose(steps, purpose);
  }
  std::vector<const StepInfo*> chosen;
  std::vector<const StepInfo*> uncommitted;  // of kTag: those that have the tag
  if (kind_ == Kind::kStep) {
    const auto found = std::lower_bound(steps.begin(), steps.end(), step_,
                                        [](const StepInfo& info, int64_t step) { return info.step < step; });
    if (found == steps.end() || found->step != step_) {
      return absl::NotFoundError(fmt::format("the store has no step {}", step_));
    }
    return std::vector<const StepInfo*>{&*found};
  }
  for (auto info = steps.rbegin(); info != steps.rend(); ++info) {
    if (kind_ == Kind::kTag && !storage::HasTag(info->tags, name_)) continue;
    if (info->state != StepState::kCommitted) {
      if (kind_ == Kind::kTag) uncommitted.push_back(&*info);
      continue;
    }
    const bool is_healthy = info->unhealthy().empty();
    if (kind_ == Kind::kLatestHealthy && !is_healthy) continue;
    if (kind_ == Kind::kBest && (!is_healthy || !ValueOf(*info, name_))) continue;
    chosen.push_back(&*info);
  }
  if (chosen.empty() && purpose == Purpose::kInspect) chosen = uncommitted;
  if (kind_ == Kind::kBest) {
    // Among equal values the later steps come first; they are in this order already.
    const bool lowest = *mode_ == BestMode::kLowest;
    std::stable_sort(chosen.begin(), chosen.end(), [&](const StepInfo* a, const StepInfo* b) {
      return lowest ? *ValueOf(*a, name_) < *ValueOf(*b, name_) : *ValueOf(*b, name_) < *ValueOf(*a, name_);
    });
  }
  if (kind_ == Kind::kTag && chosen.size() > 1) {
    return absl::FailedPreconditionError(
        fmt::format("{} steps have the tag '{}', {} and {} among them; `checkpoint-inspect tag --move` leaves it to "
                    "one, `checkpoint-inspect untag` removes it",
                    chosen.size(), name_, chosen[1]->step, chosen[0]->step));
  }
  if (!chosen.empty()) return chosen;
  switch (kind_) {
    case Kind::kLatestHealthy:
      return absl::NotFoundError("no committed step is healthy");
    case Kind::kBest:
      return absl::NotFoundError(fmt::format("no committed step that is healthy has a finite metric '{}'", name_));
    case Kind::kTag:
      return absl::NotFoundError(
          fmt::format("no committed step has the tag '{}'{}", name_,
                      uncommitted.empty() ? ""
                                          : fmt::format("; step {}, which has it, is {}", uncommitted.front()->step,
                                                        StepStateName(uncommitted.front()->state))));
    case Kind::kLatest:
    case Kind::kStep:
      break;
  }
  return absl::NotFoundError("no step is committed");
}

}  // namespace tidemark
