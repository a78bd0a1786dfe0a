#include "tools/checkpoint_inspect/cli/request.h"

#include <unistd.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "storage/io/file_system.h"
#include "storage/io/link_free_path.h"
#include "storage/manifest/request_inbox.h"
#include "storage/manifest/retention.h"
#include "storage/manifest/store.h"
#include "storage/records/tag.h"
#include "tools/checkpoint_inspect/checks/store_holder.h"
#include "tools/checkpoint_inspect/checks/store_owner.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

using storage::StoreRequest;

// A look at the inbox costs a system call for each request; a try of the lock reads store.json and syncs folders.
constexpr absl::Duration kLookInterval = absl::Milliseconds(20);
constexpr absl::Duration kLockInterval = absl::Milliseconds(500);

constexpr double kWaitSecondsMax = 86400;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// kUnavailable: another process holds the store.
absl::StatusOr<std::unique_ptr<storage::Store>> OpenStore(Console& console, const std::string& directory) {
  return storage::Store::Open(storage::PosixFileSystem(),
                              {.directory = directory,
                               .warn = [&console](std::string_view line) { console.Warn(line); },
                               .note = [&console](std::string_view line) { console.Note(line); },
                               .read = {.codec_threads = 2, .io = storage::IoQueueKind::kAuto, .io_depth = 8}});
}

// Of what was deleted. `retention` has no rule.
absl::Status RemoveFiles(storage::Retention& retention) {
  do {
    if (absl::StatusOr<std::vector<RetentionDecision>> applied = retention.Apply({}); !applied.ok()) {
      return applied.status();
    }
  } while (retention.unfinished());
  return absl::OkStatus();
}

absl::Status CheckReadable(const StoreReader& reader) {
  if (reader.manifest_problem().ok()) return absl::OkStatus();
  return absl::DataLossError(
      fmt::format("nothing was changed, because the manifest cannot be read: {}; run repair first",
                  Text(reader.manifest_problem())));
}

// Carries out the requests in the inbox, and those in `own`, which are not in it. Returns an answer for each of `own`.
// kUnavailable: another process holds the store.
absl::StatusOr<std::vector<Answer>> TakeIn(Console& console, const std::string& directory,
                                           const std::vector<StoreRequest>& own) {
  storage::FileSystem& files = storage::PosixFileSystem();
  const auto warn = [&console](std::string_view line) { console.Warn(line); };
  absl::StatusOr<std::unique_ptr<storage::Store>> store = OpenStore(console, directory);
  if (!store.ok()) return store.status();
  storage::Retention retention(files, **store, {}, warn);
  std::vector<Answer> answers(own.size(),
                              {.outcome = Answer::Outcome::kRefused, .reason = "the step's pin cannot be read"});
  std::vector<size_t> places(own.size());  // of those that are left
  std::iota(places.begin(), places.end(), size_t{0});
  std::set<std::string> warned;
  absl::Status error;
  for (;;) {
    std::vector<StoreRequest> left;
    for (const size_t place : places) left.push_back(own[place]);
    storage::RequestsTaken taken =
        storage::TakeInRequests(files, **store, retention, {.own = left, .warn = warn, .warned = &warned});
    std::vector<size_t> still;
    for (size_t i = 0; i < places.size(); ++i) {
      if (taken.own_done.contains(i)) {
        answers[places[i]] = {};
      } else if (const auto why = taken.own_refused.find(i); why != taken.own_refused.end()) {
        answers[places[i]].reason = why->second;
      } else {
        still.push_back(places[i]);
      }
    }
    const bool moved = still.size() < places.size() || !taken.done.empty() || taken.refused > 0;
    places = std::move(still);
    error = taken.error;
    if (!error.ok() || !moved) break;
  }
  // Without a rule it removes the files of what was deleted, and nothing else. Also after an error, which may be for
  // want of the room that this makes.
  if (absl::Status removed = RemoveFiles(retention); !removed.ok()) return removed;
  if (error.ok()) return answers;
  if (own.empty() || !places.empty()) return error;
  console.Warn(fmt::format("requests of other processes could not all be carried out: {}", Text(error)));
  return answers;
}

