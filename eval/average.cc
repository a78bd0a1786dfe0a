#include "tidemark/average.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "eval/average_state.h"
#include "fmt/format.h"
#include "snapshot/glob.h"
#include "snapshot/numbers/float_arrays.h"
#include "snapshot/staging/copy_pool.h"

namespace tidemark {
namespace {

constexpr size_t kNameBytesMax = 256;
// Memory's bandwidth, not the arithmetic, is what there is to share.
constexpr unsigned kThreadsMax = 4;
// Bytes of a snapshot that one thread takes in at a time.
constexpr size_t kPieceBytes = 1 << 20;
// Numbers that are decoded before they are taken in: their decoded form stays in the first cache.
constexpr size_t kDecodedBlock = 2048;
constexpr int64_t kWindowMax = 1 << 16;

absl::Status Validate(const AverageOptions::Adaptive& adaptive) {
  if (adaptive.window < 2 || adaptive.window > kWindowMax) {
    return absl::InvalidArgumentError(
        fmt::format("adaptive.window: expected 2 to {}, found {}", kWindowMax, adaptive.window));
  }
  if (adaptive.every_steps_min < 1) {
    return absl::InvalidArgumentError(
        fmt::format("adaptive.every_steps_min: expected 1 or more, found {}", adaptive.every_steps_min));
  }
  if (adaptive.every_steps_max < adaptive.every_steps_min) {
    return absl::InvalidArgumentError(
        fmt::format("adaptive.every_steps_max: expected every_steps_min ({}) or more, found {}",
                    adaptive.every_steps_min, adaptive.every_steps_max));
  }
  if (!(adaptive.noise_max > 0)) {
    return absl::InvalidArgumentError(
        fmt::format("adaptive.noise_max: expected more than 0, found {}", adaptive.noise_max));
  }
  return absl::OkStatus();
}

absl::Status Validate(const AverageOptions& options) {
  if (options.name.empty() || options.name.size() > kNameBytesMax ||
      options.name.find_first_of(".*?\n") != std::string::npos) {
    return absl::InvalidArgumentError(fmt::format(
        "name: expected 1 to {} bytes without '.', '*', '?' and line ends, found '{}'", kNameBytesMax, options.name));
  }
  if (options.entries.empty()) return absl::InvalidArgumentError("entries: expected one pattern or more");
  if (!(options.decay >= 0 && options.decay < 1)) {
    return absl::InvalidArgumentError(
        fmt::format("decay: expected 0 or more and less than 1, found {}", options.decay));
  }
  if (options.begin_step < 0) {
    return absl::InvalidArgumentError(fmt::format("begin_step: expected 0 or more, found {}", options.begin_step));
  }
  if (options.every_steps < 1) {
    return absl::InvalidArgumentError(fmt::format("every_steps: expected 1 or more, found {}", options.every_steps));
  }
  return options.adaptive ? Validate(*options.adaptive) : absl::OkStatus();
}

// The dtype of the average of tensors of a dtype.
Dtype AverageDtype(Dtype dtype) {
  const FloatLayout layout = FloatLayoutOf(dtype);
  if (layout.width != FloatLayout::Width::kNarrow) return dtype;
  return layout.numbers == 2 ? Dtype::kComplex64 : Dtype::kFloat32;
}

// A tensor of a snapshot that has an average.
struct Source {
  size_t entry;           // in the snapshot
  EntrySpec spec;         // of the average
  int64_t alias_of = -1;  // index of an earlier source with the same bytes
};

// What one thread takes in at a time.
struct Piece {
  Dtype number;  // of the values
  const std::byte* values;
  std::byte* average;
  size_t count;
};

void TakeInPiece(const Piece& piece, double weight, bool is_first) {
  const FloatLayout::Width width = FloatLayoutOf(piece.number).width;
  auto* average = reinterpret_cast<float*>(piece.average);
  if (width == FloatLayout::Width::kNarrow) {
    const size_t number_bytes = GetDtypeInfo(piece.number).element_bytes;
    float decoded[kDecodedBlock];
    for (size_t begin = 0; begin < piece.count; begin += kDecodedBlock) {
      const size_t count = std::min(kDecodedBlock, piece.count - begin);
      const std::byte* values = piece.values + begin * number_bytes;
      if (is_first) {
        DecodeFloats(piece.number, values, count, average + begin);
      } else {
        DecodeFloats(piece.number, values, count, decoded);
        MoveTowards(average + begin, decoded, count, static_cast<float>(weight));
      }
    }
  } else if (is_first || width == FloatLayout::Width::kNone) {
    std::memcpy(piece.average, piece.values, piece.count * GetDtypeInfo(piece.number).element_bytes);
  } else if (width == FloatLayout::Width::kDouble) {
    MoveTowards(reinterpret_cast<double*>(piece.average), reinterpret_cast<const double*>(piece.values), piece.count,
                weight);
  } else {
    MoveTowards(average, reinterpret_cast<const float*>(piece.values), piece.count, static_cast<float>(weight));
  }
}

// The values of the metric that an adaptive period depends on, in memory that is saved with the average:
// [step taken in last, how many values there were, the last `window` of them as a ring].
class MetricWindow {
 public:
  static int64_t NumbersFor(int64_t window) { return window + 2; }
  explicit MetricWindow(std::span<double> numbers) : numbers_(numbers), ring_(numbers.subspan(2)) {}

