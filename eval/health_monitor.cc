#include "tidemark/health_monitor.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <exception>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/synchronization/mutex.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "snapshot/glob.h"
#include "snapshot/numbers/float_arrays.h"

namespace tidemark {
namespace {

// Entries that a reason names.
constexpr size_t kNamedMax = 5;
constexpr int64_t kWindowMin = 8;
// Healthy snapshots of which the norms are known: so far a run may go back and still be held against what it goes back
// to.
constexpr size_t kNormsKept = 8;
// A metric that hardly moves, such as the norm of clipped gradients, is held against this part of its mean where its
// standard deviation is less.
constexpr long double kSpreadMin = 0.01;

// Entries with metrics of their own, and how long their names may be: a report of them all, every byte of the names
// escaped, stays within what the store takes.
constexpr size_t kPerEntryMax = 64;
constexpr size_t kPerEntryNameBytesMax = 1024;

struct EntryHealth {
  std::string name;
  uint64_t nan = 0;
  uint64_t inf = 0;
  double norm = 0;  // of what is finite
};

// What one snapshot looks like by itself.
struct SnapshotHealth {
  std::vector<EntryHealth> entries;
  uint64_t nan = 0;
  uint64_t inf = 0;
  double norm = 0;
};

// The norm that belongs to a sum of squares. One beyond the doubles is the largest of these: what is finite has a
// finite norm.
double NormOf(long double squares) {
  return static_cast<double>(
      std::min(std::sqrt(squares), static_cast<long double>(std::numeric_limits<double>::max())));
}

bool MatchesAny(const std::vector<std::string>& patterns, const std::string& name) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&](const std::string& pattern) { return GlobMatches(pattern, name); });
}

SnapshotHealth Examine(const Snapshot& snapshot, const std::vector<std::string>& patterns) {
  SnapshotHealth health;
  absl::flat_hash_set<const std::byte*> seen;  // tied entries count once
  absl::flat_hash_map<std::string_view, size_t> places;
  long double squares = 0;
  for (size_t i = 0; i < snapshot.entries().size(); ++i) {
    const EntrySpec& spec = snapshot.entries()[i];
    const FloatLayout layout = FloatLayoutOf(spec.dtype);
    if (spec.kind != EntryKind::kTensor || layout.width == FloatLayout::Width::kNone) continue;
    const bool wanted = patterns.empty() || MatchesAny(patterns, spec.name);
    const std::span<const std::byte> bytes = snapshot.bytes(i);
    if (!wanted || bytes.empty() || !seen.insert(bytes.data()).second) continue;
    const FloatSummary summary =
        Summarize(layout.number, bytes.data(), bytes.size() / GetDtypeInfo(layout.number).element_bytes);
    // Boxes of one tensor count as one entry.
    const auto [place, is_new] = places.emplace(spec.name, health.entries.size());
    if (is_new) health.entries.push_back({.name = spec.name});
    EntryHealth& entry = health.entries[place->second];
    entry.nan += summary.nan;
    entry.inf += summary.inf;
    entry.norm = is_new ? NormOf(summary.squares) : std::hypot(entry.norm, NormOf(summary.squares));
    health.nan += summary.nan;
    health.inf += summary.inf;
    squares += summary.squares;
  }
  health.norm = NormOf(squares);
  return health;
}

// "'a' (3 NaN), 'b' (1 Inf) and 7 more"
std::string NameSome(const std::vector<std::string>& items) {
  const size_t named = std::min(items.size(), kNamedMax);
  std::string text = fmt::format("{}", fmt::join(items.begin(), items.begin() + static_cast<ptrdiff_t>(named), ", "));
  if (named < items.size()) text += fmt::format(" and {} more", items.size() - named);
  return text;
}

// What `call` threw; empty if it returned.
template <typename Call>
std::string WhatThrew(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return fmt::format("'{}'", error.what());
  } catch (...) {
    return "something other than a std::exception";
  }
  return "";
}

// Empty if there are none. The entries with the most come first.
std::string DescribeNotFinite(const SnapshotHealth& health) {
  if (health.nan + health.inf == 0) return "";
  std::vector<const EntryHealth*> worst;
  for (const EntryHealth& entry : health.entries) {
    if (entry.nan + entry.inf > 0) worst.push_back(&entry);
  }
  std::stable_sort(worst.begin(), worst.end(),
                   [](const EntryHealth* a, const EntryHealth* b) { return a->nan + a->inf > b->nan + b->inf; });
  std::vector<std::string> items;
  for (const EntryHealth* entry : worst) {
    items.push_back(fmt::format("'{}' ({} NaN, {} infinite)", entry->name, entry->nan, entry->inf));
  }
  return fmt::format("{} NaN and {} infinite: {}", health.nan, health.inf, NameSome(items));
}