// The files of requests that have been delivered and not taken in.
class Delivered {
 public:
  explicit Delivered(storage::FileSystem& files) : files_(files) {}

  absl::Status Add(const storage::StoreLayout& layout, const StoreRequest& request) {
    absl::StatusOr<std::string> path = DeliverRequest(files_, layout, request);
    if (path.ok()) paths_.push_back(*std::move(path));
    return path.status();
  }

  absl::StatusOr<bool> IsWaiting(size_t request) const {
    absl::StatusOr<storage::FileType> type = files_.TypeOf(paths_[request]);
    if (absl::IsNotFound(type.status())) return false;
    if (!type.ok()) return type.status();
    return true;
  }

  absl::StatusOr<bool> AnyIsWaiting() const {
    for (size_t i = 0; i < paths_.size(); ++i) {
      absl::StatusOr<bool> waiting = IsWaiting(i);
      if (!waiting.ok() || *waiting) return waiting;
    }
    return false;
  }

  void Withdraw() {
    for (const std::string& path : paths_) files_.RemoveFile(path).IgnoreError();
  }

 private:
  storage::FileSystem& files_;
  std::vector<std::string> paths_;  // in the order of the requests
};

// Until no request is in the inbox any more, or the time is over. Tries the lock now and then, for whoever holds it may
// let go, or be nobody who looks into the inbox.
absl::Status Await(Console& console, const std::string& directory, const Delivered& delivered, absl::Duration wait) {
  const absl::Time deadline = absl::Now() + wait;
  absl::Time next_try = absl::Now() + kLockInterval;
  for (;;) {
    if (IsInterrupted())
      return absl::CancelledError("interrupted; requests that the trainer has not read yet are withdrawn");
    absl::StatusOr<bool> waiting = delivered.AnyIsWaiting();
    if (!waiting.ok()) return waiting.status();
    const absl::Time now = absl::Now();
    if (!*waiting || now >= deadline) return absl::OkStatus();
    if (now >= next_try) {
      const absl::Status taken = TakeIn(console, directory, /*own=*/{}).status();
      if (!absl::IsUnavailable(taken)) return taken;
      next_try = now + kLockInterval;
    }
    absl::SleepFor(std::min(kLookInterval, deadline - now));
  }
}

// By what the store says of the step once the request is gone. `holder`: the process that took it in, or empty.
Answer Judge(const StoreReader& reader, const StoreRequest& request, const std::string& holder) {
  const absl::StatusOr<StepInfo> info = reader.FindStep(request.step);
  const auto refused = [&](const std::string& why) {
    return Answer{.outcome = Answer::Outcome::kRefused,
                  .reason = holder.empty() ? why : fmt::format("{} refused: {}", holder, why)};
  };
  if (!info.ok()) return refused(Text(info.status()));
  if (info->attempt != storage::ToHex(request.attempt.bytes)) return refused("another save has replaced it since");
  bool done = false;
  switch (request.kind) {
    case StoreRequest::Kind::kPin:
      done = info->pinned;
      break;
    case StoreRequest::Kind::kUnpin:
      done = !info->pinned;
      break;
    case StoreRequest::Kind::kDelete:
      done = info->state == StepState::kDeleted;
      break;
    case StoreRequest::Kind::kTag:
      done = storage::HasTag(info->tags, request.text);
      break;
    case StoreRequest::Kind::kUntag:
      done = !storage::HasTag(info->tags, request.text);
      break;
  }
  if (done) return {};
  if (info->state != StepState::kCommitted) return refused(fmt::format("it is {}", StepStateName(info->state)));
  if (request.kind == StoreRequest::Kind::kDelete && !info->kept.empty()) return refused(info->kept);
  if (request.kind == StoreRequest::Kind::kTag && info->tags.size() >= storage::kTagsPerStepMax) {
    return refused(fmt::format("it has {} tags, the maximum", info->tags.size()));
  }
  return refused("its log says why");
}

