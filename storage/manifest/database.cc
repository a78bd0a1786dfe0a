#include "storage/manifest/database.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "fmt/format.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"
#include "storage/io/check.h"
#include "storage/io/errno_status.h"
#include "storage/io/printable_text.h"
#include "storage/manifest/rocks_env.h"
#include "storage/manifest/rocks_threads.h"
#include "storage/shard/ids.h"

namespace tidemark::storage {
namespace {

// What RocksDB keeps in memory and in its log before it writes a table. Opening the database reads through as much of
// the log: a few milliseconds. (To write a table when closing it would not do: that is work for RocksDB's threads, and
// a process that was forked has none.)
constexpr size_t kWriteBufferBytes = 512 << 10;

// What FileSystem called the failure of a file, with its words at the end of one of the lines. Only that a file is
// missing means what RocksDB says.
std::optional<absl::StatusCode> CodeOfFile(std::string_view text) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::optional<absl::StatusCode> code = ErrnoCodeOf(text.substr(0, end));
    if (code && *code != absl::StatusCode::kNotFound) return code;
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return std::nullopt;
}

// To be called by the thread that has called RocksDB, with the FileFailures of before that: RocksDB may take a file's
// failure for damage, or for something else. Whatever it says then, nothing is known about what is there.
absl::Status FromRocks(const rocksdb::Status& status, std::string_view operation, const std::string& path) {
  const absl::Status file_failure = FileFailures::Take();
  if (status.ok()) return absl::OkStatus();
  absl::StatusCode code = absl::StatusCode::kInternal;
  if (status.IsNotFound() || status.IsPathNotFound()) code = absl::StatusCode::kNotFound;
  if (status.IsCorruption()) code = absl::StatusCode::kDataLoss;
  if (status.IsNoSpace() || status.IsMemoryLimit()) code = absl::StatusCode::kResourceExhausted;
  if (status.IsBusy() || status.IsTryAgain()) code = absl::StatusCode::kUnavailable;
  if (status.IsNotSupported()) code = absl::StatusCode::kUnimplemented;
  std::string text = status.ToString();
  if (const std::optional<absl::StatusCode> of_file = CodeOfFile(text)) {
    code = *of_file;
    // Without RocksDB's own name for the error: that name always says that the disk has no room.
    if (status.getState() != nullptr) text = status.getState();
  } else if (!file_failure.ok()) {
    code = file_failure.code();
    text = fmt::format("{}; before that: {}", text, std::string(file_failure.message()));
  }
  return absl::Status(code, fmt::format("{} manifest {}: {}", operation, path, PrintableText(text)));
}

// Calls RocksDB, which throws if it cannot start one of its threads or has no memory.
rocksdb::Status CallRocks(absl::FunctionRef<rocksdb::Status()> call) {
  try {
    return call();
  } catch (const std::system_error& error) {
    return rocksdb::Status::MemoryLimit("a thread cannot be started", error.what());
  } catch (const std::bad_alloc&) {
    return rocksdb::Status::MemoryLimit("there is no memory");
  }
}

// The same; sets `threw` if RocksDB throws anything.
rocksdb::Status CallRocks(std::atomic<bool>& threw, absl::FunctionRef<rocksdb::Status()> call) {
  return CallRocks([&] {
    try {
      return call();
    } catch (...) {
      threw = true;
      throw;
    }
  });
}

// Of the first database that a process opens to write, the timer runs at once; of a later one, after some seconds.
rocksdb::Status OpenToWriteAt(rocksdb::Options options, const std::string& path, std::atomic<bool>& threw,
                              rocksdb::DB** db) {
  constexpr absl::Duration kTimerStart = absl::Milliseconds(100);  // some 0.1 ms, unless the machine is busy
  static std::atomic<bool> is_first = true;
  return CallRocks(threw, [&] {
    const auto logger = std::make_shared<NullLogger>();
    options.info_log = logger;
    rocksdb::Status status = rocksdb::DB::Open(options, path, db);
    if (status.ok() && is_first.exchange(false)) {
      RunPoolThreads(*options.env);
      logger->AwaitTimer(kTimerStart);
    }
    return status;
  });
}

rocksdb::Options MakeOptions(rocksdb::Env& env) {
  rocksdb::Options options;
  options.env = &env;
  // Records are small and few: memory and background work are kept to what a guest in a training process may take.
  options.write_buffer_size = kWriteBufferBytes;
  options.max_background_jobs = 1;
  options.max_file_opening_threads = 1;  // else an opening starts 15 threads, for one table
  options.compression = rocksdb::kNoCompression;
  options.info_log = std::make_shared<NullLogger>();
  options.fail_if_options_file_error = false;  // rocks_env.cc refuses that file
  options.stats_dump_period_sec = 0;
  options.stats_persist_period_sec = 0;
  // Opening would read each table's properties, to plan compactions that a database of this size does not need.
  options.skip_stats_update_on_db_open = true;
  return options;
}

constexpr size_t kNameBytesMax = 4096;

// What a database's list of its files, its MANIFEST, looks like: the id that RocksDB gave the database when it was
// made, the list's name and its size. It grows before a log that it makes superfluous is removed; so while the stamp
// stays as it is, every log that counts is there. What cannot be read is left out: who opens the database is told why.
std::string StampList(FileSystem& files, const std::string& path) {
  const std::string database = ReadSmallFile(files, path + "/IDENTITY", kNameBytesMax).value_or("");
  std::string name = ReadSmallFile(files, path + "/CURRENT", kNameBytesMax).value_or("");
  if (name.ends_with('\n')) name.pop_back();
  uint64_t bytes = 0;
  // A name that is damaged must not lead elsewhere.
  if (name.find('/') == std::string::npos) {
    if (auto list = files.OpenForRead(path + "/" + name, /*direct=*/false); list.ok()) {
      bytes = (*list)->Size().value_or(0);
    }
  }
  return fmt::format("{} {} {}", database, name, bytes);
}

// The same, with what is in the list: a changed byte can make the rest of it look like what a crash has cut off. Empty
// where any of it cannot be read.
std::string StampListContents(FileSystem& files, const std::string& path) {
  constexpr size_t kListBytesMax = 64 << 20;
  const absl::StatusOr<std::string> database = ReadSmallFile(files, path + "/IDENTITY", kNameBytesMax);
  std::string name = ReadSmallFile(files, path + "/CURRENT", kNameBytesMax).value_or("/");
  if (name.ends_with('\n')) name.pop_back();
  if (!database.ok() || name.find('/') != std::string::npos) return "";
  const absl::StatusOr<std::string> list = ReadSmallFile(files, path + "/" + name, kListBytesMax);
  if (!list.ok()) return "";
  return fmt::format("{} {} {} {:016x}", *database, name, list->size(), ChecksumOf(std::as_bytes(std::span(*list))));
}

struct Opened {
  std::unique_ptr<rocksdb::DB> db;
  std::string stamp;
};

// Opens a database to read that may have a live writer. RocksDB reads the list of files first and then whatever logs it
// finds: a table that is written in between takes a log along, of which nobody says that it is missing. So a database
// counts as read if its list was the same before and after.
absl::StatusOr<Opened> OpenBesideWriter(FileSystem& files, const std::string& path, std::string_view operation,
                                        absl::FunctionRef<rocksdb::Status(rocksdb::DB**)> open) {
  constexpr int kTries = 20;
  absl::Status status;
  for (int i = 0; i < kTries; ++i) {
    std::string stamp = StampList(files, path);
    rocksdb::DB* opened = nullptr;
    const FileFailures failures;
    status = FromRocks(CallRocks([&] { return open(&opened); }), operation, path);
    std::unique_ptr<rocksdb::DB> db(opened);
    if (!status.ok()) continue;
    if (StampList(files, path) == stamp) return Opened{.db = std::move(db), .stamp = std::move(stamp)};
    status = absl::UnavailableError(
        fmt::format("{} manifest {}: another process changed it during every attempt", operation, path));
  }
  return status;
}

// Called after RocksDB has opened a database. kDataLoss: a log that it read is damaged, so the records behind the
// damage are not in the database.
absl::Status DamageOfLogs() {
  absl::Status failure = FileFailures::Take();
  return absl::IsDataLoss(failure) ? failure : absl::OkStatus();
}

// RocksDB silently passes over a table that a follower cannot open, because the writer may not have written it yet. A
// reader that does not follow gets an error, so that is tried first. Such a reader also reads only the logs that are
// needed. A follower also reads logs whose records are in tables already.
absl::StatusOr<Opened> OpenSecondary(FileSystem& files, rocksdb::Env& env, const std::string& path) {
  rocksdb::Options options = MakeOptions(env);
  options.max_open_files = -1;
  return OpenBesideWriter(files, path, "follow", [&](rocksdb::DB** db) {
    rocksdb::DB* readable = nullptr;
    rocksdb::Status status = rocksdb::DB::OpenForReadOnly(options, path, &readable);
    delete readable;
    if (!status.ok()) return status;
    if (absl::Status damage = DamageOfLogs(); !damage.ok()) {
      return rocksdb::Status::Corruption(std::string(damage.message()));
    }
    // The second path is a folder for the diary; since that goes elsewhere, it is never made.
    return rocksdb::DB::OpenAsSecondary(options, path, path + "/diary", db);
  });
}

// Opens a database to read it as it is now. `*log_damage`: see DamageOfLogs.
absl::StatusOr<Opened> OpenToRead(FileSystem& files, rocksdb::Env& env, const std::string& path,
                                  absl::Status* log_damage) {
  const rocksdb::Options options = MakeOptions(env);
  absl::Status damage;
  absl::StatusOr<Opened> opened = OpenBesideWriter(files, path, "open", [&](rocksdb::DB** db) {
    const rocksdb::Status status = rocksdb::DB::OpenForReadOnly(options, path, db);
    if (status.ok()) damage = DamageOfLogs();
    return status;
  });
  if (opened.ok() && !damage.ok()) {
    *log_damage =
        absl::DataLossError(fmt::format("read manifest {}: {}", path, PrintableText(std::string(damage.message()))));
  }
  return opened;
}

}  // namespace

