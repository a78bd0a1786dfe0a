// StepSelector: names a step of a store by what it is. checkpoint-inspect takes its steps by it, too.

#ifndef TIDEMARK_STEP_SELECTOR_H_
#define TIDEMARK_STEP_SELECTOR_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tidemark/step_info.h"

namespace tidemark {

// A value. Thread-compatible.
class StepSelector {
 public:
  enum class Kind {
    kLatest,         // "latest": the highest committed step
    kLatestHealthy,  // "latest-healthy": the highest committed step that no evaluator called unhealthy
    kBest,           // "best:METRIC", "best:METRIC:lowest", "best:METRIC:highest": as AsyncCheckpointer::BestStep
    kTag,            // "tag:NAME": the committed step of that name
    kStep,           // "step:1000" or "1000": that step
  };

  // What Choose selects steps for. Both select the same step of a text if a restore can take one.
  enum class Purpose {
    kRestore,  // a tag selects a committed step
    kInspect,  // if no committed step has the tag, it selects the damaged, lost or deleted step that has it
  };

  static StepSelector Latest();
  static StepSelector LatestHealthy();
  // Without a mode: the mode that the store has recorded for the metric, else the mode that its name gives
  // (BestModeOfName).
  static StepSelector Best(std::string metric, std::optional<BestMode> mode = std::nullopt);
  static StepSelector Tag(std::string name);
  StepSelector(int64_t step);  // NOLINT: implicit, so that a number names its step

  // Reads the words above. A metric whose own name ends in ":lowest" or ":highest" is followed by the mode.
  // kInvalidArgument: `text` is none of them; the message lists them.
  static absl::StatusOr<StepSelector> Parse(std::string_view text);

  // The text that Parse reads back.
  std::string ToString() const;

  Kind kind() const { return kind_; }
  int64_t step() const { return step_; }                  // of kStep, else 0
  const std::string& metric() const { return name_; }     // of kBest
  const std::string& tag() const { return name_; }        // of kTag
  std::optional<BestMode> mode() const { return mode_; }  // of kBest; nullopt: the text names none

  // The selector with its mode set, if it needs one. The rule is the one at Best; `recorded` is
  // StoreReader::recorded_best_modes. kInvalidArgument: neither the record nor the name gives a mode; the message names
  // the two texts that give one.
  absl::StatusOr<StepSelector> WithMode(const std::map<std::string, BestMode, std::less<>>& recorded) const;

  // The selected ones of `steps` (ascending), the first choice first: the steps of kLatest in descending order, those
  // of kBest from the best on. All are committed, except that kStep selects its step in any state, and that
  // Purpose::kInspect may select an uncommitted step by its tag. The pointers are into `steps`.
  //   kNotFound: no step is selected; the message says why.
  //   kFailedPrecondition: the tag selects several steps.
  //   kInvalidArgument: kBest without a mode, and the metric's name gives none.
  absl::StatusOr<std::vector<const StepInfo*>> Choose(const std::vector<StepInfo>& steps,
                                                      Purpose purpose = Purpose::kRestore) const;

  friend bool operator==(const StepSelector&, const StepSelector&) = default;

 private:
  StepSelector(Kind kind, std::string name, std::optional<BestMode> mode);

  Kind kind_ = Kind::kLatest;
  int64_t step_ = 0;
  std::string name_;  // of the metric or the tag
  std::optional<BestMode> mode_;
};

}  // namespace tidemark

#endif  // TIDEMARK_STEP_SELECTOR_H_
