#include "snapshot/restore/store_reader_impl.h"

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "absl/functional/function_ref.h"
#include "fmt/format.h"
#include "snapshot/restore/box_read.h"
#include "snapshot/restore/restore.h"
#include "snapshot/restore/stored_step.h"
#include "storage/io/printable_text.h"
#include "storage/shard/format/bounded_shard_files.h"
#include "storage/store/first_format/convert.h"

namespace tidemark {
namespace {

// A reader beside a trainer takes few of its cores.
constexpr storage::ShardReadOptions kReadOptions{.codec_threads = 2, .io = storage::IoQueueKind::kAuto, .io_depth = 8};

// For strangers' stores. io_uring is more of the kernel than they need to reach.
constexpr storage::ShardReadOptions kUntrustedReadOptions{
    .codec_threads = 1, .io = storage::IoQueueKind::kThreads, .io_depth = 8, .tries_again = false};

std::unique_ptr<storage::FileSystem> FilesAt(const std::string& directory, bool trusted) {
  std::unique_ptr<storage::FileSystem> files = storage::PosixFileSystemAt(directory);
  if (trusted) return files;
  return std::make_unique<storage::BoundedShardFiles>(std::move(files));
}

// `where`: what is read, for messages. `read`: reads the bytes from an offset on.
absl::StatusOr<std::vector<std::byte>> ReadBytes(
    std::string_view where, std::string_view name, uint64_t entry_bytes, std::optional<EntryWindow> window,
    absl::FunctionRef<absl::Status(uint64_t offset, std::span<std::byte> destination)> read) {
  if (window && (window->offset > entry_bytes || window->bytes > entry_bytes - window->offset)) {
    return absl::OutOfRangeError(fmt::format("read {}: entry '{}' has {} bytes: {} bytes from {} are outside of it",
                                             where, storage::PrintableText(name), entry_bytes, window->bytes,
                                             window->offset));
  }
  const uint64_t wanted = window ? window->bytes : entry_bytes;
  std::vector<std::byte> bytes;
  try {
    bytes.resize(wanted);
  } catch (const std::exception&) {  // out of memory, or more than a vector can be
    return absl::ResourceExhaustedError(
        fmt::format("no memory for {} bytes of '{}'", wanted, storage::PrintableText(name)));
  }
  if (absl::Status status = read(window ? window->offset : 0, bytes); !status.ok()) return status;
  return bytes;
}

}  // namespace

StoreReader::Impl::Impl(const std::string& directory, bool trusted)
    : layout(directory),
      files_owner(FilesAt(layout.directory(), trusted)),
      trusted(trusted),
      read(trusted ? kReadOptions : kUntrustedReadOptions) {}

// The steps as the journal has them. A reader that follows a store of many steps asks often, and mostly nothing is new.
absl::Status StoreReader::Impl::LoadJournal() {
  // After a failure it is read as a whole the next time.
  try {
    bool changed = true;
    absl::Status status;
    if (journal == nullptr) {
      absl::StatusOr<std::unique_ptr<storage::StoreJournal>> opened =
          storage::StoreJournal::Open(files, layout, store, {.warn = [](std::string_view) {}});
      status = opened.status();
      if (opened.ok()) journal = *std::move(opened);
    } else {
      const absl::StatusOr<bool> looked = journal->Look();
      status = looked.status();
      changed = looked.ok() && *looked;
    }
    // Before the first entry there is no attempt, so where there are some the entries are lost.
    if (status.ok() && !journal->HasEntries()) {
      status = absl::NotFoundError(fmt::format("journal {} has no entry", layout.journal()));
    }
    if (status.ok() && changed) status = ReadRecords();
    if (!status.ok()) journal.reset();
    return status;
  } catch (...) {
    journal.reset();
    throw;
  }
}

absl::Status StoreReader::Impl::ReadRecords() {
  Records found;
  absl::Status status = journal->catalog().ForEach([&](storage::StepRecord record) {
    found.Add(std::move(record));
    return true;
  });
  if (!status.ok()) return status;
  records = std::move(found);
  absl::StatusOr<storage::BestModes> modes = journal->catalog().RecordedBestModes();
  if (modes.ok()) best_modes = *std::move(modes);
  return modes.status();
}

// The steps as a rebuild of the journal would find them in the shards. Of several attempts at a step the last one
// counts.
absl::Status StoreReader::Impl::LoadShards() {
  absl::StatusOr<std::vector<storage::StepFolder>> folders = storage::ListAttempts(files, layout);
  if (!folders.ok()) return folders.status();
  std::map<int64_t, storage::StepRecord> attempts;
  for (const storage::StepFolder& folder : *folders) {
    // One shard at a time: there is no telling how many ranks a stranger's attempt has.
    absl::StatusOr<storage::StepRecord> read = storage::ReadAttemptRecord(files, layout, store, folder);
    if (!read.ok()) {
      unread.push_back(
          fmt::format("{}: {}", StepFolderName(folder.step, folder.attempt), std::string(read.status().message())));
      continue;
    }
    const auto [found, is_new] = attempts.try_emplace(folder.step, *read);
    if (!is_new && found->second.info.sequence < read->info.sequence) found->second = *std::move(read);
  }
  records = {};
  for (auto& [step, record] : attempts) records.Add(std::move(record));
  best_modes.clear();
  return absl::OkStatus();
}

// Of a store that an older version wrote, whose facts are not in a journal.
absl::Status StoreReader::Impl::CheckFormat() const {
  const absl::StatusOr<bool> old = storage::IsOfFirstFormat(files, layout);
  if (!old.ok() || !*old) return old.status();
  return absl::FailedPreconditionError(
      fmt::format("an older version of Tidemark wrote the store {}: open it for writing once to convert it, with a "
                  "trainer or with 'checkpoint-inspect repair --apply'",
                  layout.directory()));
}

absl::Status StoreReader::Impl::Load() {
  unread.clear();
  journal_problem = LoadJournal();
  if (absl::IsUnimplemented(journal_problem)) return journal_problem;
  if (!journal_problem.ok()) {
    const absl::Status format = absl::IsNotFound(journal_problem) ? CheckFormat() : absl::OkStatus();
    if (trusted && absl::IsFailedPrecondition(format)) return format;
    if (absl::Status status = LoadShards(); !status.ok()) return status;
    // An untrusted store is not converted, and its shards are all that is read of it.
    if (!format.ok()) journal_problem = absl::IsFailedPrecondition(format) ? absl::OkStatus() : format;
  }
  // A store whose making was cut short, or goes on just now, has no journal yet and nothing for it to tell.
  const bool nothing = records.steps.empty() && unread.empty();
  if (absl::IsNotFound(journal_problem) && nothing) journal_problem = absl::OkStatus();
  return absl::OkStatus();
}

absl::Status StoreReader::Impl::NoStep(int64_t step) const {
  return absl::NotFoundError(fmt::format("step {} is not in {}", step, layout.directory()));
}

absl::StatusOr<storage::StepRecord> StoreReader::Impl::FindSaved(int64_t step) const {
  const std::optional<size_t> place = records.Find(step);
  if (!place) return NoStep(step);
  const StepInfo& info = records.steps[*place];
  if (info.state == StepState::kDeleted) {
    return absl::NotFoundError(fmt::format("step {} was deleted: {}", step, info.reason));
  }
  if (info.state == StepState::kUnsaved) {
    return absl::NotFoundError(fmt::format("step {} was evaluated and never saved", step));
  }
  return RecordAt(*place);
}

storage::StepRecord StoreReader::Impl::RecordAt(size_t place) const {
  const Records::Files& of_step = records.files[place];
  return {.info = records.steps[place], .shards = of_step.shards, .references = of_step.references};
}

absl::StatusOr<storage::Attempt> StoreReader::Impl::OpenStep(int64_t step) const {
  absl::StatusOr<storage::StepRecord> record = FindSaved(step);
  if (!record.ok()) return record.status();
  return OpenRecorded({files, layout, store, read}, *record);
}

absl::StatusOr<std::vector<std::byte>> StoreReader::Impl::ReadEntry(int64_t step, std::string_view name,
                                                                    std::optional<EntryWindow> window) const {
  absl::StatusOr<storage::Attempt> attempt = OpenStep(step);
  if (!attempt.ok()) return attempt.status();
  if (!HasParts(attempt->shards)) {
    const storage::ShardReader& shard = *attempt->shards.front();
    const std::vector<storage::ShardEntry>& entries = shard.index().entries;
    const auto found =
        std::ranges::find_if(entries, [&](const storage::ShardEntry& entry) { return entry.spec.name == name; });
    if (found == entries.end()) {
      return absl::NotFoundError(fmt::format("step {} has no entry '{}'", step, storage::PrintableText(name)));
    }
    const auto entry = static_cast<size_t>(found - entries.begin());
    return ReadBytes(shard.path(), name, shard.RawBytes(entry), window,
                     [&](uint64_t offset, std::span<std::byte> destination) {
                       const storage::EntryRead one{.entry = entry, .destination = destination, .begin = offset};
                       return shard.Read({&one, 1}, read);
                     });
  }
  StepInfo info;
  info.step = step;
  const StoredStep whole(std::move(info), std::move(attempt->shards), read);
  const std::vector<EntryParts> all = JoinEntries(whole.contents);
  const auto parts = std::ranges::find_if(all, [&](const EntryParts& entry) { return entry.spec.name == name; });
  if (parts == all.end()) {
    return absl::NotFoundError(fmt::format("step {} has no entry '{}'", step, storage::PrintableText(name)));
  }
  // Memory is taken only for what is there.
  if (!window) {
    if (absl::Status status = CheckIsThere(whole.contents, *parts, WholeBox(parts->spec.shape)); !status.ok())
      return status;
  }
  return ReadBytes(fmt::format("step {}", step), name, parts->bytes, window,
                   [&](uint64_t offset, std::span<std::byte> destination) {
                     const RangeRead range{.parts = &*parts, .offset = offset, .destination = destination};
                     return ReadRanges(whole, {&range, 1});
                   });
}

}  // namespace tidemark
