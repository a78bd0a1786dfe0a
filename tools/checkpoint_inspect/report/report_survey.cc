#include "tools/checkpoint_inspect/report/report_survey.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/cli/progress_line.h"
#include "tools/checkpoint_inspect/report/survey_plan.h"
#include "tools/checkpoint_inspect/tensors/change_sums.h"
#include "tools/checkpoint_inspect/tensors/name_groups.h"
#include "tools/checkpoint_inspect/tensors/tensor_numbers.h"
#include "tools/checkpoint_inspect/tensors/tensor_stream.h"

namespace tidemark::inspect {
namespace {

// What is kept of each tensor in each step is some 56 bytes; this many of them are 60 MiB.
constexpr size_t kHeldMax = 17 << 16;

// A sum of squares that nobody has worked out.
constexpr long double kUnknown = -1;

// A step's tensors, and whether it was they that could not be read: of two steps that are read side by side an error
// names only the file, which another step may refer to. Thread-safe.
class WatchedSource : public TensorSource {
 public:
  explicit WatchedSource(std::unique_ptr<TensorSource> source) : source_(std::move(source)) {}

  const std::string& name() const override { return source_->name(); }
  std::span<const StoredEntry> entries() const override { return source_->entries(); }
  uint64_t chunk_bytes() const override { return source_->chunk_bytes(); }

  absl::Status Read(std::span<const StepReader::Window> windows) const override {
    absl::Status status = source_->Read(windows);
    if (status.ok()) return status;
    std::vector<std::string> damaged;
    // The error is about one entry, and others that were read with it may be damaged as well.
    for (size_t i = 0; absl::IsDataLoss(status) && i < windows.size(); ++i) {
      if (!absl::IsDataLoss(source_->Read(windows.subspan(i, 1)))) continue;
      const std::string& name = entries()[windows[i].entry].spec.name;
      if (damaged.empty() || damaged.back() != name) damaged.push_back(name);
    }
    const absl::MutexLock lock(&mutex_);
    failed_ = true;
    damaged_ = std::move(damaged);
    return status;
  }

  bool failed() const {
    const absl::MutexLock lock(&mutex_);
    return failed_;
  }
  std::vector<std::string> damaged() const {
    const absl::MutexLock lock(&mutex_);
    return damaged_;
  }

 private:
  const std::unique_ptr<TensorSource> source_;
  mutable absl::Mutex mutex_;
  mutable bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  mutable std::vector<std::string> damaged_ ABSL_GUARDED_BY(mutex_);
};

// Tensors by the rows in which they are shown.
struct Rows {
  std::vector<std::string> labels;
  std::vector<std::vector<size_t>> tensors;
};

Rows GroupTensors(const TensorInventory& inventory, const std::vector<size_t>& tensors, size_t rows_max) {
  // Parts of one tensor that several ranks hold have one name, and one row.
  std::vector<std::string> names;
  std::vector<absl::InlinedVector<size_t, 1>> of_name;
  absl::flat_hash_map<std::string_view, size_t> name_of;
  for (const size_t tensor : tensors) {
    const std::string& name = inventory.tensors()[tensor].name;
    const auto [found, is_new] = name_of.try_emplace(name, names.size());
    if (is_new) {
      names.push_back(name);
      of_name.emplace_back();
    }
    of_name[found->second].push_back(tensor);
  }
  Rows rows;
  for (const NameGroup& group : GroupNames(names, rows_max)) {
    rows.labels.push_back(group.label);
    std::vector<size_t>& members = rows.tensors.emplace_back();
    for (const size_t name : group.members) members.insert(members.end(), of_name[name].begin(), of_name[name].end());
  }
  return rows;
}

class Surveyor {
 public:
  Surveyor(const StoreReader& reader, const SurveyLimits& limits, Console& console)
      : reader_(reader), limits_(limits), console_(console) {}

  absl::StatusOr<ReportSurvey> Run(std::span<const int64_t> steps) {
    survey_.steps_given = steps.size();
    TakeInventory(steps);
    inventory_.EndSteps();
    if (inventory_.steps().empty()) return std::move(survey_);
    survey_.steps = inventory_.steps();
    survey_.others = inventory_.others();
    const SurveyPlan plan = PlanSurvey(inventory_, limits_.read_bytes_max);
    survey_.bytes_pairs_left_out = plan.bytes_pairs_left_out;
    survey_.bytes_histograms_left_out = plan.bytes_last_left_out;
    const size_t pairs = inventory_.steps().size() - 1;
    const std::vector<long double> unknown(inventory_.tensors().size(), kUnknown);
    norms_.assign(inventory_.steps().size(), unknown);
    changes_.assign(pairs, unknown);
    {
      ProgressLine line(console_, plan.bytes);
      line_ = &line;
      ReadLast(plan.last);
      for (const SurveyPlan::Pair& pair : plan.pairs) ReadPair(pair);
      line_ = nullptr;
    }
    if (IsInterrupted()) return absl::CancelledError("interrupted");
    survey_.steps_read = steps_read_.size();
    SpreadNorms();
    FillCells();
    return std::move(survey_);
  }

