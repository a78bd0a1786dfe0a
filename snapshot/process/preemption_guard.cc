#include "tidemark/preemption_guard.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "snapshot/checkpointer_impl.h"
#include "snapshot/deadline.h"
#include "snapshot/guarded.h"
#include "snapshot/process/termination_signal.h"
#include "snapshot/ranks/rank_exchange.h"
#include "snapshot/saves/save_request.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/byte_writer.h"
#include "storage/io/exception_status.h"

namespace tidemark {
namespace {

std::atomic<bool> guard_is_installed = false;  // one that listens to signals

// Of the time before the deadline evaluators do not get this much, nor the wait for room: it is for the save and for
// releasing the store, and for the process to end.
constexpr absl::Duration kMarginMax = absl::Seconds(1);
constexpr int kMarginOfGrace = 10;  // nor more than this part of the grace

constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

int64_t MonotonicNs() { return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Gives the other ranks the time that this one has, kNone if it is not preempted. Returns the least that a rank has.
absl::StatusOr<int64_t> LeastTimeLeft(RankExchange& exchange, std::string_view call, int64_t own_ns) {
  storage::ByteWriter writer;
  writer.Put<int64_t>(own_ns);
  const absl::StatusOr<std::vector<std::string>> given = exchange.Gather(call, writer.view());
  if (!given.ok()) return given.status();
  int64_t least = kNone;
  for (const std::string& bytes : *given) {
    storage::ByteReader reader(storage::AsBytes(bytes), "a rank's time that is left");
    least = std::min(least, reader.Get<int64_t>("nanoseconds"));
    if (!reader.ok()) return reader.status();
  }
  return least;
}

// The first one's code, and what all of them say.
absl::Status Both(const absl::Status& first, const absl::Status& second) {
  if (first.ok() || second.ok()) return first.ok() ? second : first;
  return absl::Status(first.code(), fmt::format("{}; {}", std::string(first.message()), std::string(second.message())));
}

// Everything that has failed and that nobody has looked at.
absl::Status TakeFailures(AsyncCheckpointer& checkpointer) {
  absl::Status all;
  for (absl::Status next = checkpointer.CheckForErrors(); !next.ok(); next = checkpointer.CheckForErrors()) {
    all = Both(all, next);
  }
  return all;
}

}  // namespace

std::string PreemptionReport::Describe() const {
  std::string line = fmt::format("preempted: step {} is {}", step, committed() ? "committed" : "not committed: ");
  if (!committed()) line += std::string(save.message());
  if (!close.ok()) line += fmt::format("; {}", std::string(close.message()));
  return line;
}

PreemptionGuard::PreemptionGuard(PreemptionOptions options, std::unique_ptr<TerminationSignal> asked)
    : options_(std::move(options)), asked_(std::move(asked)), end_of_job_ns_(kNone) {}

absl::StatusOr<std::unique_ptr<PreemptionGuard>> PreemptionGuard::Install(PreemptionOptions options) {
  bool installs = false;
  absl::StatusOr<std::unique_ptr<PreemptionGuard>> guard =
      Guarded("Install", [&]() -> absl::StatusOr<std::unique_ptr<PreemptionGuard>> {
        if (options.grace < absl::ZeroDuration()) {
          return absl::InvalidArgumentError(
              fmt::format("PreemptionOptions::grace is {}: 0 or more", absl::FormatDuration(options.grace)));
        }
        installs = !options.signals.empty() && !guard_is_installed.exchange(true);
        if (!installs && !options.signals.empty()) {
          return absl::FailedPreconditionError("a preemption guard is already installed in this process");
        }
        absl::StatusOr<std::unique_ptr<TerminationSignal>> asked = TerminationSignal::Install(options.signals);
        if (!asked.ok()) return asked.status();
        return std::unique_ptr<PreemptionGuard>(new PreemptionGuard(std::move(options), *std::move(asked)));
      });
  if (installs && !guard.ok()) guard_is_installed = false;
  return guard;
}

PreemptionGuard::~PreemptionGuard() {
  if (!options_.signals.empty()) guard_is_installed = false;
}

bool PreemptionGuard::preempted() const {
  if (asked_->received() || end_of_job_ns_ != kNone) return true;
  return options_.end != absl::InfiniteFuture() && absl::Now() >= options_.end - options_.grace;
}

bool PreemptionGuard::PreemptedOnAnyRank(AsyncCheckpointer& checkpointer) {
  AsyncCheckpointer::Impl& impl = *checkpointer.impl_;
  if (end_of_job_ns_ != kNone || !impl.CheckOpen().ok() || impl.exchange == nullptr || impl.OnOwnThread()) {
    return preempted();
  }
  const auto own_ns = [&]() -> int64_t {
    // A century is as good as no deadline.
    constexpr absl::Duration kCentury = absl::Hours(24 * 365 * 100);
    if (!preempted()) return kNone;
    return absl::ToInt64Nanoseconds(std::clamp(deadline() - absl::Now(), -kCentury, kCentury));
  };
  const absl::StatusOr<int64_t> least_ns = Guarded("PreemptedOnAnyRank", [&]() -> absl::StatusOr<int64_t> {
    absl::StatusOr<int64_t> least = LeastTimeLeft(*impl.exchange, "PreemptedOnAnyRank", own_ns());
    if (!least.ok() || *least == kNone) return least;
    // Once more: a rank that has waited for another one has less time by now than it has told.
    return LeastTimeLeft(*impl.exchange, "PreemptedOnAnyRank (the time)", own_ns());
  });
  if (!least_ns.ok()) {
    storage::BestEffort([&] { impl.WarnOfLostExchange(least_ns.status()); });
    return preempted();
  }
  if (*least_ns != kNone) end_of_job_ns_ = MonotonicNs() + *least_ns;
  return *least_ns != kNone;
}

absl::Time PreemptionGuard::deadline() const {
  if (!preempted()) return absl::InfiniteFuture();
  absl::Time by = options_.end;
  if (const std::optional<absl::Time> asked = asked_->received_at()) by = std::min(by, *asked + options_.grace);
  const int64_t end_of_job_ns = end_of_job_ns_;
  if (end_of_job_ns == kNone) return by;
  return std::min(by, absl::Now() + absl::Nanoseconds(end_of_job_ns - MonotonicNs()));
}

PreemptionReport PreemptionGuard::SaveAndClose(AsyncCheckpointer& checkpointer, int64_t step, State& state,
                                               SaveOptions options) {
  const absl::Time by = deadline();
  const Deadline released = Deadline::At(by);
  const Deadline drained = released.Before(std::min(kMarginMax, options_.grace / kMarginOfGrace));
  if (!options.staging) options.staging = Staging::kBlocking;
  PreemptionReport report{.step = step};
  if (absl::Status forked = checkpointer.impl_->process.Check(); !forked.ok()) {
    report.save = report.close = forked;
    return report;
  }
  if (checkpointer.impl_->ranked_attempts != nullptr) checkpointer.impl_->ranked_attempts->EndWithin(drained.left());
  const SaveRequest request = SaveRequest::Of(std::move(options));
  absl::Status earlier;
  const auto save_now = [&] { return checkpointer.impl_->Save(&drained, step, state, request); };
  // False: its fate is not known by the deadline. Close knows what was in the way then.
  const auto wait_for = [&](const Future& committed) {
    committed.WaitUntil(released.as_time()).IgnoreError();
    if (committed.ready()) {
      report.save = committed.Wait();
      return true;
    }
    report.save = absl::DeadlineExceededError(
        fmt::format("step {} was not committed by {}", step, absl::FormatTime(by, absl::UTCTimeZone())));
    return false;
  };
  const absl::Status saved = Guarded("SaveAndClose", [&] {
    earlier = TakeFailures(checkpointer);
    if (checkpointer.impl_->CheckOpen().ok()) checkpointer.impl_->persister->Hurry();
    // A step that is being saved is saved anew only if that fails. Nothing is told to other ranks before.
    if (!request.overwrite && checkpointer.impl_->open_saves.IsInFlight(step)) {
      if (!wait_for(checkpointer.Committed(step)) || report.save.ok()) return;
    }
    absl::StatusOr<SaveHandle> save = save_now();
    if (save.ok()) {
      wait_for(save->committed());
    } else {
      report.save = absl::IsAlreadyExists(save.status()) ? absl::OkStatus() : save.status();
    }
  });
  // Without memory for the save the checkpointer closes all the same.
  if (!saved.ok()) report.save = saved;
  report.close = Guarded("SaveAndClose", [&] { return checkpointer.impl_->Close(drained, released); });
  // What both say is left out where there is no memory for it.
  storage::BestEffort([&] { report.close = Both(report.close, earlier); });
  if (report.close.ok()) report.close = earlier;
  return report;
}

}  // namespace tidemark