absl::Status Validate(const HealthOptions& options) {
  if (options.name.empty() || options.name.size() > 256 || options.name.find('/') != std::string::npos) {
    return absl::InvalidArgumentError(
        fmt::format("name: expected 1 to 256 bytes without '/', found '{}'", options.name));
  }
  if (std::any_of(options.per_entry.begin(), options.per_entry.end(), [](const auto& text) { return text.empty(); })) {
    return absl::InvalidArgumentError("per_entry: expected patterns of entries' names, found an empty one");
  }
  if (!(options.norm_jump_max > 1)) {
    return absl::InvalidArgumentError(
        fmt::format("norm_jump_max: expected more than 1, found {}", options.norm_jump_max));
  }
  if (!(options.loss_deviations_max > 0)) {
    return absl::InvalidArgumentError(
        fmt::format("loss_deviations_max: expected more than 0, found {}", options.loss_deviations_max));
  }
  if (options.loss_variance_jump_max != 0 && !(options.loss_variance_jump_max > 1)) {
    return absl::InvalidArgumentError(
        fmt::format("loss_variance_jump_max: expected more than 1, or 0, found {}", options.loss_variance_jump_max));
  }
  if (options.loss_window < kWindowMin) {
    return absl::InvalidArgumentError(
        fmt::format("loss_window: expected {} or more, found {}", kWindowMin, options.loss_window));
  }
  return absl::OkStatus();
}

}  // namespace

// How one metric stands to what it was. Has linkage because HealthMonitor::Impl, which holds some, has it.
class MetricHistory {
 public:
  MetricHistory(std::string name, double deviations_max, int64_t window)
      : name_(std::move(name)), deviations_max_(deviations_max), window_(static_cast<size_t>(window)) {}

  bool watched() const { return !name_.empty(); }
  void Clear() { values_.clear(); }
  // Of this step and of later ones.
  void ForgetFrom(int64_t step) {
    while (!values_.empty() && values_.back().step >= step) values_.pop_back();
  }

  // Distance from the mean in standard deviations; nothing where the snapshot does not have the metric, or too little
  // is known. `*problem` is set where that is too far.
  std::optional<double> Judge(const Metrics& metrics, std::string* problem) const {
    const auto found = metrics.find(name_);
    if (!watched() || found == metrics.end()) return std::nullopt;
    const double value = found->second;
    if (!std::isfinite(value)) {
      *problem = fmt::format("{} is {}", name_, value);
      return std::numeric_limits<double>::infinity();
    }
    if (values_.size() * 2 < window_) return std::nullopt;
    const Distribution known = DistributionOf(values_.begin(), values_.end());
    if (!(known.spread > 0)) return std::nullopt;
    const auto deviation = static_cast<double>(std::abs(value - known.mean) / known.spread);
    if (deviation > deviations_max_) {
      *problem = fmt::format("{} is {}, {:.1f} standard deviations from {:.6g}, the mean of the last {} healthy ones",
                             name_, value, deviation, static_cast<double>(known.mean), values_.size());
    }
    return deviation;
  }

  // The variance of the newer half of the window divided by that of the older half; nullopt before the window is full.
  std::optional<double> VarianceJump() const {
    if (values_.size() < window_) return std::nullopt;
    const auto middle = values_.begin() + static_cast<ptrdiff_t>(values_.size() / 2);
    const long double older = DistributionOf(values_.begin(), middle).spread;
    const long double newer = DistributionOf(middle, values_.end()).spread;
    if (!(older > 0)) return std::nullopt;
    return static_cast<double>((newer / older) * (newer / older));
  }

  // Steps ascend.
  void Add(int64_t step, const Metrics& metrics) {
    const auto found = metrics.find(name_);
    if (!watched() || found == metrics.end()) return;
    values_.push_back({step, found->second});
    if (values_.size() > window_) values_.pop_front();
  }

 private:
  struct Value {
    int64_t step;
    double value;
  };
  struct Distribution {  // the squares of doubles need not be doubles
    long double mean;
    long double spread;  // the standard deviation, or kSpreadMin of the mean if that is more
  };
  using Iterator = std::deque<Value>::const_iterator;

