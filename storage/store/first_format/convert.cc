#include "storage/store/first_format/convert.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/index/manifest.h"
#include "storage/records/fact.h"
#include "storage/records/manifest_records.h"
#include "storage/store/attempt_reader.h"
#include "storage/store/first_format/folder_note.h"
#include "storage/store/first_format/report_files.h"
#include "storage/store/first_format/store_request.h"
#include "storage/store/garbage.h"
#include "storage/store/memory_catalog.h"
#include "storage/store/rebuild.h"
#include "storage/store/step_changes.h"
#include "storage/store/store_identity.h"

namespace tidemark::storage {
namespace {

using Warn = std::function<void(std::string_view)>;

// What the files in a step's folder say that its record does not: a crash may have come between the two. A deletion
// mark becomes a note, because a pinned step and the latest one stay.
absl::Status JoinFolder(FileSystem& files, const StoreLayout& layout, const StoreId& store, const Warn& warn,
                        StepRecord& record, std::vector<StepNote>& deletions) {
  const auto attempt = FromHex(record.info.attempt);
  if (!attempt || !MayHaveFiles(record.info.state)) return absl::OkStatus();
  const StepFolder folder{record.info.step, AttemptId{*attempt}};
  absl::Status status = JoinPinOfFolder(files, layout, warn, record.info);
  if (status.ok()) status = ApplyStoredReports(files, layout, store, folder, warn, record.info);
  // The folder of a lost step may be gone.
  if (absl::IsNotFound(status)) return absl::OkStatus();
  if (!status.ok()) return status;
  const absl::StatusOr<std::optional<std::string>> deleted = ReadDeletionMark(files, layout, folder);
  if (!deleted.ok()) return deleted.status();
  if (deleted->has_value()) {
    deletions.push_back(
        {.step = folder.step, .attempt = record.info.attempt, .deleted = true, .reason = **deleted});
  }
  return absl::OkStatus();
}

// The same for all steps.
absl::Status JoinFolders(FileSystem& files, const StoreLayout& layout, const StoreId& store, const Warn& warn,
                         MemoryCatalog& catalog) {
  absl::Status status;
  Facts joined;
  std::vector<StepNote> deletions;
  const absl::Status visited = catalog.ForEach([&](StepRecord record) {
    status = JoinFolder(files, layout, store, warn, record, deletions);
    joined.push_back(StepFact{std::move(record)});
    return status.ok();
  });
  status.Update(visited);
  if (!status.ok()) return status;
  catalog.Apply(joined);
  NotedSteps noted;
  const absl::StatusOr<Facts> deleted =
      NoteFacts(catalog, deletions, std::nullopt, std::numeric_limits<size_t>::max(), noted);
  if (!deleted.ok()) return deleted.status();
  catalog.Apply(*deleted);
  return absl::OkStatus();
}

// What evaluators have reported and no record says yet.
absl::Status TakeInReports(FileSystem& files, const StoreLayout& layout, const StoreId& store, const Warn& warn,
                           MemoryCatalog& catalog) {
  absl::StatusOr<std::vector<MetricReport>> reports = ReadInbox(files, layout, store, warn);
  if (!reports.ok()) return reports.status();
  std::vector<EvaluationFact> said;
  for (MetricReport& report : *reports) {
    said.push_back({.step = report.step,
                    .attempt = ToHex(report.attempt.bytes),
                    .evaluation = std::move(report.evaluation)});
  }
  std::vector<ReportOutcome> outcomes;
  const absl::StatusOr<Facts> facts = ReportFacts(catalog, said, outcomes);
  if (!facts.ok()) return facts.status();
  catalog.Apply(*facts);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].status.ok() || absl::IsAlreadyExists(outcomes[i].status)) continue;
    warn(fmt::format("the report of evaluator '{}' on step {} is dropped: {}", said[i].evaluation.evaluator,
                     said[i].step, std::string(outcomes[i].status.message())));
  }
  return absl::OkStatus();
}

