#include "tools/checkpoint_inspect/cli/request.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>

#include "absl/time/clock.h"
#include "fmt/format.h"
#include "storage/io/file_system.h"
#include "storage/io/link_free_path.h"
#include "storage/retention/retention.h"
#include "storage/store/step_changes.h"
#include "storage/store/store.h"
#include "storage/store/store_journal.h"
#include "tools/checkpoint_inspect/checks/store_holder.h"
#include "tools/checkpoint_inspect/checks/store_owner.h"
#include "tools/checkpoint_inspect/cli/interrupt.h"
#include "tools/checkpoint_inspect/commands/steps.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {
namespace {

// A look at the journal costs a system call; a try of the lock reads store.json and syncs folders.
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
  if (reader.journal_problem().ok()) return absl::OkStatus();
  return absl::DataLossError(fmt::format(
      "nothing was changed, because the journal cannot be read: {}; run repair first", Text(reader.journal_problem())));
}

// What makes a pin or tag as it was asked.
absl::StatusOr<storage::Facts> FactsOf(const storage::StepCatalog& catalog, const Request& request) {
  switch (request.kind) {
    case Request::Kind::kPin:
      return storage::PinFacts(catalog, request.step, request.text, request.attempt);
    case Request::Kind::kUnpin:
      return storage::UnpinFacts(catalog, request.step, request.attempt);
    case Request::Kind::kTag:
      return storage::TagFacts(catalog, request.step, request.text, request.attempt,
                               request.moves ? storage::TakenTag::kMove : storage::TakenTag::kRefuse);
    case Request::Kind::kUntag:
      return storage::UntagFacts(catalog, request.step, request.text, request.attempt);
    case Request::Kind::kDelete:
      break;
  }
  return absl::InternalError("a deletion is no fact of a pin");
}

// The error is of the request, and another one may fare better.
bool IsRefusal(const absl::Status& status) {
  return absl::IsNotFound(status) || absl::IsOutOfRange(status) || absl::IsAlreadyExists(status);
}

// What is asked in one call.
class Asking {
 public:
  Asking(const Invocation& invocation, const std::vector<Request>& requests)
      : console_(invocation.console),
        directory_(storage::FollowLinks(invocation.directory)),
        store_id_{*storage::FromHex(invocation.reader.store_id())},
        layout_(directory_),
        requests_(requests),
        answers_(requests.size()) {}

  absl::StatusOr<std::vector<Answer>> Run(absl::Duration wait) {
    absl::StatusOr<std::unique_ptr<storage::StoreJournal>> journal = storage::StoreJournal::Open(
        storage::PosixFileSystem(), layout_, store_id_,
        {.appends = true, .collects_news = true, .warn = [this](std::string_view line) { console_.Warn(line); }});
    if (!journal.ok()) return journal.status();
    journal_ = *std::move(journal);
    std::vector<size_t> pins;
    for (size_t i = 0; i < requests_.size(); ++i) {
      (requests_[i].kind == Request::Kind::kDelete ? deletions_ : pins).push_back(i);
    }
    if (absl::Status status = ChangePins(pins); !status.ok()) return status;
    if (deletions_.empty()) return answers_;
    absl::Status status = Delete();
    if (absl::IsUnavailable(status)) status = AskHolder(wait);
    if (!status.ok()) return status;
    return answers_;
  }

 private:
  // All in one entry. If one is refused, nothing is changed: a tag that cannot be moved stays where it is.
  absl::Status ChangePins(const std::vector<size_t>& pins) {
    if (pins.empty()) return absl::OkStatus();
    return journal_->Change([&](const storage::StepCatalog& catalog) -> absl::StatusOr<storage::Facts> {
      storage::Facts facts;
      for (const size_t i : pins) {
        absl::StatusOr<storage::Facts> of_one = FactsOf(catalog, requests_[i]);
        if (IsRefusal(of_one.status())) {
          RefusePins(pins, i, Text(of_one.status()));
          return storage::Facts();
        }
        if (!of_one.ok()) return of_one.status();
        answers_[i] = {};
        facts.insert(facts.end(), of_one->begin(), of_one->end());
      }
      return facts;
    });
  }

  // Because the request at `refused` is.
  void RefusePins(const std::vector<size_t>& pins, size_t refused, const std::string& why) {
    for (const size_t i : pins) {
      answers_[i] = {.outcome = Answer::Outcome::kRefused,
                     .reason = i == refused ? why : fmt::format("step {} is refused", requests_[refused].step)};
    }
  }

