#include "storage/journal/appender.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"
#include "storage/bytes/byte_reader.h"
#include "storage/io/check.h"

namespace tidemark::storage {
namespace {

// The id of the n-th entry that settles the entry `id`. It is unique because `id` is random.
EntryId SettlingId(const EntryId& id, uint64_t n) {
  return EntryId{DigestOf(AsBytes(fmt::format("{} settled by {}", ToHex(id.bytes), n))).bytes};
}

}  // namespace

Appender::Step Appender::Begin(AppendDraft draft, FactCheck check) {
  Check(step_ == Step::kNone, "an append begins before the one before it has ended");
  draft_ = std::move(draft);
  settlings_ = 0;
  result_ = Result::kPending;
  status_ = absl::OkStatus();
  return Try(check);
}

Appender::Step Appender::Try(FactCheck check) {
  const bool settles = IsNamed() || draft_.kind == AppendDraft::Kind::kSettles;
  entry_ = JournalEntry{.number = view_.last().number + 1,
                        .id = draft_.id,
                        .durable = view_.established(),
                        .previous = view_.last().digest};
  if (IsNamed()) {
    entry_.id = SettlingId(draft_.id, ++settlings_);
  } else if (!settles) {
    entry_.facts = draft_.facts;
    if (draft_.kind == AppendDraft::Kind::kBeginsEpoch) {
      entry_.epoch = std::max(view_.last().epoch + 1, draft_.epoch);
      entry_.begins_epoch = true;
    } else if (draft_.kind == AppendDraft::Kind::kHolder) {
      entry_.epoch = draft_.epoch;
      if (view_.last().epoch != draft_.epoch) {
        return End(Result::kRefused,
                   absl::AbortedError(fmt::format("another process has opened the store for writing since: its epoch "
                                                  "is {}, this process's is {}",
                                                  view_.last().epoch, draft_.epoch)));
      }
    }
    if (absl::Status status = check(view_); !status.ok()) return End(Result::kRefused, std::move(status));
  }
  EntryFile file{.entry = entry_};
  for (const KnownEntry& known : view_.entries()) {
    if (known.place.number > view_.established()) file.carried.push_back(known.entry);
  }
  auto bytes = EncodeEntryFile(file);
  if (!bytes.ok()) return End(IsNamed() ? Result::kUnknown : Result::kFailed, bytes.status());
  file_ = *std::move(bytes);
  return step_ = Step::kWrite;
}

Appender::Step Appender::Written(const absl::Status& status) {
  Check(step_ == Step::kWrite, "an answer to a write that was not asked for");
  if (!status.ok()) return End(IsNamed() ? Result::kUnknown : Result::kFailed, status);
  return step_ = Step::kName;
}

Appender::Step Appender::Named(const absl::Status& status) {
  Check(step_ == Step::kName, "an answer to a naming that was not asked for");
  named_ = status;
  return step_ = Step::kRead;
}

Appender::Step Appender::Read(const absl::StatusOr<std::vector<std::optional<std::string>>>& files, FactCheck check) {
  Check(step_ == Step::kRead, "an answer to a reading that was not asked for");
  // Whatever the naming answered, the entry may have its name.
  if (!files.ok()) return End(Result::kUnknown, files.status());
  if (absl::Status status = view_.Learn(*files); !status.ok()) return End(Result::kUnknown, std::move(status));
  if (IsSettled()) return End(Result::kEstablished);
  if (view_.Find(entry_.id) != nullptr) return step_ = Step::kSync;
  // A name that exists is another entry's, or was lost: the next try tells. Any other error is the caller's to know.
  if (!named_.ok() && !absl::IsAlreadyExists(named_)) {
    return End(IsNamed() ? Result::kUnknown : Result::kFailed, named_);
  }
  return Try(check);
}

Appender::Step Appender::Synced(const absl::Status& status, FactCheck check) {
  Check(step_ == Step::kSync, "an answer to a sync that was not asked for");
  if (!status.ok()) return Try(check);
  view_.LearnDurable(view_.Find(entry_.id)->place);
  return End(Result::kEstablished);
}

bool Appender::IsSettled() {
  const KnownEntry* entry = view_.Find(draft_.id);
  return entry != nullptr && entry->place.number <= view_.established();
}

Appender::Step Appender::End(Result result, absl::Status status) {
  result_ = result;
  status_ = std::move(status);
  if (result == Result::kEstablished) place_ = view_.Find(draft_.id)->place;
  return step_ = Step::kNone;
}

}  // namespace tidemark::storage