// Adds what the manifest says. kNotFound, kDataLoss: it is lost or damaged, or its end is missing. RocksDB does not
// notice that a log is gone, or that its list of files has lost its last records, so an ok proves nothing.
absl::Status ReadManifest(FileSystem& files, const StoreLayout& layout, const StoreId& store, KnownFacts& known) {
  absl::StatusOr<std::unique_ptr<Manifest>> manifest = Manifest::OpenReadOnly(files, layout.manifest());
  if (!manifest.ok()) return manifest.status();
  if ((*manifest)->store_id() != store) {
    return absl::DataLossError(fmt::format("manifest {} is that of store {}, this one is {}", layout.manifest(),
                                           ToHex((*manifest)->store_id().bytes), ToHex(store.bytes)));
  }
  const absl::StatusOr<Facts> facts = FactsOf(**manifest);
  if (!facts.ok()) return facts.status();
  const absl::StatusOr<std::vector<DeletionRecord>> deletions = (*manifest)->Deletions();
  if (!deletions.ok()) return deletions.status();
  known.catalog.Apply(*facts);
  for (const DeletionRecord& deletion : *deletions) known.garbage.insert(deletion.attempt);
  return (*manifest)->log_damage();
}

// Attempts that no record names and whose folders say that they were deleted or replaced, or that their saves failed.
// None of them is its step's, also where the manifest has forgotten why.
using Marked = std::vector<std::pair<StepFolder, std::string>>;
absl::StatusOr<Marked> FindMarked(FileSystem& files, const StoreLayout& layout, KnownFacts& known) {
  const absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files, layout);
  if (!folders.ok()) return folders.status();
  Marked marked;
  for (const StepFolder& folder : *folders) {
    const absl::StatusOr<std::optional<StepRecord>> record = known.catalog.Find(folder.step);
    if (!record.ok()) return record.status();
    if (record->has_value() && (*record)->info.attempt == ToHex(folder.attempt.bytes)) continue;
    absl::StatusOr<std::optional<std::string>> mark = ReadDeletionMark(files, layout, folder);
    if (!mark.ok()) return mark.status();
    if (!mark->has_value()) continue;
    known.garbage.insert(folder.attempt);
    marked.emplace_back(folder, **std::move(mark));
  }
  return marked;
}

// Records as deleted what no record has of the marked attempts' steps.
absl::Status TakeInDeleted(FileSystem& files, const StoreLayout& layout, const StoreId& store, const Warn& warn,
                           const Marked& marked, MemoryCatalog& catalog) {
  for (const auto& [folder, why] : marked) {
    const absl::StatusOr<std::optional<StepRecord>> known = catalog.Find(folder.step);
    if (!known.ok()) return known.status();
    if (known->has_value()) continue;
    absl::StatusOr<StepRecord> record = ReadAttemptRecord(files, layout, store, folder);
    absl::Status status = record.status();
    if (status.ok()) status = ApplyStoredReports(files, layout, store, folder, warn, record->info);
    // What cannot be told of a deleted step is not worth a refusal.
    if (IsAboutAttempt(status)) continue;
    if (!status.ok()) return status;
    MakeDeleted(*record, why);
    const Fact fact = StepFact{*std::move(record)};
    catalog.Apply({&fact, 1});
  }
  return absl::OkStatus();
}

// What became true of one request; nothing, with a warning, of one that cannot be honoured.
void TakeIn(const StoreRequest& request, const Warn& warn, MemoryCatalog& catalog) {
  const auto facts = [&]() -> absl::StatusOr<Facts> {
    switch (request.kind) {
      case StoreRequest::Kind::kPin:
        return PinFacts(catalog, request.step, request.text, request.attempt);
      case StoreRequest::Kind::kUnpin:
        return UnpinFacts(catalog, request.step, request.attempt);
      case StoreRequest::Kind::kTag:
        // A move was asked for by this and a later kUntag. What is no move was refused before it was asked for.
        return TagFacts(catalog, request.step, request.text, request.attempt, TakenTag::kMove);
      case StoreRequest::Kind::kUntag:
        return UntagFacts(catalog, request.step, request.text, request.attempt);
      case StoreRequest::Kind::kDelete:
        return DeletionRequestFacts(catalog, {.id = ToHex(RandomBytes16()),
                                              .step = request.step,
                                              .attempt = ToHex(request.attempt.bytes),
                                              .reason = request.text,
                                              .asker = request.asker,
                                              .asked = request.asked});
    }
    return absl::InternalError("a request of an unknown kind");
  }();
  if (facts.ok()) return catalog.Apply(*facts);
  warn(fmt::format("the request of {} to {} step {} is dropped: {}", request.asker, RequestKindName(request.kind),
                   request.step, std::string(facts.status().message())));
}

