#include "storage/journal/journal.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "storage/bytes/ids.h"
#include "storage/io/exception_status.h"
#include "storage/journal/journal_packing.h"
#include "storage/journal/journal_reader.h"

namespace tidemark::storage {
namespace {

// Numbers that an append tries. Eight processes that append as fast as they can need 4 to 6.
constexpr int kTriesMax = 100;
// Entries that an append carries. Where processes append one entry each, none of them knows that those before survive,
// and without a bound the n-th would carry n - 1.
constexpr EntryNumber kUnsettledMax = 64;
// The most entries that settle one whose sync has failed. After that many failures in a row the disk is broken.
constexpr int kSettlingsMax = 3;

std::string ParentOf(const std::string& directory) {
  const size_t slash = directory.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : directory.substr(0, slash);
}

// Makes the journal's folder; its name survives power loss.
absl::Status MakeJournal(FileSystem& files, const std::string& directory) {
  const auto parent = files.OpenDirectory(ParentOf(directory));
  if (!parent.ok()) return parent.status();
  absl::Status status = files.CreateDirectory(directory);
  const bool is_new = status.ok();
  if (!is_new && !absl::IsAlreadyExists(status)) return status;
  status = (*parent)->Sync();
  // No later sync would answer for the name.
  if (!status.ok() && is_new) files.RemoveDirectory(directory).IgnoreError();
  return status;
}

}  // namespace

Journal::Journal(FileSystem& files, std::string directory, std::unique_ptr<Directory> opened, const FileId& folder,
                 const JournalPlace& from, bool holds)
    : opened_(std::move(opened)),
      folder_(folder),
      holds_(holds),
      files_(files, std::move(directory)),
      appender_(JournalView(from)),
      visited_(from.number) {
  if (holds) files_.LookPastCaches();
}

absl::StatusOr<std::unique_ptr<Journal>> Journal::Open(FileSystem& files, std::string directory,
                                                       const JournalPlace& from, const JournalOptions& options) {
  if (options.create) {
    if (absl::Status status = MakeJournal(files, directory); !status.ok()) return status;
  }
  if (absl::Status status = files.ListDirectory(directory).status(); !status.ok()) return status;
  // Before anything of it is read.
  absl::StatusOr<std::unique_ptr<Directory>> opened = files.OpenDirectory(directory);
  if (!opened.ok()) return opened.status();
  const absl::StatusOr<FileId> folder = files.Identify(directory);
  if (!folder.ok()) return folder.status();
  JournalFiles read(files, directory);
  if (options.holds) read.LookPastCaches();
  if (absl::Status status = FindPlace(read, from); !status.ok()) return status;
  return std::unique_ptr<Journal>(
      new Journal(files, std::move(directory), *std::move(opened), *folder, from, options.holds));
}

absl::StatusOr<bool> Journal::IsReplaced() const {
  absl::MutexLock lock(&mutex_);
  return IsInAnotherFolder();
}

absl::StatusOr<bool> Journal::IsInAnotherFolder() const {
  const absl::StatusOr<FileId> folder = files_.file_system().Identify(files_.directory());
  if (!folder.ok()) return folder.status();
  return *folder != folder_;
}

// A number of the folder that was opened says nothing in another one.
absl::Status Journal::CheckPlace() const {
  const absl::StatusOr<bool> replaced = IsInAnotherFolder();
  if (!replaced.ok()) return replaced.status();
  if (!*replaced) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format("journal {} was made anew by another process", files_.directory()));
}

void Journal::ForgetVisible() {
  const JournalPlace from = appender_.view().dropped();
  appender_ = Appender(JournalView(from));
  has_listed_ = false;
}

absl::Status Journal::ReadNew(absl::FunctionRef<void()> learned) {
  JournalView& view = appender_.view();
  absl::StatusOr<EntryNumber> highest = 0;
  if (has_listed_) {
    const EntryNumber next = view.last().number + 1;
    const auto found = files_.Read(next);
    if (!found.ok()) return found.status();
    if (!found->has_value()) return absl::OkStatus();
    highest = files_.HighestAfter(next);
  } else {
    highest = files_.Highest();
  }
  if (!highest.ok()) return highest.status();
  absl::Status status = ReadEntries(files_, *highest, view, learned);
  if (status.ok()) has_listed_ = true;
  return status;
}

absl::Status Journal::Look(Visit visit) {
  absl::MutexLock lock(&mutex_);
  JournalView& view = appender_.view();
  const auto visit_established = [&] {
    mutex_.AssertHeld();
    for (const KnownEntry& known : view.entries()) {
      const EntryNumber number = known.place.number;
      if (number > view.established()) break;
      if (number > visited_) visit(known, true);
    }
    visited_ = view.established();
    view.Drop(visited_);
  };
  try {
    absl::Status status = ReadNew(visit_established);
    visit_established();
    if (!status.ok()) return status;
    for (const KnownEntry& known : view.entries()) visit(known, false);
    return absl::OkStatus();
  } catch (...) {
    ForgetVisible();
    throw;
  }
}

