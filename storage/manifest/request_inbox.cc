#include "storage/manifest/request_inbox.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "fmt/format.h"
#include "fmt/ranges.h"
#include "storage/io/printable_text.h"
#include "storage/manifest/inbox_files.h"
#include "storage/manifest/manifest.h"
#include "storage/manifest/quarantine.h"
#include "storage/manifest/report_files.h"

namespace tidemark::storage {
namespace {

// In a warning.
constexpr size_t kNamedSteps = 20;

struct Waiting {
  std::string file;  // its name in inbox/
  StoreRequest request;
  std::optional<size_t> own;  // its place among the caller's own, which have no file
};

// One look at the inbox.
class Taking {
 public:
  Taking(FileSystem& files, Store& store, Retention& retention, const TakeRequestsOptions& options)
      : files_(files), store_(store), retention_(retention), layout_(store.layout()), options_(options) {}

  // Goes on where something fails, for another request may lie on a sound part of the disk.
  RequestsTaken Run() {
    absl::StatusOr<std::vector<DirectoryEntry>> entries = ListInbox(files_, layout_);
    if (!entries.ok()) return RequestsTaken{.error = entries.status()};
    for (const DirectoryEntry& entry : *entries) {
      if (IsRequestName(entry.name)) result_.error.Update(Read(entry));
    }
    // What an earlier call has carried out must not come back after what this one does.
    if (!waiting_.empty()) {
      if (absl::Status status = files_.SyncDirectory(layout_.inbox()); !status.ok()) {
        result_.error.Update(status);
        return std::move(result_);
      }
    }
    for (size_t i = 0; i < options_.own.size(); ++i) waiting_.push_back({"", options_.own[i], i});
    std::sort(waiting_.begin(), waiting_.end(), [](const Waiting& a, const Waiting& b) {
      return std::tie(a.request.asked, a.file) < std::tie(b.request.asked, b.file);
    });
    // Deletions that follow each other are one change of the records.
    std::vector<Waiting> deletions;
    const auto delete_them = [&] {
      result_.error.Update(Delete(deletions));
      deletions.clear();
    };
    for (Waiting& waiting : waiting_) {
      const bool deletes = waiting.request.kind == StoreRequest::Kind::kDelete;
      if (!deletes) delete_them();
      if (!MayCarryOut(waiting.request, deletes)) continue;
      if (deletes) {
        deletions.push_back(std::move(waiting));
      } else {
        result_.error.Update(ChangePin(waiting));
      }
    }
    delete_them();
    WarnOfRefusals();
    if (inbox_changed_) result_.error.Update(files_.SyncDirectory(layout_.inbox()));
    return std::move(result_);
  }

 private:
  absl::Status Read(const DirectoryEntry& entry) {
    if (entry.type != FileType::kRegular) return Refuse(entry.name, "it is not a regular file");
    if (const auto draft = NameOfDraft(entry.name)) {
      if (const auto name = ParseRequestFileName(*draft)) return ConsiderDraft(entry.name, name->folder);
    }
    const auto name = ParseRequestFileName(entry.name);
    if (!name) return Refuse(entry.name, "its name is not that of a request");
    absl::StatusOr<std::string> bytes = ReadCapped(files_, InboxPath(layout_, entry.name), kStoreRequestBytesMax);
    if (absl::IsNotFound(bytes.status())) return absl::OkStatus();
    if (!bytes.ok() && !absl::IsDataLoss(bytes.status())) {
      stuck_.insert(name->folder.step);  // it may be the earlier one
      return bytes.status();
    }
    absl::StatusOr<StoreRequest> request = bytes.ok() ? DecodeStoreRequest(*bytes) : bytes.status();
    if (absl::IsUnimplemented(request.status())) {
      if (options_.warned == nullptr || options_.warned->insert(entry.name).second) {
        options_.warn(fmt::format("not read, because a newer version of Tidemark wrote it: {}: {}",
                                  InboxPath(layout_, entry.name), std::string(request.status().message())));
      }
      return absl::OkStatus();
    }
    if (!request.ok()) return Refuse(entry.name, std::string(request.status().message()));
    if (request->store != store_.id()) {
      return Refuse(entry.name, fmt::format("it is about store {}", ToHex(request->store.bytes)));
    }
    if (RequestFileName({request->step, request->attempt}, *bytes) != entry.name) {
      return Refuse(entry.name, fmt::format("it is another request, about step {}, attempt {}", request->step,
                                            ToHex(request->attempt.bytes)));
    }
    waiting_.push_back({entry.name, *std::move(request), std::nullopt});
    return absl::OkStatus();
  }