// Requests that were not carried out yet, in the order in which they were made.
absl::Status TakeInRequests(FileSystem& files, const StoreLayout& layout, const StoreId& store, const Warn& warn,
                            MemoryCatalog& catalog) {
  const absl::StatusOr<std::vector<DirectoryEntry>> entries = ListInbox(files, layout);
  if (!entries.ok()) return entries.status();
  std::vector<StoreRequest> requests;
  for (const DirectoryEntry& entry : *entries) {
    if (entry.type != FileType::kRegular || !IsRequestFileName(entry.name)) continue;
    const absl::StatusOr<std::string> bytes = ReadCapped(files, InboxPath(layout, entry.name), kStoreRequestBytesMax);
    if (!bytes.ok() && !absl::IsDataLoss(bytes.status())) return bytes.status();
    absl::StatusOr<StoreRequest> request = bytes.ok() ? DecodeStoreRequest(*bytes) : bytes.status();
    if (!request.ok() || request->store != store) {
      warn(fmt::format("a request is dropped: {}: {}", InboxPath(layout, entry.name),
                       request.ok() ? "it is about another store" : std::string(request.status().message())));
      continue;
    }
    requests.push_back(*std::move(request));
  }
  std::stable_sort(requests.begin(), requests.end(),
                   [](const StoreRequest& a, const StoreRequest& b) { return a.asked < b.asked; });
  for (const StoreRequest& request : requests) TakeIn(request, warn, catalog);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<bool> IsOfFirstFormat(FileSystem& files, const StoreLayout& layout) {
  const absl::StatusOr<std::vector<DirectoryEntry>> entries = files.ListDirectory(layout.directory());
  if (!entries.ok()) return entries.status();
  bool has_manifest = false;
  for (const DirectoryEntry& entry : *entries) {
    const std::string path = layout.directory() + "/" + entry.name;
    // What has or had a journal is no store of the first format. One that is being made proves nothing.
    if (path == layout.journal() || IsBrokenJournal(layout, path) || path == layout.index()) return false;
    has_manifest = has_manifest || path == layout.manifest();
  }
  if (has_manifest) return true;
  const absl::StatusOr<std::vector<StepFolder>> folders = ListAttempts(files, layout);
  if (!folders.ok()) return folders.status();
  return std::any_of(folders->begin(), folders->end(),
                     [](const StepFolder& folder) { return EpochOf(folder.attempt) >= kEpochMax; });
}

absl::Status ConvertFirstFormat(FileSystem& files, const StoreLayout& layout, const StoreId& store,
                                const ShardReadOptions& read, const std::function<void(std::string_view)>& warn) {
  KnownFacts known;
  absl::Status status = ReadManifest(files, layout, store, known);
  if (!status.ok() && !IsMissingOrDamaged(status)) return status;
  known.is_sound = status.ok();
  if (!known.is_sound) {
    warn(fmt::format("the manifest cannot be read, or not all of it, so steps are also taken from the shards: {}",
                     std::string(status.message())));
  }
  const absl::StatusOr<Marked> marked = FindMarked(files, layout, known);
  if (!marked.ok()) return marked.status();
  const absl::StatusOr<size_t> adopted = AdoptAttempts(files, layout, store, read, warn, known);
  if (!adopted.ok()) return adopted.status();
  status = TakeInDeleted(files, layout, store, warn, *marked, known.catalog);
  if (status.ok()) status = JoinFolders(files, layout, store, warn, known.catalog);
  if (status.ok()) status = TakeInReports(files, layout, store, warn, known.catalog);
  if (status.ok()) status = TakeInRequests(files, layout, store, warn, known.catalog);
  if (!status.ok()) return status;
  const absl::StatusOr<Facts> all = FactsOf(known.catalog);
  if (!all.ok()) return all.status();
  // One of 65,536 random ids looks like that of an epoch.
  return ReplaceJournal(files, layout, store, *all, known.epoch);
}

void RemoveFirstFormat(FileSystem& files, const StoreLayout& layout,
                       const std::function<void(std::string_view)>& warn) {
  absl::Status status = RemoveTree(files, layout.inbox());
  if (status.ok()) status = RemoveTree(files, layout.reserve());
  // The manifest last: while it is there, the next opening removes what a power loss brings back.
  if (status.ok()) status = files.SyncDirectory(layout.directory());
  if (status.ok()) status = RemoveTree(files, layout.manifest());
  if (!status.ok()) warn(fmt::format("what the first format had is still there: {}", std::string(status.message())));
}

}  // namespace tidemark::storage