Appended Journal::Append(AppendDraft draft, Appender::FactCheck check, Room room) {
  absl::MutexLock lock(&mutex_);
  return AppendLocked(std::move(draft), check, room);
}

Appended Journal::Settle() {
  absl::MutexLock lock(&mutex_);
  const auto no_check = [](const JournalView&) { return absl::OkStatus(); };
  if (absl::Status status = ReadNew([] {}); !status.ok()) {
    return {.result = Appender::Result::kFailed, .status = std::move(status)};
  }
  const JournalView& view = appender_.view();
  if (view.established() == view.last().number) {
    return {.result = Appender::Result::kEstablished, .place = view.last()};
  }
  return AppendLocked({.kind = AppendDraft::Kind::kSettles}, no_check, Room::kReserve);
}

absl::StatusOr<std::string> Journal::WriteEntry(EntryNumber number, const std::string& bytes, Room room) {
  if (absl::Status status = files_.MakeFolder(number); !status.ok()) return status;
  if (holds_ && !std::exchange(has_found_left_, true)) spares_.FindLeft(files_, number - 1);
  const bool fits = bytes.size() <= kSpareBytes;
  const std::string padded = fits ? PadEntryFile(bytes, kSpareBytes) : "";
  if (fits) {
    auto path = spares_.Write(files_, number, padded, room == Room::kReserve);
    if (!path.ok()) return path.status();
    if (path->has_value()) return **std::move(path);
  }
  absl::StatusOr<std::string> written = files_.WriteNew(number, kNewPrefix, bytes);
  if (!fits || !absl::IsResourceExhausted(written.status())) return written;
  auto path = spares_.WriteOverLeft(files_, number, padded, room == Room::kReserve);
  if (!path.ok()) return path.status();
  return path->has_value() ? **std::move(path) : written;
}

Appended Journal::AppendLocked(AppendDraft draft, Appender::FactCheck check, Room room) {
  if (draft.id == EntryId()) draft.id = EntryId{RandomBytes16()};
  bool begun = false;
  try {
    // The check must not refuse because an entry that is there has not been read.
    if (absl::Status status = ReadNew([] {}); !status.ok()) {
      return {.result = Appender::Result::kFailed, .status = std::move(status), .id = draft.id};
    }
    const JournalView& view = appender_.view();
    if (draft.kind != AppendDraft::Kind::kSettles && view.last().number - view.established() > kUnsettledMax) {
      Appended settled = AppendLocked(
          {.kind = AppendDraft::Kind::kSettles}, [](const JournalView&) { return absl::OkStatus(); }, room);
      if (!settled.ok()) {
        return {.result = Appender::Result::kFailed, .status = std::move(settled.status), .id = draft.id};
      }
    }
    begun = true;
    Drive(draft, check, room);
    Appended appended{.result = appender_.result(), .status = appender_.status(), .id = draft.id};
    if (appended.ok()) appended.place = appender_.place();
    return appended;
  } catch (...) {
    // Most often there is no memory. The entry may have its name.
    ForgetVisible();
    return {.result = begun ? Appender::Result::kUnknown : Appender::Result::kFailed,
            .status = ExceptionStatus("append to", files_.directory()),
            .id = draft.id};
  }
}

absl::StatusOr<std::vector<std::optional<std::string>>> Journal::ReadAfterNaming(EntryNumber number) {
  const auto highest = files_.HighestAfter(number - 1);
  if (!highest.ok()) return highest.status();
  // A listing may lack what was named while it was made.
  auto read = ReadFiles(files_, std::max(*highest, number), appender_.view());
  if (!read.ok()) return read;
  while (!read->empty() && !read->back()) read->pop_back();
  return read;
}

