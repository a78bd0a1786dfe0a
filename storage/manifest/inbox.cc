#include "storage/manifest/inbox.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "fmt/format.h"
#include "storage/manifest/inbox_files.h"
#include "storage/manifest/manifest.h"
#include "storage/manifest/quarantine.h"
#include "storage/manifest/report_files.h"
#include "storage/manifest/store_request.h"

namespace tidemark::storage {
namespace {

std::string MetricPath(const StoreLayout& layout, const StepFolder& folder, std::string_view file) {
  return fmt::format("{}/{}", layout.attempt(folder.step, folder.attempt), file);
}

// The report that a draft was to become; nothing for a name that DeliverReport would not give.
std::optional<InboxName> ParseDraftName(std::string_view name) {
  const auto whole = NameOfDraft(name);
  return whole ? ParseInboxFileName(*whole) : std::nullopt;
}

bool IsOf(const StepRecord& record, const AttemptId& attempt) { return record.info.attempt == ToHex(attempt.bytes); }

// One look at the inbox, or one report of the trainer's own on its way through it.
class Collection {
 public:
  Collection(FileSystem& files, Store& store, const std::function<void(std::string_view)>& warn,
             std::set<std::string>* warned)
      : files_(files), store_(store), layout_(store.layout()), warn_(warn), warned_(warned) {}

  // Goes on where something fails, for another report may lie on a sound part of the disk.
  InboxResult Run() {
    absl::StatusOr<std::vector<DirectoryEntry>> entries = ListInbox(files_, layout_);
    if (!entries.ok()) return InboxResult{.error = entries.status()};
    for (const DirectoryEntry& entry : *entries) result_.error.Update(Consider(entry));
    if (inbox_changed_) result_.error.Update(files_.SyncDirectory(layout_.inbox()));
    return std::move(result_);
  }

  // What who has the store open has to say; `bytes` are the report's.
  InboxResult RunOwn(const MetricReport& report, std::string_view bytes) {
    result_.error = RecordOwn(report, bytes);
    if (inbox_changed_) result_.error.Update(files_.SyncDirectory(layout_.inbox()));
    return std::move(result_);
  }

 private:
  absl::Status Consider(const DirectoryEntry& entry) {
    // What a file server or an editor hides is nobody's report.
    if (entry.name.starts_with(".")) return absl::OkStatus();
    if (IsRequestName(entry.name)) return absl::OkStatus();  // see request_inbox.h
    if (entry.type != FileType::kRegular) return Reject(entry.name, "it is not a regular file");
    if (const auto draft = ParseDraftName(entry.name)) return ConsiderDraft(entry.name, *draft);
    const auto name = ParseInboxFileName(entry.name);
    if (!name) return Reject(entry.name, "its name is not that of a report");
    absl::StatusOr<MetricReport> report = ReadReport(files_, InboxPath(layout_, entry.name));
    if (absl::IsNotFound(report.status())) return absl::OkStatus();
    if (absl::IsDataLoss(report.status())) return Reject(entry.name, std::string(report.status().message()));
    if (absl::IsUnimplemented(report.status())) {
      if (warned_ == nullptr || warned_->insert(entry.name).second) {
        warn_(fmt::format("not read, because a newer version of Tidemark wrote it: {}",
                          std::string(report.status().message())));
      }
      return absl::OkStatus();
    }
    if (!report.ok()) return report.status();
    if (report->store != store_.id()) {
      return Reject(entry.name, fmt::format("it is about store {}", ToHex(report->store.bytes)));
    }
    if (InboxFileName(report->step, report->attempt, report->evaluation.evaluator) != entry.name) {
      return Reject(entry.name, fmt::format("it is the result of evaluator '{}' for step {}, attempt {}",
                                            report->evaluation.evaluator, report->step, ToHex(report->attempt.bytes)));
    }
    return Record(entry.name, *name, *report).status();
  }

  absl::Status RecordOwn(const MetricReport& report, std::string_view bytes) {
    const Evaluation& said = report.evaluation;
    const auto missing = [&] {
      return absl::NotFoundError(
          fmt::format("evaluator '{}' reported a result for step {}, attempt {}, which is not committed",
                      said.evaluator, report.step, ToHex(report.attempt.bytes)));
    };
    absl::StatusOr<std::optional<StepRecord>> record = store_.manifest().Find(report.step);
    if (!record.ok()) return record.status();
    if (!record->has_value() || !IsOf(**record, report.attempt)) return missing();
    if (!MayHaveFiles((*record)->info.state)) return missing();
    if (IsOutranked((*record)->info, said)) {
      return absl::AlreadyExistsError(
          fmt::format("evaluator '{}' has already reported a result for step {}", said.evaluator, report.step));
    }
    const std::string file = InboxFileName(report.step, report.attempt, said.evaluator);
    const bool found_nothing = said.outcome != Evaluation::Outcome::kDone && said.unhealthy.empty();
    if (found_nothing || absl::IsUnimplemented(ReadReport(files_, InboxPath(layout_, file)).status())) {
      // In the inbox it would take the place of a worker's report that waits there: one that it may not outrank, or one
      // for a newer version.
      bool of_use = false;
      absl::Status status = RecordRow(report, of_use);
      return status.ok() && of_use ? WriteIntoFolder(report) : status;
    }
    if (absl::Status status = DeliverToInbox(files_, layout_, file, bytes); !status.ok()) {
      // kNotFound would say that there is no such step.
      return absl::IsNotFound(status) ? absl::InternalError(status.message()) : status;
    }
    absl::StatusOr<bool> recorded = Record(file, *ParseInboxFileName(file), report);
    if (!recorded.ok()) return recorded.status();
    return *recorded ? absl::OkStatus() : missing();
  }