 private:
  // `not_shown`: what the report lacks for it. A step has one problem: its first error, and all that is not shown.
  void Note(int64_t step, const absl::Status& status, const std::string& not_shown,
            std::vector<std::string> entries = {}) {
    if (absl::IsCancelled(status)) return;
    auto problem = std::find_if(survey_.problems.begin(), survey_.problems.end(),
                                [step](const ReadProblem& known) { return known.step == step; });
    if (problem == survey_.problems.end()) {
      problem = survey_.problems.insert(problem, ReadProblem{.step = step, .what = std::string(status.message())});
    }
    if (absl::IsDataLoss(status) || absl::IsNotFound(status)) {
      // A committed step without its files is as good as a damaged one.
      if (!problem->damaged) problem->what = std::string(status.message());
      problem->damaged = true;
    } else if (!absl::IsAborted(status)) {
      problem->failed = true;
    }
    for (std::string& entry : entries) {
      const bool is_known =
          std::find(problem->entries.begin(), problem->entries.end(), entry) != problem->entries.end();
      if (!is_known) problem->entries.push_back(std::move(entry));
    }
    problem->not_shown.push_back(not_shown);
  }

  // The same of the first of the steps that are read together that could not be.
  void NoteFailed(const std::vector<std::pair<size_t, const WatchedSource*>>& sources, const absl::Status& status,
                  const std::string& not_shown) {
    for (const auto& [step, source] : sources) {
      if (!source->failed()) continue;
      Note(inventory_.steps()[step], status, not_shown, source->damaged());
      return;
    }
  }

  std::string SpreadText() const { return fmt::format("how step {}'s numbers are spread", inventory_.steps().back()); }
  std::string ChangeText(size_t first) const {
    return fmt::format("the change from step {} to {}", inventory_.steps()[first], inventory_.steps()[first + 1]);
  }

  void TakeInventory(std::span<const int64_t> steps) {
    size_t steps_max = limits_.steps_max;
    if (!steps.empty()) {
      // Steps of one run have about as many tensors each.
      const absl::StatusOr<StepInfo> last = reader_.FindStep(steps.back());
      const size_t entries = last.ok() ? std::max<size_t>(last->entry_count, 1) : 1;
      steps_max = std::clamp<size_t>(kHeldMax / entries, 2, steps_max);
    }
    for (const size_t chosen : SampleEvenly(steps.size(), steps_max)) {
      if (IsInterrupted()) return;
      const absl::StatusOr<StepContents> contents = reader_.Contents(steps[chosen]);
      if (contents.ok()) {
        inventory_.AddStep(steps[chosen], contents->entries);
      } else {
        Note(steps[chosen], contents.status(), "anything of it");
      }
    }
  }

  // `not_shown`: for want of the step; null where it cannot be opened.
  std::unique_ptr<WatchedSource> Open(size_t step, const std::string& not_shown) {
    const int64_t number = inventory_.steps()[step];
    absl::StatusOr<std::unique_ptr<StepReader>> reader = reader_.OpenStep(number);
    if (!reader.ok()) {
      Note(number, reader.status(), not_shown);
      return nullptr;
    }
    return std::make_unique<WatchedSource>(MakeStepSource(*std::move(reader), fmt::format("step {}", number)));
  }

  // The tensors as a lane of `source`; empty where a trainer has put another attempt in the step's place meanwhile.
  Lane LaneOf(const TensorSource& source, size_t step, const std::vector<size_t>& tensors,
              const std::string& not_shown) {
    Lane lane{.source = &source, .entries = {}};
    for (const size_t tensor : tensors) {
      const uint32_t entry = inventory_.At(step, tensor).entry;
      const TensorInventory::Tensor& expected = inventory_.tensors()[tensor];
      if (entry >= source.entries().size() || source.entries()[entry].spec.name != expected.name ||
          source.entries()[entry].bytes != expected.bytes || source.entries()[entry].spec.dtype != expected.dtype) {
        Note(inventory_.steps()[step], absl::NotFoundError("it was replaced while it was being read"), not_shown);
        return {};
      }
      lane.entries.push_back(entry);
    }
    return lane;
  }