void Journal::Drive(const AppendDraft& draft, Appender::FactCheck check, Room room) {
  int tries = 0;
  int settlings = 0;
  absl::Status why = absl::OkStatus();  // the last try did not end the append
  std::string file;                     // the path of what was written
  std::unique_ptr<Directory> directory;
  Appender::Step step = appender_.Begin(draft, check);
  while (step != Appender::Step::kNone) {
    const EntryNumber number = appender_.number();
    switch (step) {
      case Appender::Step::kWrite: {
        if (appender_.view().Find(draft.id) != nullptr) ++settlings;
        if (++tries > kTriesMax || settlings > kSettlingsMax) {
          const bool is_name = why.ok() || absl::IsAlreadyExists(why);
          step = appender_.Written(
              absl::Status(is_name ? absl::StatusCode::kUnavailable : why.code(),
                           fmt::format("append to {}: given up before entry {}, after {} tries: {}", files_.directory(),
                                       number, tries - 1, std::string(why.message()))));
          break;
        }
        auto written = WriteEntry(number, appender_.file(), room);
        absl::Status status = written.status();
        if (written.ok()) {
          file = *std::move(written);
          // Behind the writing: if the folder is replaced after this, the file is gone with it and cannot be named.
          status = CheckPlace();
          if (status.ok()) {
            auto opened = files_.file_system().OpenDirectory(files_.FolderOf(number));
            status = opened.status();
            if (status.ok()) directory = *std::move(opened);
          }
          if (!status.ok()) files_.file_system().RemoveFile(file).IgnoreError();
        }
        step = appender_.Written(status);
        break;
      }
      case Appender::Step::kName: {
        absl::Status status = files_.file_system().RenameToNew(file, files_.PathOf(number));
        // Another holder has taken the spare. It is as if it had taken the number: the next try tells.
        if (absl::IsNotFound(status)) status = absl::AlreadyExistsError(std::string(status.message()));
        // The name that it had, if it still has that one. Else the naming may have worked, and an old listing of a file
        // server must not hide that.
        if (!status.ok() && !files_.file_system().RemoveFile(file).ok()) files_.LookAfresh(number);
        why = status;
        step = appender_.Named(status);
        break;
      }
      case Appender::Step::kRead:
        step = appender_.Read(ReadAfterNaming(number), check);
        break;
      case Appender::Step::kSync: {
        absl::Status status = directory->Sync();
        if (!status.ok()) why = status;
        step = appender_.Synced(status, check);
        break;
      }
      case Appender::Step::kNone:
        break;
    }
  }
}

absl::Status Journal::Maintain() {
  if (!holds_) return absl::OkStatus();
  absl::MutexLock lock(&maintenance_);
  absl::Status status = MakeSpares();
  status.Update(PackNext());
  return status;
}

absl::Status Journal::MakeSpares() {
  std::vector<EntryNumber> numbers;
  std::optional<JournalFiles> files;
  {
    absl::MutexLock lock(&mutex_);
    // Before the first look it is not known where the next entry will be.
    if (!has_listed_) return absl::OkStatus();
    const EntryNumber last = appender_.view().last().number;
    for (const EntryNumber number : {last + 1, LastOfFolder(last + 1) + 1}) {
      if (absl::Status status = files_.MakeFolder(number); !status.ok()) return status;
    }
    if (!std::exchange(has_found_left_, true)) spares_.FindLeft(files_, last);
    numbers = spares_.Missing(last, kSparesMin);
    if (numbers.empty()) {
      numbers = spares_.Missing(last, kSparesMax);
      // One for the append before, and one more.
      numbers.resize(std::min<size_t>(numbers.size(), 2));
    }
    files.emplace(files_);
  }
  for (const EntryNumber number : numbers) {
    auto path = JournalSpares::Make(*files, number);
    if (!path.ok()) return path.status();
    absl::MutexLock lock(&mutex_);
    spares_.Add(number, *std::move(path));
  }
  std::vector<std::string> left;
  {
    absl::MutexLock lock(&mutex_);
    left = spares_.TakeLeft();
  }
  for (const std::string& path : left) files->file_system().RemoveFile(path).IgnoreError();
  return absl::OkStatus();
}

absl::Status Journal::PackNext() {
  std::optional<JournalFiles> files;
  EntryNumber established = 0;
  {
    absl::MutexLock lock(&mutex_);
    files.emplace(files_);
    established = appender_.view().established();
  }
  // The entry after a segment confirms it.
  const EntryNumber packable = established == 0 ? 0 : (established - 1) / kSegmentEntries * kSegmentEntries;
  // What has failed is tried again when there is another segment to pack.
  if (packed_ >= packable || packing_failed_at_ == packable) return absl::OkStatus();
  // The holder before may have packed more than this handle has seen. Segments are packed in order.
  EntryNumber found = packable;
  for (; found > packed_; found -= kSegmentEntries) {
    const auto is_packed = files->IsPacked(found);
    if (!is_packed.ok()) return is_packed.status();
    if (*is_packed) break;
  }
  packed_ = found;
  if (packed_ == packable) return absl::OkStatus();
  const EntryNumber last = packed_ + kSegmentEntries;
  if (absl::Status status = PackEntries(*files, packed_ + 1, last); !status.ok()) {
    packing_failed_at_ = packable;
    return status;
  }
  packed_ = last;
  return absl::OkStatus();
}

void Journal::LearnEstablished(const JournalPlace& place) {
  absl::MutexLock lock(&mutex_);
  appender_.view().LearnDurable(place);
}

void Journal::LookPastCaches() {
  absl::MutexLock lock(&mutex_);
  files_.LookPastCaches();
}

void Journal::LookAfresh() {
  absl::MutexLock lock(&mutex_);
  const EntryNumber next = appender_.view().last().number + 1;
  files_.LookAfresh(next);
}

JournalPlace Journal::last() const {
  absl::MutexLock lock(&mutex_);
  return appender_.view().last();
}

}  // namespace tidemark::storage