  // Whether the step's record has it, or a report that outranks it.
  absl::StatusOr<bool> Record(const std::string& file, const InboxName& name, const MetricReport& report) {
    const auto unless_failed = [](const absl::Status& status, bool recorded) {
      return status.ok() ? absl::StatusOr<bool>(recorded) : status;
    };
    absl::StatusOr<std::optional<StepRecord>> record = store_.manifest().Find(report.step);
    if (!record.ok()) return record.status();
    if (!record->has_value()) {
      return unless_failed(Reject(file, fmt::format("there is no step {}", report.step)), false);
    }
    if (!IsOf(**record, report.attempt)) {
      warn_(
          fmt::format("the result of evaluator '{}' for step {} is dropped: it is about attempt {}, which another "
                      "attempt has replaced",
                      report.evaluation.evaluator, report.step, ToHex(report.attempt.bytes)));
      return unless_failed(Remove(file), false);
    }
    bool of_use = false;
    if (absl::Status status = RecordRow(report, of_use); !status.ok()) return status;
    return unless_failed(of_use ? Keep(file, name, report) : Remove(file), true);
  }

  // `of_use`: whether a rebuild of the manifest should find the report.
  absl::Status RecordRow(const MetricReport& report, bool& of_use) {
    bool changed = false;
    absl::Status status = store_.UpdateStep(report.step, ToHex(report.attempt.bytes), [&](StepRecord& current) {
      of_use = current.info.state != StepState::kDeleted && !IsOutranked(current.info, report.evaluation);
      changed = !HasEvaluation(current.info, report.evaluation);
      if (changed) ApplyEvaluation(current.info, report.evaluation);
      return changed;
    });
    if (status.ok() && changed) result_.recorded.push_back(report);
    return status;
  }

  // Puts a report that is recorded into its step's folder. The file may be a later report than the one that was read,
  // of a worker that had more to say meanwhile: what has been moved is looked at, and recorded where it is another one.
  absl::Status Keep(const std::string& file, const InboxName& name, const MetricReport& recorded) {
    const std::string folder = layout_.attempt(name.folder.step, name.folder.attempt);
    const std::string kept = MetricPath(layout_, name.folder, name.metric_file);
    absl::Status status = files_.Rename(InboxPath(layout_, file), kept);
    if (absl::IsNotFound(status)) {
      // A step whose folder is lost has no place for it; else it is the report that somebody took.
      absl::StatusOr<FileType> type = files_.TypeOf(folder);
      if (absl::IsNotFound(type.status())) return Remove(file);
      return type.ok() ? absl::OkStatus() : type.status();
    }
    if (!status.ok()) return status;
    inbox_changed_ = true;
    absl::StatusOr<MetricReport> there = ReadReport(files_, kept);
    bool of_use = true;
    if (!there.ok()) {
      warn_(fmt::format(
          "the result of evaluator '{}' for step {} is recorded, but a rebuild of the manifest may lose it: {}",
          recorded.evaluation.evaluator, recorded.step, std::string(there.status().message())));
    } else if (there->store == recorded.store && there->step == recorded.step && there->attempt == recorded.attempt &&
               there->evaluation.evaluator == recorded.evaluation.evaluator) {
      status = RecordRow(*there, of_use);
    }
    // What was read first had more to say, and is what a rebuild is to find.
    if (status.ok() && !of_use) status = WriteReport(kept, recorded);
    status.Update(files_.SyncDirectory(folder));
    return status;
  }

  absl::Status WriteIntoFolder(const MetricReport& report) {
    const StepFolder folder{report.step, report.attempt};
    const std::string path = MetricPath(layout_, folder, MetricFileName(report.evaluation.evaluator));
    absl::Status status = WriteReport(path, report);
    if (!absl::IsNotFound(status)) return status;
    absl::StatusOr<FileType> type = files_.TypeOf(layout_.attempt(report.step, report.attempt));
    if (absl::IsNotFound(type.status())) return absl::OkStatus();
    return type.ok() ? absl::InternalError(status.message()) : type.status();
  }