// Of each request whether it is in the inbox still, or gone.
absl::StatusOr<std::vector<Answer>> HandOver(const Invocation& invocation, const std::string& directory,
                                             const std::vector<StoreRequest>& requests, absl::Duration wait) {
  Delivered delivered(storage::PosixFileSystem());
  absl::Status status;
  for (const StoreRequest& request : requests) {
    status = delivered.Add(storage::StoreLayout(directory), request);
    if (!status.ok()) break;
  }
  if (status.ok()) status = Await(invocation.console, directory, delivered, wait);
  if (!status.ok()) {
    delivered.Withdraw();
    return status;
  }
  // Asked before the record is: what is gone then is in there.
  std::vector<Answer> answers(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    absl::StatusOr<bool> waiting = delivered.IsWaiting(i);
    if (!waiting.ok()) return waiting.status();
    if (!*waiting) continue;
    answers[i] = {.outcome = Answer::Outcome::kHandedOver, .reason = "not read yet; the request waits in inbox/"};
  }
  return answers;
}

// What has been done where it has.
std::string DeedText(const StoreRequest& request) {
  switch (request.kind) {
    case StoreRequest::Kind::kPin:
      return request.text.empty() ? "pinned" : fmt::format("pinned ({})", Escape(request.text));
    case StoreRequest::Kind::kUnpin:
      return "unpinned";
    case StoreRequest::Kind::kDelete:
      return "deleted";
    case StoreRequest::Kind::kTag:
      return "tagged " + request.text;
    case StoreRequest::Kind::kUntag:
      return "untagged " + request.text;
  }
  return "";
}

// `done`: what to say where it has been; empty: by its kind.
std::string AnswerText(const Console& console, const StoreRequest& request, const Answer& answer,
                       const std::string& done) {
  const std::string deed = DeedText(request);
  if (answer.outcome == Answer::Outcome::kDone) {
    return fmt::format("step {}: {}\n", request.step, console.Paint(done.empty() ? deed : done, Colour::kGood));
  }
  return fmt::format("step {}: {}: {}\n", request.step, console.Paint("not " + deed, Colour::kWarning),
                     Escape(answer.reason));
}

}  // namespace

StoreRequest NewRequest(const StoreReader& reader, StoreRequest::Kind kind, const StepInfo& info, std::string text) {
  char host[256] = "unknown";
  gethostname(host, sizeof(host) - 1);
  return {.kind = kind,
          .store = storage::StoreId{*storage::FromHex(reader.store_id())},
          .step = info.step,
          .attempt = storage::AttemptId{*storage::FromHex(info.attempt)},
          .text = std::move(text),
          .asker = fmt::format("pid {} on {}, user {}", getpid(), host, ThisUser()),
          .asked = absl::Now()};
}

absl::StatusOr<std::vector<Answer>> Ask(const Invocation& invocation, const std::vector<StoreRequest>& requests,
                                        absl::Duration wait) {
  StoreReader& reader = invocation.reader;
  if (absl::Status readable = CheckReadable(reader); !readable.ok()) return readable;
  // Also those that no file could hold, so that it is the same whoever holds the store.
  for (const StoreRequest& request : requests) {
    if (absl::Status status = EncodeStoreRequest(request).status(); !status.ok()) return status;
  }
  const std::string directory = storage::FollowLinks(invocation.directory);
  if (absl::Status ours = CheckOwner(directory); !ours.ok()) return ours;
  CatchInterrupts();
  absl::StatusOr<std::vector<Answer>> answers = TakeIn(invocation.console, directory, requests);
  std::string holder;
  if (absl::IsUnavailable(answers.status())) {
    holder = StoreHolder(directory);
    if (holder.empty()) holder = "the process that holds the store";
    invocation.console.Note(fmt::format("asking {} to do it", holder));
    answers = HandOver(invocation, directory, requests, wait);
  }
  if (!answers.ok()) return answers;
  if (absl::Status status = RefreshStore(reader); !status.ok()) return status;
  for (size_t i = 0; i < requests.size(); ++i) {
    if ((*answers)[i].outcome == Answer::Outcome::kDone) (*answers)[i] = Judge(reader, requests[i], holder);
  }
  return answers;
}