  // kUnavailable: another process holds the store. `asked`: requests of this process, which are answered as well.
  absl::Status Delete(const std::map<size_t, std::string>& asked = {}) {
    absl::StatusOr<std::unique_ptr<storage::Store>> store = OpenStore(console_, directory_);
    if (!store.ok()) return store.status();
    storage::Retention retention(storage::PosixFileSystem(), **store, {},
                                 [this](std::string_view line) { console_.Warn(line); });
    std::vector<size_t> left;
    for (const size_t i : deletions_) {
      const absl::StatusOr<bool> is_deleted = IsDeleted((*store)->catalog(), requests_[i]);
      if (!is_deleted.ok()) return is_deleted.status();
      answers_[i] = {};
      if (!*is_deleted) left.push_back(i);
    }
    for (bool more = !left.empty(); more;) {
      std::vector<storage::Retention::Unwanted> unwanted;
      for (const size_t i : left) {
        unwanted.push_back({.step = requests_[i].step, .attempt = requests_[i].attempt, .reason = requests_[i].text});
      }
      const absl::StatusOr<storage::Retention::DeleteResult> result = retention.LetGo(unwanted, {});
      if (!result.ok()) return result.status();
      std::vector<size_t> still;
      for (size_t place = 0; place < left.size(); ++place) {
        Answer& answer = answers_[left[place]];
        if (const auto why = result->kept.find(place); why != result->kept.end()) {
          answer = {.outcome = Answer::Outcome::kRefused, .reason = why->second};
        } else if (!result->deleted.contains(place)) {
          still.push_back(left[place]);
        }
      }
      more = result->more && still.size() < left.size();
      left = std::move(still);
    }
    for (const size_t i : left) answers_[i] = {.outcome = Answer::Outcome::kRefused, .reason = "it has changed since"};
    std::vector<storage::AnswerFact> facts;
    for (const auto& [i, id] : asked) facts.push_back({.id = id, .refused = answers_[i].reason});
    if (absl::Status status = (*store)->Answer(facts); !status.ok()) return status;
    return RemoveFiles(retention);
  }

  static absl::StatusOr<bool> IsDeleted(const storage::StepCatalog& catalog, const Request& request) {
    return storage::IsDeleted(catalog, request.step, storage::ToHex(request.attempt.bytes));
  }