  void ReadLast(const std::vector<size_t>& tensors) {
    const size_t last = inventory_.steps().size() - 1;
    std::vector<size_t> present;
    for (size_t tensor = 0; tensor < inventory_.tensors().size(); ++tensor) {
      if (inventory_.At(last, tensor).present()) present.push_back(tensor);
    }
    if (present.empty()) return;
    const Rows rows = GroupTensors(inventory_, present, limits_.histograms_max);
    std::vector<size_t> row_of(inventory_.tensors().size());
    for (size_t row = 0; row < rows.labels.size(); ++row) {
      survey_.histograms.push_back({.label = rows.labels[row], .tensors = rows.tensors[row].size(), .histogram = {}});
      for (const size_t tensor : rows.tensors[row]) row_of[tensor] = row;
    }
    uint64_t bytes = 0;
    for (const size_t tensor : tensors) bytes += inventory_.tensors()[tensor].bytes;
    uint64_t done = 0;
    const std::unique_ptr<WatchedSource> source = Open(last, SpreadText());
    const Lane lane = source == nullptr ? Lane{} : LaneOf(*source, last, tensors, SpreadText());
    if (!lane.entries.empty()) {
      long double norm = 0;
      const absl::Status read = StreamTensors({&lane, 1}, [&](const TensorBlock& block) {
        const size_t tensor = tensors[block.item];
        GroupHistogram& group = survey_.histograms[row_of[tensor]];
        const Dtype dtype = inventory_.tensors()[tensor].dtype;
        VisitNumbers(dtype, block.bytes[0], [&](std::span<const double> numbers) { group.histogram.Add(numbers); });
        if (block.first_element == 0) norm = 0;
        norm += SumOfSquares(dtype, block.bytes[0]);
        if (block.last) {
          norms_[last][tensor] = norm;
          ++group.tensors_read;
        }
        done += block.bytes[0].size();
        line_->Update(fmt::format("step {}", inventory_.steps()[last]), done);
        return absl::OkStatus();
      });
      if (!read.ok()) NoteFailed({{last, source.get()}}, read, SpreadText());
    }
    if (done > 0) steps_read_.insert(last);
    survey_.bytes_read += done;
    survey_.bytes_histograms_unread += bytes - done;
    line_->FinishPart(bytes);
  }

  void ReadPair(const SurveyPlan::Pair& pair) {
    if (IsInterrupted()) return;
    uint64_t bytes = 0;
    for (const size_t tensor : pair.tensors) bytes += 2 * inventory_.tensors()[tensor].bytes;
    uint64_t done = 0;
    const std::string change = ChangeText(pair.first);
    const std::unique_ptr<WatchedSource> before = Open(pair.first, change);
    const std::unique_ptr<WatchedSource> after = before == nullptr ? nullptr : Open(pair.first + 1, change);
    if (after != nullptr) {
      const Lane lanes[] = {LaneOf(*before, pair.first, pair.tensors, change),
                            LaneOf(*after, pair.first + 1, pair.tensors, change)};
      if (!lanes[0].entries.empty() && !lanes[1].entries.empty()) {
        ChangeSums sums;
        const absl::Status read = StreamTensors(lanes, [&](const TensorBlock& block) {
          if (block.first_element == 0) sums = {};
          const size_t tensor = pair.tensors[block.item];
          sums.Add(inventory_.tensors()[tensor].dtype, block.bytes[0], block.bytes[1]);
          done += block.bytes[0].size() + block.bytes[1].size();
          if (block.last) {
            changes_[pair.first][tensor] = sums.difference;
            norms_[pair.first][tensor] = sums.before;
            norms_[pair.first + 1][tensor] = sums.after;
          }
          line_->Update(fmt::format("step {}", inventory_.steps()[pair.first + 1]), done);
          return absl::OkStatus();
        });
        if (!read.ok()) NoteFailed({{pair.first, before.get()}, {pair.first + 1, after.get()}}, read, change);
      }
    }
    if (done > 0) steps_read_.insert({pair.first, pair.first + 1});
    survey_.bytes_read += done;
    survey_.bytes_pairs_unread += bytes - done;
    line_->FinishPart(bytes);
  }

  // The same bytes have the same norm, in whatever step it was found.
  void SpreadNorms() {
    const size_t steps = inventory_.steps().size();
    const auto copy = [&](size_t from, size_t to, size_t tensor) {
      const TensorInventory::Held& a = inventory_.At(from, tensor);
      const TensorInventory::Held& b = inventory_.At(to, tensor);
      if (norms_[to][tensor] == kUnknown && a.present() && b.present() && a.SameBytes(b)) {
        norms_[to][tensor] = norms_[from][tensor];
      }
    };
    for (size_t tensor = 0; tensor < inventory_.tensors().size(); ++tensor) {
      for (size_t step = 1; step < steps; ++step) copy(step - 1, step, tensor);
      for (size_t step = steps - 1; step > 0; --step) copy(step, step - 1, tensor);
    }
  }