absl::Status DiscardAfter(const Invocation& invocation, int64_t after, const std::string& reason) {
  StoreReader& reader = invocation.reader;
  if (absl::Status readable = CheckReadable(reader); !readable.ok()) return readable;
  const std::string directory = storage::FollowLinks(invocation.directory);
  if (absl::Status ours = CheckOwner(directory); !ours.ok()) return ours;
  Console& console = invocation.console;
  absl::StatusOr<std::unique_ptr<storage::Store>> store = OpenStore(console, directory);
  if (absl::IsUnavailable(store.status())) {
    std::string holder = StoreHolder(directory);
    if (holder.empty()) holder = "another process";
    return absl::UnavailableError(
        fmt::format("{} holds the store; call AsyncCheckpointer::DiscardAfter there, or end it first", holder));
  }
  if (!store.ok()) return store.status();
  storage::Retention retention(storage::PosixFileSystem(), **store, {},
                               [&console](std::string_view line) { console.Warn(line); });
  storage::Retention::Discarded discarded;
  retention.DiscardAfter(after, reason, /*claims=*/{}, &discarded);
  if (!discarded.error.ok()) {
    if (discarded.deleted.empty()) return discarded.error;
    return absl::Status(discarded.error.code(),
                        fmt::format("{} steps were deleted, down to step {}; then: {}", discarded.deleted.size(),
                                    discarded.deleted.back(), Text(discarded.error)));
  }
  if (absl::Status removed = RemoveFiles(retention); !removed.ok()) return removed;
  store->reset();
  return RefreshStore(reader);
}

ExitCode AnswersExitCode(const std::vector<Answer>& answers) {
  const auto any = [&](Answer::Outcome outcome) {
    return std::any_of(answers.begin(), answers.end(), [&](const Answer& a) { return a.outcome == outcome; });
  };
  if (any(Answer::Outcome::kRefused)) return ExitCode::kFailure;
  return any(Answer::Outcome::kHandedOver) ? ExitCode::kLocked : ExitCode::kOk;
}

Json ToJson(const StoreRequest& request, const Answer& answer) {
  constexpr std::string_view kNames[] = {"done", "refused", "handed_over"};
  return {{"request", RequestKindName(request.kind)},
          {"step", request.step},
          {"attempt", storage::ToHex(request.attempt.bytes)},
          {"outcome", kNames[static_cast<size_t>(answer.outcome)]},
          {"reason", answer.reason}};
}

ExitCode AskAndPrint(const Invocation& invocation, const std::vector<StoreRequest>& requests, absl::Duration wait,
                     Json document, const std::vector<std::string>& deeds) {
  Console& console = invocation.console;
  const absl::StatusOr<std::vector<Answer>> answers = Ask(invocation, requests, wait);
  if (!answers.ok()) {
    console.Fail(answers.status());
    return WriteExitCode(answers.status());
  }
  document["requests"] = Json::array();
  std::string lines;
  for (size_t i = 0; i < requests.size(); ++i) {
    document["requests"].push_back(ToJson(requests[i], (*answers)[i]));
    lines += AnswerText(console, requests[i], (*answers)[i], deeds.empty() ? "" : deeds[i]);
  }
  console.PrintData(invocation.json ? Dump(document) : lines);
  return AnswersExitCode(*answers);
}

CLI::Option* AddWait(CLI::App* command, absl::Duration& wait) {
  const auto set = [&wait](const double& seconds) {
    // Said so that it is false of a NaN, too.
    if (!(seconds >= 0 && seconds <= kWaitSecondsMax)) {
      throw CLI::ValidationError(fmt::format("--wait: {} is not in [0, {}]", seconds, kWaitSecondsMax));
    }
    wait = absl::Seconds(seconds);
  };
  return command
      ->add_option_function<double>("--wait", set,
                                    "Wait at most this long for the trainer that holds the store; by default 5")
      ->type_name("SECONDS");
}

}  // namespace tidemark::inspect