  static Distribution DistributionOf(Iterator begin, Iterator end) {
    const auto count = static_cast<long double>(end - begin);
    long double sum = 0;
    for (Iterator known = begin; known != end; ++known) sum += known->value;
    const long double mean = sum / count;
    long double squares = 0;
    for (Iterator known = begin; known != end; ++known) squares += (known->value - mean) * (known->value - mean);
    return {.mean = mean, .spread = std::max(std::sqrt(squares / count), kSpreadMin * std::abs(mean))};
  }

  const std::string name_;
  const double deviations_max_;
  const size_t window_;
  std::deque<Value> values_;
};

struct HealthMonitor::Impl {
  explicit Impl(HealthOptions given)
      : options(std::move(given)),
        loss(options.loss_metric, options.loss_deviations_max, options.loss_window),
        gradient_norm(options.gradient_norm_metric, options.loss_deviations_max, options.loss_window) {}

  Verdict Evaluate(const Snapshot& snapshot) {
    SnapshotHealth health = Examine(snapshot, options.entries);
    Verdict verdict;
    std::optional<Divergence> found;
    {
      absl::MutexLock lock(&mutex);
      ForgetFrom(snapshot.step());
      verdict = Judge(snapshot, health);
      if (verdict.unhealthy.empty()) {
        const bool was_erratic = IsErratic();
        Remember(snapshot, health);
        if (const auto jump = VarianceJump()) verdict.metrics["loss_variance_jump"] = *jump;
        if (IsErratic() && !was_erratic) {
          found = Divergence{snapshot.step(), DescribeVarianceJump(), Remediation::kSaveMoreOften};
        }
      } else {
        found = Divergence{snapshot.step(), verdict.unhealthy, Remediation::kRollBack};
      }
      if (found && (!divergence || found->remediation < divergence->remediation)) divergence = found;
    }
    if (!found || !options.on_divergence) return verdict;
    if (verdict.unhealthy.empty()) {
      options.on_divergence(*found);
      return verdict;
    }
    const std::string threw = WhatThrew([&] { options.on_divergence(*found); });
    if (!threw.empty()) verdict.unhealthy += "; on_divergence threw " + threw;
    return verdict;
  }