  // Of two requests about one step the earlier one must not come back after the later one: neither because it failed
  // and is tried again, nor because power loss takes back that its file went. Two deletions of one step say the same.
  bool MayCarryOut(const StoreRequest& request, bool deletes) {
    if (deletes && !options_.deletions) {
      stuck_.insert(request.step);
      return false;
    }
    if (!stuck_.contains(request.step) && !touched_.insert(request.step).second) {
      if (absl::Status status = files_.SyncDirectory(layout_.inbox()); !status.ok()) {
        result_.error.Update(status);
        stuck_.insert(request.step);
      }
    }
    return !stuck_.contains(request.step);
  }

  absl::Status CarryOut(const StoreRequest& request) {
    switch (request.kind) {
      case StoreRequest::Kind::kPin:
        return store_.Pin(request.step, request.text, request.attempt);
      case StoreRequest::Kind::kUnpin:
        return store_.Unpin(request.step, request.attempt);
      case StoreRequest::Kind::kTag:
        return store_.Tag(request.step, request.text, request.attempt);
      case StoreRequest::Kind::kUntag:
        return store_.Untag(request.step, request.text, request.attempt);
      case StoreRequest::Kind::kDelete:
        break;  // by Delete
    }
    return absl::InternalError("a request of an unknown kind");
  }

  absl::Status ChangePin(const Waiting& waiting) {
    const StoreRequest& request = waiting.request;
    absl::Status status = CarryOut(request);
    // It is gone or another, or has as many tags as it may have.
    if (absl::IsNotFound(status) || absl::IsOutOfRange(status)) {
      return RefuseRequest(waiting, std::string(status.message()));
    }
    if (status.ok()) return Done(waiting);
    stuck_.insert(request.step);
    return status;
  }

  absl::Status Delete(const std::vector<Waiting>& waiting) {
    if (waiting.empty()) return absl::OkStatus();
    // Who delivered one may have taken what was set aside.
    store_.LookForReserve();
    // A write that failed may be on the disk all the same: what is read below should know of it. Where that cannot be
    // had, for want of room perhaps, NoteSteps makes some, or says so.
    store_.manifest().EnsureDurable().IgnoreError();
    std::vector<const Waiting*> open;
    std::vector<Retention::Unwanted> unwanted;
    absl::Status first;
    for (const Waiting& one : waiting) {
      const StoreRequest& request = one.request;
      absl::StatusOr<std::optional<StepRecord>> record = store_.manifest().Find(request.step);
      if (!record.ok()) {
        stuck_.insert(request.step);
        first.Update(record.status());
      } else if (record->has_value() && (*record)->info.state == StepState::kDeleted &&
                 (*record)->info.attempt == ToHex(request.attempt.bytes)) {
        first.Update(Done(one));  // before a crash, or by retention
      } else {
        open.push_back(&one);
        unwanted.push_back({.step = request.step, .attempt = request.attempt, .reason = request.text});
      }
    }
    if (open.empty()) return first;
    absl::StatusOr<Retention::DeleteResult> result = retention_.LetGo(unwanted, options_.claims, options_.unjudged);
    for (const Waiting* one : open) stuck_.insert(one->request.step);  // until it is done
    if (!result.ok()) return result.status();
    for (const size_t place : result->deleted) {
      result_.deleted.push_back(open[place]->request);
      first.Update(Done(*open[place]));
    }
    result_.more = result_.more || result->more;
    first.Update(result->error);
    for (const auto& [place, why] : result->kept) {
      stuck_.erase(open[place]->request.step);
      first.Update(RefuseRequest(*open[place], why));
    }
    return first;
  }