  absl::Status AskHolder(absl::Duration wait) {
    std::string holder = StoreHolder(directory_);
    if (holder.empty()) holder = "the process that holds the store";
    console_.Note(fmt::format("asking {} to do it", holder));
    std::map<size_t, std::string> ids;
    absl::Status status = AppendRequests(&ids);
    bool is_done = false;
    if (status.ok()) status = Await(ids, wait, &is_done);
    if (!status.ok()) return Withdraw(ids, status);
    for (const auto& [i, id] : ids) {
      if (is_done) break;
      if (status = Judge(i, id, holder); !status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // `ids`: of what is asked, by the place of the request; after an error also of what may be.
  absl::Status AppendRequests(std::map<size_t, std::string>* ids) {
    char host[256] = "unknown";
    gethostname(host, sizeof(host) - 1);
    const std::string asker = fmt::format("pid {} on {}, user {}", getpid(), host, ThisUser());
    for (const size_t i : deletions_) {
      const storage::DeletionRequestFact request{.id = storage::ToHex(storage::RandomBytes16()),
                                                 .step = requests_[i].step,
                                                 .attempt = storage::ToHex(requests_[i].attempt.bytes),
                                                 .reason = requests_[i].text,
                                                 .asker = asker,
                                                 .asked = absl::Now()};
      absl::Status refused;
      const absl::Status status =
          journal_->Change([&](const storage::StepCatalog& catalog) -> absl::StatusOr<storage::Facts> {
            absl::StatusOr<storage::Facts> facts = storage::DeletionRequestFacts(catalog, request);
            refused = IsRefusal(facts.status()) ? facts.status() : absl::OkStatus();
            if (!refused.ok()) return storage::Facts();
            return facts;
          });
      if (status.ok() && !refused.ok()) {
        answers_[i] = {.outcome = Answer::Outcome::kRefused, .reason = Text(refused)};
        continue;
      }
      if (status.ok() || absl::IsUnknown(status)) ids->emplace(i, request.id);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  // Until all requests are answered, or the time is over. Tries the lock now and then, because the holder may end:
  // `*is_done` if this process has done it then. kCancelled: interrupted.
  absl::Status Await(const std::map<size_t, std::string>& ids, absl::Duration wait, bool* is_done) {
    const absl::Time deadline = absl::Now() + wait;
    absl::Time next_try = absl::Now() + kLockInterval;
    for (;;) {
      if (IsInterrupted()) return absl::CancelledError("interrupted");
      if (absl::Status status = journal_->Look().status(); !status.ok()) return status;
      Hear();
      const absl::StatusOr<bool> waiting = AnyIsOpen(ids);
      if (!waiting.ok()) return waiting.status();
      const absl::Time now = absl::Now();
      if (!*waiting || now >= deadline) return absl::OkStatus();
      if (now >= next_try) {
        const absl::Status done = Delete(ids);
        *is_done = done.ok();
        if (!absl::IsUnavailable(done)) return done;
        next_try = now + kLockInterval;
      }
      absl::SleepFor(std::min(kLookInterval, deadline - now));
    }
  }

  // Keeps the answers that the journal has got since.
  void Hear() {
    for (const storage::Fact& fact : journal_->TakeNews()) {
      if (const auto* answer = std::get_if<storage::AnswerFact>(&fact)) refusals_[answer->id] = answer->refused;
    }
  }

  // After an error: answers the requests that are open, so that the holder does not carry them out. Returns `why`, with
  // what has become of them.
  absl::Status Withdraw(const std::map<size_t, std::string>& ids, const absl::Status& why) {
    if (ids.empty()) return why;
    std::vector<int64_t> steps;
    for (const auto& [i, id] : ids) steps.push_back(requests_[i].step);
    const absl::Status withdrawn =
        journal_->Change([&](const storage::StepCatalog& catalog) -> absl::StatusOr<storage::Facts> {
          const absl::StatusOr<std::vector<storage::DeletionRequestFact>> open = catalog.Requests();
          if (!open.ok()) return open.status();
          storage::Facts facts;
          for (const storage::DeletionRequestFact& request : *open) {
            const bool is_ours =
                std::any_of(ids.begin(), ids.end(), [&](const auto& asked) { return asked.second == request.id; });
            if (is_ours) facts.push_back(storage::AnswerFact{.id = request.id, .refused = "withdrawn"});
          }
          return facts;
        });
    std::string then = "requests that the trainer has not answered yet are withdrawn";
    if (!withdrawn.ok()) {
      then = fmt::format("the requests to delete {} stay in the journal, and the trainer may carry them out: {}",
                         StepsText(steps), Text(withdrawn));
    }
    return absl::Status(why.code(), fmt::format("{}; {}", Text(why), then));
  }

  absl::StatusOr<bool> IsOpen(const std::string& id) const {
    const absl::StatusOr<std::vector<storage::DeletionRequestFact>> open = journal_->catalog().Requests();
    if (!open.ok()) return open.status();
    return std::any_of(open->begin(), open->end(),
                       [&](const storage::DeletionRequestFact& request) { return request.id == id; });
  }

  absl::StatusOr<bool> AnyIsOpen(const std::map<size_t, std::string>& ids) const {
    for (const auto& [i, id] : ids) {
      const absl::StatusOr<bool> open = IsOpen(id);
      if (!open.ok() || *open) return open;
    }
    return false;
  }

  // By the record of the step, and by the answer in the journal.
  absl::Status Judge(size_t i, const std::string& id, const std::string& holder) {
    const absl::StatusOr<bool> is_deleted = IsDeleted(journal_->catalog(), requests_[i]);
    if (!is_deleted.ok()) return is_deleted.status();
    const absl::StatusOr<bool> is_open = IsOpen(id);
    if (!is_open.ok()) return is_open.status();
    const auto refusal = refusals_.find(id);
    if (*is_deleted || (refusal != refusals_.end() && refusal->second.empty())) {
      answers_[i] = {};
    } else if (*is_open) {
      answers_[i] = {.outcome = Answer::Outcome::kHandedOver, .reason = "not answered yet; the request stays"};
    } else if (refusal != refusals_.end()) {
      answers_[i] = {.outcome = Answer::Outcome::kRefused,
                     .reason = fmt::format("{} refused: {}", holder, refusal->second)};
    } else {
      answers_[i] = {.outcome = Answer::Outcome::kRefused, .reason = "its answer is lost: the journal was made anew"};
    }
    return absl::OkStatus();
  }

  Console& console_;
  const std::string directory_;
  const storage::StoreId store_id_;
  const storage::StoreLayout layout_;
  const std::vector<Request>& requests_;
  std::vector<Answer> answers_;
  std::vector<size_t> deletions_;  // places of requests
  std::unique_ptr<storage::StoreJournal> journal_;
  std::map<std::string, std::string> refusals_;  // by the id of a request; empty: it was carried out
};

absl::Duration CheckWait(double seconds) {
  // Said so that it is false of a NaN, too.
  if (!(seconds >= 0 && seconds <= kWaitSecondsMax)) {
    throw CLI::ValidationError(fmt::format("--wait: {} is not in [0, {}]", seconds, kWaitSecondsMax));
  }
  return absl::Seconds(seconds);
}

// What has been done where it has.
std::string DeedText(const Request& request) {
  switch (request.kind) {
    case Request::Kind::kPin:
      return request.text.empty() ? "pinned" : fmt::format("pinned ({})", Escape(request.text));
    case Request::Kind::kUnpin:
      return "unpinned";
    case Request::Kind::kDelete:
      return "deleted";
    case Request::Kind::kTag:
      return "tagged " + request.text;
    case Request::Kind::kUntag:
      return "untagged " + request.text;
  }
  return "";
}

// `done`: what to say where it has been; empty: by its kind.
std::string AnswerText(const Console& console, const Request& request, const Answer& answer, const std::string& done) {
  const std::string deed = DeedText(request);
  if (answer.outcome == Answer::Outcome::kDone) {
    return fmt::format("step {}: {}\n", request.step, console.Paint(done.empty() ? deed : done, Colour::kGood));
  }
  return fmt::format("step {}: {}: {}\n", request.step, console.Paint("not " + deed, Colour::kWarning),
                     Escape(answer.reason));
}

}  // namespace

std::string_view RequestKindName(Request::Kind kind) {
  constexpr std::string_view kNames[] = {"pin", "unpin", "delete", "tag", "untag"};
  return kNames[static_cast<size_t>(kind)];
}

Request NewRequest(Request::Kind kind, const StepInfo& info, std::string text) {
  return {.kind = kind,
          .step = info.step,
          .attempt = storage::AttemptId{*storage::FromHex(info.attempt)},
          .text = std::move(text)};
}

absl::StatusOr<std::vector<Answer>> Ask(const Invocation& invocation, const std::vector<Request>& requests,
                                        absl::Duration wait) {
  if (absl::Status readable = CheckReadable(invocation.reader); !readable.ok()) return readable;
  if (absl::Status ours = CheckOwner(storage::FollowLinks(invocation.directory)); !ours.ok()) return ours;
  CatchInterrupts();
  absl::StatusOr<std::vector<Answer>> answers = Asking(invocation, requests).Run(wait);
  if (!answers.ok()) return answers;
  if (absl::Status status = RefreshStore(invocation.reader); !status.ok()) return status;
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

Json ToJson(const Request& request, const Answer& answer) {
  constexpr std::string_view kNames[] = {"done", "refused", "handed_over"};
  return {{"request", RequestKindName(request.kind)},
          {"step", request.step},
          {"attempt", storage::ToHex(request.attempt.bytes)},
          {"outcome", kNames[static_cast<size_t>(answer.outcome)]},
          {"reason", answer.reason}};
}

ExitCode AskAndPrint(const Invocation& invocation, const std::vector<Request>& requests, Json document,
                     const std::vector<std::string>& deeds) {
  Console& console = invocation.console;
  const absl::StatusOr<std::vector<Answer>> answers = Ask(invocation, requests, absl::ZeroDuration());
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
  return command
      ->add_option_function<double>(
          "--wait", [&wait](const double& seconds) { wait = CheckWait(seconds); },
          "Wait at most this long for the trainer that holds the store; by default 5")
      ->type_name("SECONDS");
}

void AcceptWait(CLI::App* command) {
  command->add_option_function<double>("--wait", [](const double& seconds) { CheckWait(seconds); })->group("");
}

}  // namespace tidemark::inspect