  absl::Status WriteReport(const std::string& path, const MetricReport& report) {
    absl::StatusOr<std::string> bytes = EncodeMetricReport(report);
    return bytes.ok() ? WriteFileDurably(files_, path, *bytes) : bytes.status();
  }

  // A writer that is dead or late leaves what nobody needs once its step is gone or has that evaluator's row.
  absl::Status ConsiderDraft(const std::string& file, const InboxName& name) {
    absl::StatusOr<std::optional<StepRecord>> record = store_.manifest().Find(name.folder.step);
    if (!record.ok()) return record.status();
    if (record->has_value() && IsOf(**record, name.folder.attempt) && (*record)->info.state != StepState::kDeleted) {
      const std::vector<Evaluation>& rows = (*record)->info.evaluations;
      const bool recorded = std::any_of(rows.begin(), rows.end(), [&](const Evaluation& row) {
        return MetricFileName(row.evaluator) == name.metric_file;
      });
      if (!recorded) return absl::OkStatus();
    }
    return Remove(file);
  }

  absl::Status Remove(const std::string& file) {
    absl::Status status = files_.RemoveFile(InboxPath(layout_, file));
    if (absl::IsNotFound(status)) return absl::OkStatus();
    inbox_changed_ = inbox_changed_ || status.ok();
    return status;
  }

  absl::Status Reject(const std::string& file, std::string_view why) {
    absl::StatusOr<std::string> moved = MoveFileToQuarantine(files_, layout_, InboxPath(layout_, file));
    if (absl::IsNotFound(moved.status())) return absl::OkStatus();
    if (!moved.ok()) return moved.status();
    inbox_changed_ = true;
    ++result_.rejected;
    warn_(fmt::format("{} was moved to {}: {}", InboxPath(layout_, file), *moved, why));
    return absl::OkStatus();
  }

  FileSystem& files_;
  Store& store_;
  const StoreLayout& layout_;
  const std::function<void(std::string_view)>& warn_;
  std::set<std::string>* const warned_;
  InboxResult result_;
  bool inbox_changed_ = false;
};

}  // namespace

absl::Status DeliverReport(FileSystem& files, const StoreLayout& layout, const MetricReport& report) {
  absl::StatusOr<std::string> bytes = EncodeMetricReport(report);
  if (!bytes.ok()) return bytes.status();
  return DeliverToInbox(files, layout, InboxFileName(report.step, report.attempt, report.evaluation.evaluator), *bytes);
}

absl::StatusOr<bool> HasReport(FileSystem& files, const StoreLayout& layout, int64_t step, const AttemptId& attempt,
                               std::string_view evaluator, CountedReports counted) {
  for (const std::string& path : {InboxPath(layout, InboxFileName(step, attempt, evaluator)),
                                  MetricPath(layout, {step, attempt}, MetricFileName(evaluator))}) {
    absl::StatusOr<FileType> type = files.TypeOf(path);
    if (absl::IsNotFound(type.status())) continue;
    if (!type.ok()) return type.status();
    if (counted == CountedReports::kAll || *type != FileType::kRegular) return true;
    const absl::StatusOr<MetricReport> report = ReadReport(files, path);
    const bool failed = report.ok() && report->evaluation.outcome == Evaluation::Outcome::kFailed;
    if (!failed && !absl::IsNotFound(report.status())) return true;
  }
  return false;
}

absl::StatusOr<std::vector<MetricReport>> PeekInbox(FileSystem& files, const StoreLayout& layout,
                                                    const StoreId& store) {
  absl::StatusOr<std::vector<DirectoryEntry>> entries = ListInbox(files, layout);
  if (!entries.ok()) return entries.status();
  std::vector<MetricReport> reports;
  for (const DirectoryEntry& entry : *entries) {
    if (entry.type != FileType::kRegular || !ParseInboxFileName(entry.name)) continue;
    absl::StatusOr<MetricReport> report = ReadReport(files, InboxPath(layout, entry.name));
    if (!report.ok() || report->store != store) continue;
    if (InboxFileName(report->step, report->attempt, report->evaluation.evaluator) != entry.name) continue;
    reports.push_back(*std::move(report));
  }
  return reports;
}

InboxResult CollectInbox(FileSystem& files, Store& store, const std::function<void(std::string_view)>& warn,
                         std::set<std::string>* warned) {
  return Collection(files, store, warn, warned).Run();
}

InboxResult RecordReport(FileSystem& files, Store& store, const MetricReport& report,
                         const std::function<void(std::string_view)>& warn) {
  absl::StatusOr<std::string> bytes = EncodeMetricReport(report);
  if (!bytes.ok()) return {.error = bytes.status()};
  // As it will be read: text that is not UTF-8 has been replaced by then.
  absl::StatusOr<MetricReport> as_read = DecodeMetricReport(*bytes);
  if (!as_read.ok()) return {.error = as_read.status()};
  return Collection(files, store, warn, nullptr).RunOwn(*as_read, *bytes);
}

}  // namespace tidemark::storage