  HeatCell CellOf(const std::vector<size_t>& tensors, size_t pair) const {
    size_t present = 0;
    size_t unread = 0;
    size_t unknown = 0;
    bool same_bytes = true;
    long double change = 0;
    long double norm = 0;
    for (const size_t tensor : tensors) {
      const TensorInventory::Held& a = inventory_.At(pair, tensor);
      const TensorInventory::Held& b = inventory_.At(pair + 1, tensor);
      if (!a.present() || !b.present()) continue;
      ++present;
      if (!a.SameBytes(b)) {
        same_bytes = false;
        if (changes_[pair][tensor] == kUnknown) {
          ++unread;
          continue;
        }
        change += changes_[pair][tensor];
      }
      if (norms_[pair][tensor] == kUnknown) {
        ++unknown;
      } else {
        norm += norms_[pair][tensor];
      }
    }
    if (present == 0) return {};
    HeatCell cell{.kind = HeatCell::Kind::kChanged, .of = present};
    if (unread == present) {
      cell.kind = HeatCell::Kind::kNotRead;
    } else if (!std::isfinite(change) || !std::isfinite(norm)) {
      cell.kind = HeatCell::Kind::kNotFinite;
    } else if (change == 0) {
      // Of a part that was not read nobody knows whether it changed by more than nothing.
      cell.kind = unread > 0   ? HeatCell::Kind::kNotRead
                  : same_bytes ? HeatCell::Kind::kUnchanged
                               : HeatCell::Kind::kSameNumbers;
    } else if (norm == 0) {
      cell.kind = HeatCell::Kind::kFromZero;
    } else {
      cell.value = RelativeChange(change, norm);
    }
    // What did not change and has no known norm would only make the ratio smaller.
    if (cell.kind == HeatCell::Kind::kChanged) cell.left_out = unread + unknown;
    return cell;
  }

  void FillCells() {
    if (inventory_.steps().size() < 2) return;
    std::vector<size_t> all(inventory_.tensors().size());
    for (size_t i = 0; i < all.size(); ++i) all[i] = i;
    if (all.empty()) return;
    Rows rows = GroupTensors(inventory_, all, limits_.rows_max);
    for (const std::vector<size_t>& tensors : rows.tensors) {
      for (size_t pair = 0; pair < changes_.size(); ++pair) survey_.cells.push_back(CellOf(tensors, pair));
    }
    survey_.rows = std::move(rows.labels);
  }

  const StoreReader& reader_;
  const SurveyLimits limits_;
  Console& console_;
  ProgressLine* line_ = nullptr;
  TensorInventory inventory_;
  std::set<size_t> steps_read_;                    // of which some tensor was read
  std::vector<std::vector<long double>> norms_;    // by step, then by tensor: sums of squares, or kUnknown
  std::vector<std::vector<long double>> changes_;  // by pair, then by tensor: those of the change, or kUnknown
  ReportSurvey survey_;
};

// "; not shown in full: ..."; empty where nothing is.
std::string NotShownText(const std::vector<std::string>& not_shown) {
  return not_shown.empty() ? "" : fmt::format("; not shown in full: {}", fmt::join(not_shown, ", "));
}

}  // namespace

std::string ProblemText(const ReadProblem& problem) {
  return fmt::format("step {}: {}{}", problem.step, problem.what, NotShownText(problem.not_shown));
}

std::string PassedOverText(const PassedOverStep& passed_over) {
  return fmt::format("step {} was {} while this page was made, and is left out{}", passed_over.step,
                     passed_over.saved_anew ? "saved anew" : "deleted", NotShownText(passed_over.not_shown));
}

bool ReportSurvey::damaged() const {
  return std::any_of(problems.begin(), problems.end(), [](const ReadProblem& problem) { return problem.damaged; });
}

bool ReportSurvey::failed() const {
  return std::any_of(problems.begin(), problems.end(), [](const ReadProblem& problem) { return problem.failed; });
}

absl::StatusOr<ReportSurvey> SurveySteps(const StoreReader& reader, std::span<const int64_t> steps,
                                         const SurveyLimits& limits, Console& console) {
  return Surveyor(reader, limits, console).Run(steps);
}

void PassOverStepsTakenAway(const StoreReader& then, const StoreReader& now, ReportSurvey* survey) {
  // Without a journal, a step that cannot be found may be one whose index is damaged.
  if (!now.journal_problem().ok()) return;
  std::erase_if(survey->problems, [&](const ReadProblem& problem) {
    if (problem.failed) return false;
    const absl::StatusOr<StepInfo> before = then.FindStep(problem.step);
    const absl::StatusOr<StepInfo> after = now.FindStep(problem.step);
    const bool deleted = absl::IsNotFound(after.status()) || (after.ok() && after->state == StepState::kDeleted);
    const bool saved_anew = !deleted && before.ok() && after.ok() && before->attempt != after->attempt;
    if (deleted || saved_anew) survey->passed_over.push_back({problem.step, saved_anew, problem.not_shown});
    return deleted || saved_anew;
  });
}

}  // namespace tidemark::inspect