  absl::Status Done(const Waiting& waiting) {
    result_.done.push_back(waiting.request);
    if (waiting.own) result_.own_done.insert(*waiting.own);
    absl::Status status = waiting.own ? absl::OkStatus() : Remove(waiting.file);
    if (status.ok()) {
      stuck_.erase(waiting.request.step);
    } else {
      stuck_.insert(waiting.request.step);
    }
    return status;
  }

  absl::Status ConsiderDraft(const std::string& file, const StepFolder& folder) {
    absl::StatusOr<std::optional<StepRecord>> record = store_.manifest().Find(folder.step);
    if (!record.ok()) return record.status();
    const bool needed = record->has_value() && (*record)->info.attempt == ToHex(folder.attempt.bytes) &&
                        (*record)->info.state != StepState::kDeleted;
    return needed ? absl::OkStatus() : Remove(file);
  }

  absl::Status Remove(const std::string& file) {
    absl::Status status = files_.RemoveFile(InboxPath(layout_, file));
    if (absl::IsNotFound(status)) return absl::OkStatus();
    inbox_changed_ = inbox_changed_ || status.ok();
    return status;
  }

  absl::Status RefuseRequest(const Waiting& waiting, std::string_view why) {
    const StoreRequest& request = waiting.request;
    if (waiting.own) {
      result_.own_refused.emplace(*waiting.own, why);
      return absl::OkStatus();
    }
    absl::Status removed = Remove(waiting.file);
    if (!removed.ok()) {
      stuck_.insert(request.step);  // else a later request of the step would overtake it
      return removed;
    }
    ++result_.refused;
    refusals_[{request.asker, request.kind, std::string(why)}].push_back(request.step);
    return absl::OkStatus();
  }

  // One line for all steps of one asker that were refused for the same reason.
  void WarnOfRefusals() const {
    for (const auto& [refusal, steps] : refusals_) {
      const auto& [asker, kind, why] = refusal;
      const size_t named = std::min(steps.size(), kNamedSteps);
      std::string text = fmt::format("{}", fmt::join(std::span(steps).first(named), ", "));
      if (steps.size() > named) text += fmt::format(" and {} more", steps.size() - named);
      options_.warn(fmt::format("refused to {} step{} {}, requested by {}: {}", RequestKindName(kind),
                                steps.size() == 1 ? "" : "s", text, PrintableText(asker), why));
    }
  }

  absl::Status Refuse(const std::string& file, std::string_view why) {
    absl::StatusOr<std::string> moved = MoveFileToQuarantine(files_, layout_, InboxPath(layout_, file));
    if (absl::IsNotFound(moved.status())) return absl::OkStatus();
    if (!moved.ok()) return moved.status();
    inbox_changed_ = true;
    ++result_.refused;
    options_.warn(fmt::format("a file in inbox/ is not a request to this store and was moved to {}: {}", *moved, why));
    return absl::OkStatus();
  }

  FileSystem& files_;
  Store& store_;
  Retention& retention_;
  const StoreLayout& layout_;
  const TakeRequestsOptions& options_;
  std::vector<Waiting> waiting_;
  std::set<int64_t> touched_;  // steps of which a request has been carried out, or tried
  std::set<int64_t> stuck_;    // and those of which no other may be until the next call
  std::map<std::tuple<std::string, StoreRequest::Kind, std::string>, std::vector<int64_t>> refusals_;
  RequestsTaken result_;
  bool inbox_changed_ = false;
};

}  // namespace

absl::StatusOr<std::string> DeliverRequest(FileSystem& files, const StoreLayout& layout, const StoreRequest& request) {
  absl::StatusOr<std::string> bytes = EncodeStoreRequest(request);
  if (!bytes.ok()) return bytes.status();
  const std::string name = RequestFileName({request.step, request.attempt}, *bytes);
  absl::Status status = DeliverToInbox(files, layout, name, *bytes);
  if (absl::IsResourceExhausted(status) && request.kind == StoreRequest::Kind::kDelete &&
      files.RemoveFile(layout.reserve()).ok()) {
    status = DeliverToInbox(files, layout, name, *bytes);
  }
  if (!status.ok()) return status;
  return InboxPath(layout, name);
}

RequestsTaken TakeInRequests(FileSystem& files, Store& store, Retention& retention,
                             const TakeRequestsOptions& options) {
  return Taking(files, store, retention, options).Run();
}

}  // namespace tidemark::storage