  // Doubles are exact up to 2^53; a later step is rounded, and the period with it.
  int64_t taken_step() const { return static_cast<int64_t>(numbers_[0]); }
  void set_taken_step(int64_t step) { numbers_[0] = static_cast<double>(step); }

  void Add(double value) {
    ring_[Place(Count())] = value;
    numbers_[1] += 1;
  }

  // The formula of AverageOptions::Adaptive.
  int64_t Period(const AverageOptions::Adaptive& adaptive) const {
    const size_t values = std::min(Count(), ring_.size());
    if (values < 2) return adaptive.every_steps_min;
    const size_t first = Count() - values;
    double sum = ring_[Place(first)];
    double squares = 0;
    for (size_t i = first + 1; i < Count(); ++i) {
      const double difference = ring_[Place(i)] - ring_[Place(i - 1)];
      sum += ring_[Place(i)];
      squares += difference * difference;
    }
    const double mean = std::abs(sum / static_cast<double>(values));
    const double noise = std::sqrt(squares / static_cast<double>(values - 1) / 2) / mean;
    // Not a number, or beyond all: the mean is 0, or the squares are infinite.
    const double share = noise < adaptive.noise_max ? noise / adaptive.noise_max : 1;
    const auto range = static_cast<double>(adaptive.every_steps_max - adaptive.every_steps_min);
    return adaptive.every_steps_max - static_cast<int64_t>(std::ceil(range * share));
  }

 private:
  size_t Count() const { return static_cast<size_t>(numbers_[1]); }
  size_t Place(size_t i) const { return i % ring_.size(); }

  const std::span<double> numbers_;
  const std::span<double> ring_;
};

class Average final : public Companion {
 public:
  explicit Average(AverageOptions options)
      : options_(std::move(options)), adaptive_name_(options_.name + ".adaptive"), state_(options_.name) {}

  const std::string& prefix() const override { return options_.name; }
  absl::Status Update(const Snapshot& snapshot) override;
  State& state() override { return state_; }
  void Reset() override {
    state_.set_snapshots(0);
    state_.set_last_step(std::nullopt);
    state_.SetTensors({});
    seen_step_.reset();
  }

 private:
  absl::StatusOr<std::vector<Source>> FindSources(const Snapshot& snapshot) const;
  absl::Status MakeTensors(const std::vector<Source>& sources);
  // The index of each source's tensor in the state; an error if these sources are not the ones averaged so far.
  absl::StatusOr<std::vector<size_t>> Bind(const std::vector<Source>& sources);
  void TakeIn(const Snapshot& snapshot, const std::vector<Source>& sources, const std::vector<size_t>& tensors);
  // Whether an adaptive period lets the snapshot be taken in. Adds its metric to the window.
  absl::StatusOr<bool> IsDue(const Snapshot& snapshot);

