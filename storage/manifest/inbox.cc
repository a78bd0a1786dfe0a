#include "storage/manifest/inbox.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

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

// An estimate of the memory of a report.
size_t ReportBytes(const Evaluation& said) {
  size_t bytes =
      sizeof(Evaluation) + said.evaluator.size() + said.worker.size() + said.reason.size() + said.unhealthy.size();
  for (const auto& [metric, value] : said.metrics) bytes += sizeof(value) + sizeof(metric) + metric.size();
  return bytes;
}

// Whether their encodings are equal.
bool SaysTheSame(const MetricReport& a, const MetricReport& b) {
  const absl::StatusOr<std::string> bytes = EncodeMetricReport(a);
  return bytes.ok() && bytes == EncodeMetricReport(b);
}

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
    // Reports on one attempt follow each other.
    std::sort(entries->begin(), entries->end(),
              [](const DirectoryEntry& a, const DirectoryEntry& b) { return a.name < b.name; });
    for (const DirectoryEntry& entry : *entries) result_.error.Update(Consider(entry));
    result_.error.Update(RecordDelivered());
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
  // A report that lies in the inbox.
  struct Delivered {
    std::string file;
    InboxName name;
    MetricReport report;
  };
  // Reports are recorded once they take this much memory; one more may be added.
  static constexpr size_t kDeliveredBytesMax = 4 << 20;

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
    const bool is_of_another = !delivered_.empty() && (delivered_.front().report.step != report->step ||
                                                       delivered_.front().report.attempt != report->attempt);
    absl::Status status;
    if (is_of_another || delivered_bytes_ >= kDeliveredBytesMax) status = RecordDelivered();
    delivered_bytes_ += ReportBytes(report->evaluation);
    delivered_.push_back({entry.name, *name, *std::move(report)});
    return status;
  }

  absl::Status RecordDelivered() {
    const std::vector<Delivered> delivered = std::exchange(delivered_, {});
    delivered_bytes_ = 0;
    return delivered.empty() ? absl::OkStatus() : Record(delivered).status();
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
    const Delivered delivered{file, *ParseInboxFileName(file), report};
    absl::StatusOr<bool> recorded = Record({&delivered, 1});
    if (!recorded.ok()) return recorded.status();
    return *recorded ? absl::OkStatus() : missing();
  }

  // Whether the step's record has them, or reports that outrank them. All are of one attempt, not none, and their rows
  // are written at once: the record has the rows of all evaluators.
  absl::StatusOr<bool> Record(std::span<const Delivered> group) {
    const MetricReport& first = group.front().report;
    absl::StatusOr<std::optional<StepRecord>> record = store_.manifest().Find(first.step);
    if (!record.ok()) return record.status();
    const bool is_there = record->has_value() && IsOf(**record, first.attempt);
    std::vector<bool> of_use;
    if (is_there) {
      std::vector<const MetricReport*> reports;
      for (const Delivered& delivered : group) reports.push_back(&delivered.report);
      absl::Status status = RecordRows(reports, of_use);
      if (!status.ok() && group.size() > 1) return RecordOneByOne(group);
      if (!status.ok()) return status;
    }
    absl::Status first_error;
    for (size_t i = 0; i < group.size(); ++i) {
      const auto& [file, name, report] = group[i];
      if (is_there) {
        first_error.Update(of_use[i] ? Keep(file, name, report) : Remove(file));
      } else if (!record->has_value()) {
        first_error.Update(Reject(file, fmt::format("there is no step {}", report.step)));
      } else {
        warn_(
            fmt::format("the result of evaluator '{}' for step {} is dropped: it is about attempt {}, which another "
                        "attempt has replaced",
                        report.evaluation.evaluator, report.step, ToHex(report.attempt.bytes)));
        first_error.Update(Remove(file));
      }
    }
    if (!first_error.ok()) return first_error;
    return is_there;
  }

  // One of them may be what the record has no room for.
  absl::StatusOr<bool> RecordOneByOne(std::span<const Delivered> group) {
    absl::Status first_error;
    for (const Delivered& delivered : group) first_error.Update(Record({&delivered, 1}).status());
    if (!first_error.ok()) return first_error;
    return true;
  }

  // All are of one attempt. `of_use`: whether a rebuild of the manifest should find each report.
  absl::Status RecordRows(std::span<const MetricReport* const> reports, std::vector<bool>& of_use) {
    std::vector<const MetricReport*> news;
    const auto apply = [&](StepRecord& current) {
      of_use.clear();
      news.clear();
      for (const MetricReport* report : reports) {
        const Evaluation& said = report->evaluation;
        of_use.push_back(current.info.state != StepState::kDeleted && !IsOutranked(current.info, said));
        if (HasEvaluation(current.info, said)) continue;
        ApplyEvaluation(current.info, said);
        news.push_back(report);
      }
      return !news.empty();
    };
    absl::Status status = store_.UpdateStep(reports[0]->step, ToHex(reports[0]->attempt.bytes), apply);
    if (!status.ok()) return status;
    for (const MetricReport* report : news) result_.recorded.push_back(*report);
    return status;
  }

  absl::Status RecordRow(const MetricReport& report, bool& of_use) {
    const MetricReport* const one = &report;
    std::vector<bool> of_use_each;
    absl::Status status = RecordRows({&one, 1}, of_use_each);
    of_use = status.ok() && of_use_each[0];
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
               there->evaluation.evaluator == recorded.evaluation.evaluator && !SaysTheSame(*there, recorded)) {
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
  std::vector<Delivered> delivered_;  // of one attempt, to be recorded at once
  size_t delivered_bytes_ = 0;
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
