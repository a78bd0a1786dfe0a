// The inbox: where workers, and the trainer itself, leave reports, and how they get into the manifest. Record first,
// then the file moves from inbox/ into the step's folder: a crash in between has the report taken in once more, which
// changes nothing.

#ifndef TIDEMARK_STORAGE_MANIFEST_INBOX_H_
#define TIDEMARK_STORAGE_MANIFEST_INBOX_H_

#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "storage/io/file_system.h"
#include "storage/manifest/store.h"
#include "storage/manifest/store_layout.h"
#include "storage/records/metric_report.h"

namespace tidemark::storage {

// For workers: when this returns ok the report survives power loss. Makes inbox/ if need be. A report that is delivered
// again, be it by another process at the same time, takes the place of the one before.
absl::Status DeliverReport(FileSystem& files, const StoreLayout& layout, const MetricReport& report);

enum class CountedReports {
  kAll,
  kNotFailed,  // one that says that the evaluation failed is none
};

// Whether the evaluator's report on the attempt is on disk, wherever. Looks into the inbox first, so that one that is
// just being moved is not missed.
absl::StatusOr<bool> HasReport(FileSystem& files, const StoreLayout& layout, int64_t step, const AttemptId& attempt,
                               std::string_view evaluator, CountedReports counted = CountedReports::kAll);

// The reports that can be read, for readers; no order. Those that cannot are left out.
absl::StatusOr<std::vector<MetricReport>> PeekInbox(FileSystem& files, const StoreLayout& layout, const StoreId& store);

struct InboxResult {
  std::vector<MetricReport> recorded;  // those that said something new, each in one call's result only
  int64_t rejected = 0;                // files that went to quarantine/
  absl::Status error;                  // the first one met: what it kept from being done is for the next call
};

// For the one who has the store open: records every report and moves it into its step's folder. A step that was deleted
// meanwhile gets its row too. Whatever cannot be read, is no report, is another store's, or is about a step that there
// is none of is moved to quarantine/; a report on an attempt that was replaced is removed; each with a warning. One
// that is outranked (IsOutranked) is removed without. A newer version's is left alone, with a warning, unless its name
// is in `*warned`, where it is then put (null: always). What writers leave that die while they write is removed once
// nobody can need it.
//
// An error is the disk's or the manifest's. Other reports are taken in all the same, for they may lie on a sound part
// of the disk.
InboxResult CollectInbox(FileSystem& files, Store& store, const std::function<void(std::string_view)>& warn,
                         std::set<std::string>* warned = nullptr);

// What became of reports of the trainer's own.
struct OwnReportsResult {
  struct Each {
    absl::Status status;    // see RecordReports
    bool recorded = false;  // whether it is among `recorded`, or a worker's that took its place is
  };
  std::vector<Each> each;              // as the reports that were given
  std::vector<MetricReport> recorded;  // those that said something new, also after an error
};

// What the trainer itself has to say of one attempt: reports of different evaluators, which are recorded in one change
// of the step's record. What they found goes the same way: delivered, recorded, moved into the step's folder. Were it
// written there after the record, a crash in between would leave a row that no rebuild of the manifest finds. Only a
// report that found nothing out (not kDone, and not unhealthy), or in whose place a newer version's lies, is written
// there after its record: in the inbox it would take the place of a worker's that waits. `recorded` has also a worker's
// that came while the trainer's was being moved.
//
// No error: row and file survive power loss, but for the file where the step's folder is gone, and where a warning says
// so. kNotFound: the step's record is not of that attempt, or it was never committed or has been deleted.
// kAlreadyExists: it is outranked (IsOutranked) by what the evaluator found before, and nothing changes.
// kInvalidArgument: as of EncodeMetricReport. Once the disk refuses a report, those behind it have the same error and
// are not tried. After any other error than these three, as after a crash, a report may lie in the inbox, and be
// recorded by the next CollectInbox; it may be given again.
OwnReportsResult RecordReports(FileSystem& files, Store& store, std::span<const MetricReport> reports,
                               const std::function<void(std::string_view)>& warn);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_MANIFEST_INBOX_H_