  const AverageOptions options_;
  const std::string adaptive_name_;  // of the entry with the window
  AverageState state_;
  std::optional<int64_t> seen_step_;  // whose metric was added last
  std::optional<CopyPool> pool_;      // made by the first Update, so that its threads have that thread's niceness
};

absl::StatusOr<std::vector<Source>> Average::FindSources(const Snapshot& snapshot) const {
  std::vector<Source> sources;
  std::vector<bool> fits(options_.entries.size(), false);
  absl::flat_hash_map<const std::byte*, size_t> by_bytes;
  absl::flat_hash_set<std::string> names;
  for (size_t i = 0; i < snapshot.entries().size(); ++i) {
    EntrySpec spec = snapshot.entries()[i];
    bool wanted = false;
    for (size_t pattern = 0; pattern < fits.size(); ++pattern) {
      if (!GlobMatches(options_.entries[pattern], spec.name)) continue;
      wanted = fits[pattern] = true;
    }
    if (!wanted || spec.kind != EntryKind::kTensor) continue;
    if (!names.insert(spec.name).second) {
      return absl::InvalidArgumentError(fmt::format(
          "'{}' is saved in several boxes, which an average does not support: choose entries without it", spec.name));
    }
    const std::span<const std::byte> bytes = snapshot.bytes(i);
    spec.name = options_.name + "." + spec.name;
    spec.dtype = AverageDtype(spec.dtype);
    if (spec.name == state_.snapshots_name() || spec.name == adaptive_name_) {
      return absl::InvalidArgumentError(
          fmt::format("the entry's name '{}' is reserved for {}", snapshot.entries()[i].name,
                      spec.name == adaptive_name_ ? "the adaptive period" : "the count of snapshots"));
    }
    Source source{.entry = i, .spec = std::move(spec)};
    if (!bytes.empty()) {
      const auto [first, is_first] = by_bytes.emplace(bytes.data(), sources.size());
      // Bytes that are shared under another dtype or shape get an average of their own.
      if (!is_first && sources[first->second].spec.dtype == source.spec.dtype &&
          sources[first->second].spec.shape == source.spec.shape) {
        source.alias_of = static_cast<int64_t>(first->second);
      }
    }
    sources.push_back(std::move(source));
  }
  for (size_t pattern = 0; pattern < fits.size(); ++pattern) {
    if (fits[pattern]) continue;
    return absl::InvalidArgumentError(fmt::format("the pattern '{}' matches no entry", options_.entries[pattern]));
  }
  if (sources.empty()) return absl::InvalidArgumentError("the patterns match no tensor");
  return sources;
}

absl::Status ChangedError(std::string_view what) {
  return absl::FailedPreconditionError(
      fmt::format("{}, so this snapshot does not fit the average; Companion::Reset starts the average afresh", what));
}

absl::Status Average::MakeTensors(const std::vector<Source>& sources) {
  std::vector<AverageState::Tensor> tensors;
  tensors.reserve(sources.size());
  for (const Source& source : sources) {
    absl::StatusOr<AverageState::Tensor> tensor = AverageState::MakeTensor(source.spec, source.alias_of);
    if (!tensor.ok()) return tensor.status();
    tensors.push_back(*std::move(tensor));
  }
  state_.SetTensors(std::move(tensors));
  return absl::OkStatus();
}

absl::StatusOr<std::vector<size_t>> Average::Bind(const std::vector<Source>& sources) {
  absl::flat_hash_map<std::string_view, size_t> by_name;
  for (size_t i = 0; i < state_.tensors().size(); ++i) by_name.emplace(state_.tensors()[i].spec.name, i);
  by_name.erase(adaptive_name_);
  std::vector<size_t> tensors;
  tensors.reserve(sources.size());
  absl::flat_hash_map<size_t, std::string_view> taken;  // owners of memory, and whose average it is
  for (const Source& source : sources) {
    const auto found = by_name.find(source.spec.name);
    if (found == by_name.end()) return ChangedError(fmt::format("'{}' has come", source.spec.name));
    const size_t tensor = found->second;
    by_name.erase(found);
    tensors.push_back(tensor);
    if (const EntrySpec& spec = state_.tensors()[tensor].spec; spec != source.spec) {
      return ChangedError(
          fmt::format("'{}' was {} and would be {}", spec.name, DescribeEntry(spec), DescribeEntry(source.spec)));
    }
    if (source.alias_of < 0) {
      const auto [other, is_first] = taken.emplace(state_.owner(tensor), source.spec.name);
      if (is_first) continue;
      return ChangedError(fmt::format("'{}' is no longer tied to '{}'", source.spec.name, other->second));
    }
    // What was restored knows no ties.
    const auto first = static_cast<size_t>(source.alias_of);
    if (!state_.Tie(tensor, tensors[first])) {
      return ChangedError(fmt::format("'{}' has been tied to '{}'", source.spec.name, sources[first].spec.name));
    }
  }
  if (!by_name.empty()) return ChangedError(fmt::format("'{}' has gone", by_name.begin()->first));
  return tensors;
}

absl::StatusOr<bool> Average::IsDue(const Snapshot& snapshot) {
  if (!options_.adaptive) {
    state_.Drop(adaptive_name_);  // of a step that was saved with it
    return true;
  }
  const absl::StatusOr<std::span<double>> numbers =
      state_.Numbers(adaptive_name_, MetricWindow::NumbersFor(options_.adaptive->window));
  if (!numbers.ok()) return numbers.status();
  MetricWindow window(*numbers);
  // A step whose save failed comes again, and must get the same answer.
  if (snapshot.step() != seen_step_) {
    const auto metric = snapshot.metrics().find(options_.adaptive->metric);
    if (metric != snapshot.metrics().end() && std::isfinite(metric->second)) window.Add(metric->second);
    seen_step_ = snapshot.step();
  }
  const int64_t since = snapshot.step() - window.taken_step();
  if (state_.snapshots() > 0 && since >= 0 && since < window.Period(*options_.adaptive)) return false;
  window.set_taken_step(snapshot.step());
  return true;
}

absl::Status Average::Update(const Snapshot& snapshot) {
  if (snapshot.step() < options_.begin_step || snapshot.step() % options_.every_steps != 0) return absl::OkStatus();
  absl::StatusOr<std::vector<Source>> sources = FindSources(snapshot);
  if (!sources.ok()) return sources.status();
  if (state_.snapshots() == 0) {
    if (absl::Status status = MakeTensors(*sources); !status.ok()) return status;
  }
  const absl::StatusOr<bool> due = IsDue(snapshot);  // before Bind, whose indices it may change
  if (!due.ok() || !*due) return due.status();
  absl::StatusOr<std::vector<size_t>> tensors = Bind(*sources);
  if (!tensors.ok()) return tensors.status();
  // The save of the step failed after it was taken in here, and is repeated.
  if (snapshot.step() == state_.last_step()) return absl::OkStatus();
  TakeIn(snapshot, *sources, *tensors);
  state_.set_snapshots(state_.snapshots() + 1);
  state_.set_last_step(snapshot.step());
  return absl::OkStatus();
}

void Average::TakeIn(const Snapshot& snapshot, const std::vector<Source>& sources, const std::vector<size_t>& tensors) {
  if (!pool_) pool_.emplace(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, kThreadsMax)));
  std::vector<Piece> pieces;
  for (size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].alias_of >= 0) continue;
    const Dtype dtype = snapshot.entries()[sources[i].entry].dtype;
    const FloatLayout layout = FloatLayoutOf(dtype);
    const std::span<const std::byte> bytes = snapshot.bytes(sources[i].entry);
    const Dtype number = layout.width == FloatLayout::Width::kNone ? dtype : layout.number;
    const size_t number_bytes = GetDtypeInfo(number).element_bytes;
    const size_t average_bytes = GetDtypeInfo(AverageDtype(number)).element_bytes;
    const size_t numbers = bytes.size() / number_bytes;
    const size_t numbers_max = kPieceBytes / number_bytes;
    for (size_t begin = 0; begin < numbers; begin += numbers_max) {
      pieces.push_back({.number = number,
                        .values = bytes.data() + begin * number_bytes,
                        .average = state_.data(tensors[i]) + begin * average_bytes,
                        .count = std::min(numbers_max, numbers - begin)});
    }
  }
  const double weight = options_.kind == AverageOptions::Kind::kExponential
                            ? 1 - options_.decay
                            : 1 / static_cast<double>(state_.snapshots() + 1);
  const bool is_first = state_.snapshots() == 0;
  pool_->Run(pieces.size(), [&](size_t i) { TakeInPiece(pieces[i], weight, is_first); });
}

}  // namespace

absl::StatusOr<std::shared_ptr<Companion>> MakeAverage(AverageOptions options) {
  if (absl::Status status = Validate(options); !status.ok()) return status;
  return std::make_shared<Average>(std::move(options));
}

}  // namespace tidemark