Database::Database(FileSystem& files, std::unique_ptr<rocksdb::Env> env, const std::string& path, rocksdb::DB* db,
                   Mode mode, std::string list_as_opened)
    : files_(files),
      path_(path),
      mode_(mode),
      list_as_opened_(std::move(list_as_opened)),
      env_(std::move(env)),
      db_(db) {}

Database::~Database() {
  absl::MutexLock lock(&mutex_);
  Drop();
}

void Database::Drop() {
  const FileFailures failures;  // RocksDB is called
  // What Close throws would end the process in the destructor.
  if (rocksdb::DB* const db = db_.get(); db != nullptr && !threw_) CallRocks(threw_, [db] { return db->Close(); });
  if (threw_) {
    AbandonRocksEnv(std::move(env_), std::move(db_));
    threw_ = false;
  } else {
    db_.reset();
  }
}

bool Database::IsUsable() const { return db_ != nullptr && !threw_; }

std::string Database::SettleList() {
  // A compaction would end in the list.
  absl::Status status = Use([&](rocksdb::DB& db) { return Translate(db.PauseBackgroundWork(), "settle"); });
  return status.ok() ? StampListContents(files_, path_) : "";
}

absl::StatusOr<std::unique_ptr<Database>> Database::Create(FileSystem& files, const std::string& path) {
  std::unique_ptr<rocksdb::Env> env = NewRocksEnv(files);
  rocksdb::Options options = MakeOptions(*env);
  options.create_if_missing = true;
  options.error_if_exists = true;
  rocksdb::DB* db = nullptr;
  const FileFailures failures;
  std::atomic<bool> threw = false;
  const rocksdb::Status opened = OpenToWriteAt(options, path, threw, &db);
  if (threw) AbandonRocksEnv(std::move(env), nullptr);
  // error_if_exists is reported as an invalid argument, like many other things: the text tells them apart.
  if (opened.IsInvalidArgument() && opened.ToString().find("exists (error_if_exists") != std::string::npos) {
    return absl::AlreadyExistsError(fmt::format("create manifest {}: it already exists", path));
  }
  if (!opened.ok()) return FromRocks(opened, "create", path);
  return std::unique_ptr<Database>(new Database(files, std::move(env), path, db, Mode::kWrite));
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(FileSystem& files, const std::string& path) {
  std::unique_ptr<rocksdb::Env> env = NewRocksEnv(files);
  std::string list = StampListContents(files, path);
  rocksdb::DB* db = nullptr;
  const FileFailures failures;
  std::atomic<bool> threw = false;
  const rocksdb::Status opened = OpenToWriteAt(MakeOptions(*env), path, threw, &db);
  if (threw) AbandonRocksEnv(std::move(env), nullptr);
  if (opened.IsInvalidArgument() && opened.ToString().find("does not exist (create_if_missing") != std::string::npos) {
    return absl::NotFoundError(fmt::format("open manifest {}: there is none", path));
  }
  if (!opened.ok()) return FromRocks(opened, "open", path);
  return std::unique_ptr<Database>(new Database(files, std::move(env), path, db, Mode::kWrite, std::move(list)));
}

absl::StatusOr<std::unique_ptr<Database>> Database::OpenReadOnly(FileSystem& files, const std::string& path) {
  std::unique_ptr<rocksdb::Env> env = NewRocksEnv(files, LogDamage::kEnds);
  absl::Status log_damage;
  absl::StatusOr<Opened> opened = OpenToRead(files, *env, path, &log_damage);
  if (!opened.ok()) return opened.status();
  std::unique_ptr<Database> database(new Database(files, std::move(env), path, opened->db.release(), Mode::kRead));
  database->log_damage_ = std::move(log_damage);
  return database;
}

absl::StatusOr<std::unique_ptr<Database>> Database::OpenFollowing(FileSystem& files, const std::string& path) {
  std::unique_ptr<rocksdb::Env> env = NewRocksEnv(files, LogDamage::kEnds);
  absl::StatusOr<Opened> opened = OpenSecondary(files, *env, path);
  if (!opened.ok()) return opened.status();
  std::unique_ptr<Database> database(new Database(files, std::move(env), path, opened->db.release(), Mode::kFollow));
  absl::MutexLock lock(&database->mutex_);
  database->list_stamp_ = std::move(opened->stamp);
  return database;
}

absl::StatusOr<bool> Database::CatchUp() {
  Check(mode_ == Mode::kFollow, "catch-up of a database that was not opened to follow another process");
  absl::MutexLock lock(&mutex_);
  // RocksDB reads on by itself. But if a table was written meanwhile, it may miss the end of a log, or prefer an old
  // value to the table's. So it reads on by itself only in logs. It also does not report every log that it could not
  // read.
  if (IsUsable() && StampList(files_, path_) == list_stamp_) {
    const rocksdb::SequenceNumber before = db_->GetLatestSequenceNumber();
    const FileFailures failures;
    rocksdb::DB& db = *db_;
    const rocksdb::Status status = CallRocks(threw_, [&] { return db.TryCatchUpWithPrimary(); });
    if (status.ok() && FileFailures::Take().ok() && StampList(files_, path_) == list_stamp_)
      return db_->GetLatestSequenceNumber() != before;
  }
  // One that threw is abandoned with its Env.
  std::unique_ptr<rocksdb::Env> env = threw_ || env_ == nullptr ? NewRocksEnv(files_, LogDamage::kEnds) : nullptr;
  absl::StatusOr<Opened> opened = OpenSecondary(files_, env != nullptr ? *env : *env_, path_);
  if (!opened.ok()) return opened.status();
  if (env != nullptr) {
    Drop();
    env_ = std::move(env);
  }
  db_ = std::move(opened->db);
  list_stamp_ = std::move(opened->stamp);
  return true;
}

absl::Status Database::Use(absl::FunctionRef<absl::Status(rocksdb::DB&)> use) {
  absl::Status status = UseOpen(use);
  if (absl::IsDataLoss(status)) damage_found_ = true;
  return status;
}

absl::Status Database::Scan(std::string_view prefix,
                            absl::FunctionRef<bool(std::string_view key, std::string_view value)> visit) {
  return Use([&](rocksdb::DB& db) {
    const rocksdb::Slice first(prefix.data(), prefix.size());
    const std::unique_ptr<rocksdb::Iterator> it(db.NewIterator({}));
    for (it->Seek(first); it->Valid() && it->key().starts_with(first); it->Next()) {
      if (!visit({it->key().data(), it->key().size()}, {it->value().data(), it->value().size()})) break;
    }
    return Translate(it->status(), "scan");
  });
}

absl::Status Database::UseOpen(absl::FunctionRef<absl::Status(rocksdb::DB&)> use) {
  for (;;) {
    {
      absl::ReaderMutexLock lock(&mutex_);
      const FileFailures failures;
      if (IsUsable()) {
        absl::Status status;
        rocksdb::DB& db = *db_;
        const rocksdb::Status called = CallRocks(threw_, [&] {
          status = use(db);
          return rocksdb::Status::OK();
        });
        return called.ok() ? status : Translate(called, "use");
      }
    }
    absl::MutexLock lock(&mutex_);
    if (absl::Status status = EnsureOpen(); !status.ok()) return status;
  }
}

absl::Status Database::UseDurable(absl::FunctionRef<absl::Status(rocksdb::DB&)> use) {
  for (;;) {
    if (broken_) {
      absl::MutexLock lock(&mutex_);
      if (absl::Status status = broken_ ? OpenToWrite() : absl::OkStatus(); !status.ok()) return status;
    }
    bool broken_since = false;
    absl::Status status = Use([&](rocksdb::DB& db) {
      broken_since = broken_;
      return broken_since ? absl::OkStatus() : use(db);
    });
    if (!broken_since) return status;
  }
}

absl::Status Database::Write(rocksdb::WriteBatch& batch, Sync sync) {
  bool open_anew = false;
  {
    absl::ReaderMutexLock lock(&mutex_);
    open_anew = broken_ || HasBackgroundError();
  }
  if (open_anew) {
    absl::MutexLock lock(&mutex_);
    if (broken_ || HasBackgroundError()) {
      if (absl::Status status = OpenToWrite(); !status.ok()) return status;
    }
  }
  rocksdb::WriteOptions options;
  options.sync = sync == Sync::kYes;
  return Use([&](rocksdb::DB& db) {
    if (is_stand_in_) {
      return absl::UnavailableError(fmt::format("write manifest {}: it is open for reading only", path_));
    }
    const rocksdb::Status status = CallRocks(threw_, [&] { return db.Write(options, &batch); });
    if (!status.ok() && mode_ == Mode::kWrite) broken_ = true;
    return Translate(status, "write");
  });
}

// A table that RocksDB's own threads could not write. It takes no write after that; what the table was to hold is in
// its logs.
bool Database::HasBackgroundError() {
  const FileFailures failures;  // RocksDB is called
  uint64_t errors = 0;
  return IsUsable() && db_->GetIntProperty(rocksdb::DB::Properties::kBackgroundErrors, &errors) && errors > 0;
}

absl::Status Database::Translate(const rocksdb::Status& status, std::string_view operation) const {
  return FromRocks(status, operation, path_);
}

absl::Status Database::EnsureOpen() {
  if (IsUsable()) return absl::OkStatus();
  if (mode_ != Mode::kWrite) return OpenAnewToRead();
  const absl::Status status = OpenToWrite();
  if (status.ok()) return status;
  if (threw_) return status;
  rocksdb::DB* readable = nullptr;
  const rocksdb::Options options = MakeOptions(*env_);
  if (!CallRocks(threw_, [&] { return rocksdb::DB::OpenForReadOnly(options, path_, &readable); }).ok()) return status;
  db_.reset(readable);
  is_stand_in_ = true;
  return absl::OkStatus();
}

// In the place of what an exception has passed through. A follower learns by its next CatchUp that something may have
// changed.
absl::Status Database::OpenAnewToRead() {
  Drop();
  list_stamp_.clear();
  if (env_ == nullptr) env_ = NewRocksEnv(files_, LogDamage::kEnds);
  absl::Status log_damage;
  absl::StatusOr<Opened> opened =
      mode_ == Mode::kFollow ? OpenSecondary(files_, *env_, path_) : OpenToRead(files_, *env_, path_, &log_damage);
  if (!opened.ok()) return opened.status();
  // The records behind the damage were there before.
  if (!log_damage.ok() && log_damage_.ok()) return log_damage;
  db_ = std::move(opened->db);
  return absl::OkStatus();
}

// In the place of what was open.
absl::Status Database::OpenToWrite() {
  Drop();
  is_stand_in_ = false;
  if (env_ == nullptr) env_ = NewRocksEnv(files_);
  rocksdb::DB* reopened = nullptr;
  const FileFailures failures;
  const rocksdb::Status status = OpenToWriteAt(MakeOptions(*env_), path_, threw_, &reopened);
  broken_ = !status.ok();
  if (status.ok()) {
    db_.reset(reopened);
    return absl::OkStatus();
  }
  absl::Status why = Translate(status, "reopen");
  if (absl::IsDataLoss(why)) damage_found_ = true;
  return why;
}

}  // namespace tidemark::storage
