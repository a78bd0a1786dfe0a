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

// Whether another try meets the same error.
bool IsFinal(const absl::Status& s) { return IsNotFound(s) || IsInvalidArgument(s) || IsAlreadyExists(s); }

InboxName NameOf(const MetricReport& report) {
  return {{report.step, report.attempt}, MetricFileName(report.evaluation.evaluator)};
}

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

  // What who has the store open has to say of one attempt, at least one report.
  OwnReportsResult RunOwn(std::span<const MetricReport> reports) {
    own_.resize(reports.size());
    const absl::StatusOr<std::optional<StepRecord>> record = store_.manifest().Find(reports[0].step);
    absl::Status refused = record.status();
    std::vector<Own> delivered;
    for (size_t i = 0; i < reports.size(); ++i) {
      if (!refused.ok()) {
        own_[i].status = refused;
        continue;
      }
      absl::StatusOr<Own> own = DeliverOwn(i, reports[i], *record);
      if (own.ok()) {
        delivered_bytes_ += ReportBytes(own->report.evaluation);
        delivered.push_back(*std::move(own));
      } else {
        own_[i].status = own.status();
        if (!IsFinal(own.status())) refused = own.status();
      }
      if (delivered_bytes_ >= kDeliveredBytesMax) refused.Update(RecordOwn(std::exchange(delivered, {})));
    }
    RecordOwn(std::move(delivered)).IgnoreError();  // it is in own_
    absl::Status synced = inbox_changed_ ? files_.SyncDirectory(layout_.inbox()) : absl::OkStatus();
    for (OwnReportsResult::Each& own : own_) own.status.Update(synced);
    return {.each = std::move(own_), .recorded = std::move(result_.recorded)};
  }

 private:
  // A report that lies in the inbox.
  struct Delivered {
    std::string file;
    InboxName name;
    MetricReport report;
  };
  // One of the trainer's own.
  struct Own {
    size_t index = 0;  // in own_
    std::string file;  // in the inbox; empty: it is to be written into the step's folder
    MetricReport report;
  };
  // What became of the rows of reports.
  struct Rows {
    std::vector<bool> of_use;  // whether a rebuild of the manifest should find the report
    std::vector<bool> news;
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

  static absl::Status MissingError(const MetricReport& report) {
    return absl::NotFoundError(
        fmt::format("evaluator '{}' reported a result for step {}, attempt {}, which is not committed",
                    report.evaluation.evaluator, report.step, ToHex(report.attempt.bytes)));
  }

  absl::StatusOr<Own> DeliverOwn(size_t index, const MetricReport& report, const std::optional<StepRecord>& record) {
    const absl::StatusOr<std::string> bytes = EncodeMetricReport(report);
    if (!bytes.ok()) return bytes.status();
    // As it will be read: text that is not UTF-8 has been replaced by then.
    absl::StatusOr<MetricReport> as_read = DecodeMetricReport(*bytes);
    if (!as_read.ok()) return as_read.status();
    if (!record || !IsOf(*record, report.attempt) || !MayHaveFiles(record->info.state)) return MissingError(report);
    const Evaluation& said = as_read->evaluation;
    if (IsOutranked(record->info, said)) {
      return absl::AlreadyExistsError(
          fmt::format("evaluator '{}' has already reported a result for step {}", said.evaluator, report.step));
    }
    const std::string file = InboxFileName(report.step, report.attempt, said.evaluator);
    const bool found_nothing = said.outcome != Evaluation::Outcome::kDone && said.unhealthy.empty();
    if (found_nothing || absl::IsUnimplemented(ReadReport(files_, InboxPath(layout_, file)).status())) {
      // In the inbox it would take the place of a worker's report that waits there: one that it may not outrank, or one
      // for a newer version.
      return Own{index, "", *std::move(as_read)};
    }
    if (absl::Status status = DeliverToInbox(files_, layout_, file, *bytes); !status.ok()) {
      // kNotFound would say that there is no such step.
      return absl::IsNotFound(status) ? absl::InternalError(status.message()) : status;
    }
    return Own{index, file, *std::move(as_read)};
  }

  // Whether another attempt has replaced the report's meanwhile.
  bool IsReplaced(const MetricReport& report) const {
    const absl::StatusOr<std::optional<StepRecord>> record = store_.manifest().Find(report.step);
    return record.ok() && !(record->has_value() && IsOf(**record, report.attempt));
  }

  // Records them in one change and puts their results into own_. Returns the first error that another try may mend.
  absl::Status RecordOwn(const std::vector<Own>& group) {
    delivered_bytes_ = 0;
    if (group.empty()) return absl::OkStatus();
    std::vector<const MetricReport*> reports;
    for (const Own& own : group) reports.push_back(&own.report);
    Rows rows;
    absl::Status status = RecordRows(reports, rows);
    const bool is_replaced = absl::IsNotFound(status) && IsReplaced(*reports[0]);
    // kNotFound would say that there is no such step.
    if (absl::IsNotFound(status) && !is_replaced) status = absl::InternalError(status.message());
    absl::Status first_error;
    for (size_t i = 0; i < group.size(); ++i) {
      const auto& [index, file, report] = group[i];
      OwnReportsResult::Each& own = own_[index];
      own.status = status;
      if (status.ok()) {
        const size_t recorded = result_.recorded.size();
        own.status = file.empty() ? (rows.of_use[i] ? WriteIntoFolder(report) : absl::OkStatus())
                                  : (rows.of_use[i] ? Keep(file, NameOf(report), report) : Remove(file));
        own.recorded = rows.news[i] || result_.recorded.size() > recorded;
      } else if (is_replaced) {
        own.status = file.empty() ? absl::OkStatus() : Remove(file);
        own.status.Update(MissingError(report));
      }
      if (!IsFinal(own.status)) first_error.Update(own.status);
    }
    return first_error;
  }

  // Whether the step's record has them, or reports that outrank them. All are of one attempt, not none, and their rows
  // are written at once: the record has the rows of all evaluators.
  absl::StatusOr<bool> Record(std::span<const Delivered> group) {
    const MetricReport& first = group.front().report;
    absl::StatusOr<std::optional<StepRecord>> record = store_.manifest().Find(first.step);
    if (!record.ok()) return record.status();
    const bool is_there = record->has_value() && IsOf(**record, first.attempt);
    Rows rows;
    if (is_there) {
      std::vector<const MetricReport*> reports;
      for (const Delivered& delivered : group) reports.push_back(&delivered.report);
      absl::Status status = RecordRows(reports, rows);
      if (!status.ok() && group.size() > 1) return RecordOneByOne(group);
      if (!status.ok()) return status;
    }
    absl::Status first_error;
    for (size_t i = 0; i < group.size(); ++i) {
      const auto& [file, name, report] = group[i];
      if (is_there) {
        first_error.Update(rows.of_use[i] ? Keep(file, name, report) : Remove(file));
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

  // All are of one attempt.
  absl::Status RecordRows(std::span<const MetricReport* const> reports, Rows& rows) {
    const auto apply = [&](StepRecord& current) {
      rows = {};
      for (const MetricReport* report : reports) {
        const Evaluation& said = report->evaluation;
        rows.of_use.push_back(current.info.state != StepState::kDeleted && !IsOutranked(current.info, said));
        rows.news.push_back(!HasEvaluation(current.info, said));
        if (rows.news.back()) ApplyEvaluation(current.info, said);
      }
      return std::find(rows.news.begin(), rows.news.end(), true) != rows.news.end();
    };
    absl::Status status = store_.UpdateStep(reports[0]->step, ToHex(reports[0]->attempt.bytes), apply);
    if (!status.ok()) return status;
    for (size_t i = 0; i < reports.size(); ++i) {
      if (rows.news[i]) result_.recorded.push_back(*reports[i]);
    }
    return status;
  }

  absl::Status RecordRow(const MetricReport& report, bool& of_use) {
    const MetricReport* const one = &report;
    Rows rows;
    absl::Status status = RecordRows({&one, 1}, rows);
    of_use = status.ok() && rows.of_use[0];
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
  std::vector<OwnReportsResult::Each> own_;
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

OwnReportsResult RecordReports(FileSystem& files, Store& store, std::span<const MetricReport> reports,
                               const std::function<void(std::string_view)>& warn) {
  if (reports.empty()) return {};
  return Collection(files, store, warn, nullptr).RunOwn(reports);
}

}  // namespace tidemark::storage