  std::optional<double> VarianceJump() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return options.loss_variance_jump_max > 0 ? loss.VarianceJump() : std::nullopt;
  }

  bool IsErratic() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return VarianceJump().value_or(0) > options.loss_variance_jump_max;
  }

  std::string DescribeVarianceJump() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    return fmt::format("the variance of {} over the last {} healthy steps is {:.3g} times that of the {} before",
                       options.loss_metric, options.loss_window - options.loss_window / 2, VarianceJump().value_or(0),
                       options.loss_window / 2);
  }

  Verdict Judge(const Snapshot& snapshot, const SnapshotHealth& health) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    Verdict verdict;
    verdict.metrics = {
        {"nan", static_cast<double>(health.nan)}, {"inf", static_cast<double>(health.inf)}, {"norm", health.norm}};
    std::vector<std::string> problems;
    if (std::string problem = DescribeNotFinite(health); !problem.empty()) problems.push_back(std::move(problem));
    JudgeJumps(health, verdict, problems);
    AddPerEntry(health, verdict.metrics);
    std::string problem;
    if (const auto deviation = loss.Judge(snapshot.metrics(), &problem)) {
      verdict.metrics["loss_deviation"] = *deviation;
    }
    if (!problem.empty()) problems.push_back(std::exchange(problem, {}));
    if (const auto deviation = gradient_norm.Judge(snapshot.metrics(), &problem)) {
      verdict.metrics["gradient_norm_deviation"] = *deviation;
    }
    if (!problem.empty()) problems.push_back(std::move(problem));
    verdict.unhealthy = fmt::format("{}", fmt::join(problems, "; "));
    return verdict;
  }

  // In the last healthy snapshot; nothing where the entry was not there, or 0.
  std::optional<double> NormBefore(const EntryHealth& entry) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    if (healthy.empty()) return std::nullopt;
    const auto before = healthy.back().norms.find(entry.name);
    if (before == healthy.back().norms.end() || before->second == 0) return std::nullopt;
    return before->second;
  }

  static double JumpFrom(double before, const EntryHealth& entry) {
    return std::max(entry.norm / before, before / entry.norm);
  }

  void AddPerEntry(const SnapshotHealth& health, Metrics& metrics) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    size_t added = 0;
    size_t left_out = 0;
    for (const EntryHealth& entry : health.entries) {
      if (!MatchesAny(options.per_entry, entry.name)) continue;
      if (added == kPerEntryMax || entry.name.size() > kPerEntryNameBytesMax) {
        ++left_out;
        continue;
      }
      ++added;
      metrics["norm/" + entry.name] = entry.norm;
      if (const auto before = NormBefore(entry)) metrics["norm_jump/" + entry.name] = JumpFrom(*before, entry);
    }
    if (left_out > 0) metrics["per_entry_left_out"] = static_cast<double>(left_out);
  }

  void JudgeJumps(const SnapshotHealth& health, Verdict& verdict, std::vector<std::string>& problems) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    struct Jump {
      double ratio;
      const EntryHealth* entry;
      double before;
    };
    std::vector<Jump> jumps;
    for (const EntryHealth& entry : health.entries) {
      if (const auto before = NormBefore(entry)) jumps.push_back({JumpFrom(*before, entry), &entry, *before});
    }
    if (jumps.empty()) return;
    std::stable_sort(jumps.begin(), jumps.end(), [](const Jump& a, const Jump& b) { return a.ratio > b.ratio; });
    verdict.metrics["norm_jump"] = jumps.front().ratio;
    std::vector<std::string> items;
    for (const Jump& jump : jumps) {
      if (jump.ratio <= options.norm_jump_max) break;
      items.push_back(fmt::format("'{}' from {:.6g} to {:.6g}", jump.entry->name, jump.before, jump.entry->norm));
    }
    if (!items.empty()) problems.push_back("norms jumped: " + NameSome(items));
  }

  void Remember(const Snapshot& snapshot, SnapshotHealth& health) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    HealthySnapshot& last = healthy.emplace_back();
    last.step = snapshot.step();
    for (EntryHealth& entry : health.entries) last.norms.emplace(std::move(entry.name), entry.norm);
    if (healthy.size() > kNormsKept) healthy.pop_front();
    loss.Add(snapshot.step(), snapshot.metrics());
    gradient_norm.Add(snapshot.step(), snapshot.metrics());
  }

  // Where the trainer went back, what it left behind there says nothing of what it does now. What it went back to does:
  // without it the same divergence would look like a beginning the second time.
  void ForgetFrom(int64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    while (!healthy.empty() && healthy.back().step >= step) healthy.pop_back();
    loss.ForgetFrom(step);
    gradient_norm.ForgetFrom(step);
    if (divergence && divergence->step >= step) divergence.reset();
  }

  void Forget() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    healthy.clear();
    loss.Clear();
    gradient_norm.Clear();
    divergence.reset();
  }

  struct HealthySnapshot {
    int64_t step = 0;
    absl::flat_hash_map<std::string, double> norms;
  };

  const HealthOptions options;

  absl::Mutex mutex;
  std::deque<HealthySnapshot> healthy ABSL_GUARDED_BY(mutex);  // the last ones, ascending by step
  MetricHistory loss ABSL_GUARDED_BY(mutex);
  MetricHistory gradient_norm ABSL_GUARDED_BY(mutex);
  std::optional<Divergence> divergence ABSL_GUARDED_BY(mutex);  // the first of the most severe not taken yet
};

HealthMonitor::HealthMonitor(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
HealthMonitor::~HealthMonitor() = default;

absl::StatusOr<std::unique_ptr<HealthMonitor>> HealthMonitor::Create(HealthOptions options) {
  if (absl::Status status = Validate(options); !status.ok()) return status;
  return std::unique_ptr<HealthMonitor>(new HealthMonitor(std::make_shared<Impl>(std::move(options))));
}

EvaluatorOptions HealthMonitor::evaluator_options() const {
  EvaluatorOptions options;
  options.name = impl_->options.name;
  options.when_lagging = WhenLagging::kQueue;
  options.entries = impl_->options.entries;
  return options;
}

EvaluatorFunction HealthMonitor::function() {
  return [impl = impl_](const Snapshot& snapshot) -> absl::StatusOr<Verdict> { return impl->Evaluate(snapshot); };
}

std::optional<Divergence> HealthMonitor::TakeDivergence() {
  absl::MutexLock lock(&impl_->mutex);
  return std::exchange(impl_->divergence, std::nullopt);
}

void HealthMonitor::Reset() {
  absl::MutexLock lock(&impl_->mutex);
  impl_->Forget();
}

}  // namespace tidemark
