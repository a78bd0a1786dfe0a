#include "storage/index/database.h"

#include <algorithm>
#include <cstdint>
#include <new>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "fmt/format.h"
#include "rocksdb/options.h"
#include "rocksdb/write_batch.h"
#include "storage/index/log_blocks.h"
#include "storage/index/rocks_env.h"
#include "storage/index/rocks_threads.h"
#include "storage/io/errno_status.h"
#include "storage/io/printable_text.h"

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
  return absl::Status(code, fmt::format("{} database {}: {}", operation, path, PrintableText(text)));
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

// What a database's list of its files, its MANIFEST, looks like: the id that RocksDB gave the database when it was
// made, the list's name and its size. It grows before a log that it makes superfluous is removed; so while the stamp
// stays as it is, every log that counts is there. What cannot be read is left out: who opens the database is told why.
constexpr size_t kNameBytesMax = 4096;

// Empty where the name is damaged: it must not lead elsewhere.
absl::StatusOr<std::string> NameOfList(FileSystem& files, const std::string& path) {
  absl::StatusOr<std::string> name = ReadSmallFile(files, path + "/CURRENT", kNameBytesMax);
  if (name.ok() && name->ends_with('\n')) name->pop_back();
  if (name.ok() && name->find('/') != std::string::npos) name->clear();
  return name;
}

std::string StampList(FileSystem& files, const std::string& path) {
  const std::string database = ReadSmallFile(files, path + "/IDENTITY", kNameBytesMax).value_or("");
  const std::string name = NameOfList(files, path).value_or("");
  uint64_t bytes = 0;
  if (auto list = files.OpenForRead(path + "/" + name, /*direct=*/false); list.ok()) {
    bytes = (*list)->Size().value_or(0);
  }
  return fmt::format("{} {} {}", database, name, bytes);
}

// Before a database is opened to be written. RocksDB takes a list whose end is damaged for one whose end was not
// written; then tables are missing, and the log's newest records say nothing of that.
absl::Status CheckList(FileSystem& files, const std::string& path) {
  constexpr size_t kListBytesMax = 64 << 20;
  const absl::StatusOr<std::string> name = NameOfList(files, path);
  if (absl::IsNotFound(name.status()) || (name.ok() && name->empty())) return absl::OkStatus();  // RocksDB says it
  if (!name.ok()) return name.status();
  const absl::StatusOr<std::string> bytes = ReadSmallFile(files, path + "/" + *name, kListBytesMax);
  if (!bytes.ok()) return absl::IsNotFound(bytes.status()) ? absl::OkStatus() : bytes.status();
  for (size_t begin = 0; begin < bytes->size(); begin += kLogBlockBytes) {
    const std::string_view block = std::string_view(*bytes).substr(begin, kLogBlockBytes);
    const SoundRecords sound = FindSoundRecords(block, kLogBlockBytes);
    if (sound.bytes == block.size()) continue;
    return absl::DataLossError(fmt::format("open database {}: its list of files is damaged at byte {}: {}", path,
                                           begin + sound.bytes,
                                           sound.damage.empty() ? "a record is incomplete" : sound.damage));
  }
  return absl::OkStatus();
}

// Opens a database to read that may have a live writer. RocksDB reads the list of files first, and then the logs that
// it finds. If the writer makes a table of a log in between, it removes the log, and RocksDB does not notice that the
// log is missing. So the database counts as read only if its list of files was the same before and after.
absl::StatusOr<std::unique_ptr<rocksdb::DB>> OpenBesideWriter(
    FileSystem& files, const std::string& path, absl::FunctionRef<rocksdb::Status(rocksdb::DB**)> open) {
  constexpr int kTries = 20;
  absl::Status status;
  for (int i = 0; i < kTries; ++i) {
    const std::string stamp = StampList(files, path);
    rocksdb::DB* opened = nullptr;
    const FileFailures failures;
    status = FromRocks(CallRocks([&] { return open(&opened); }), "open", path);
    std::unique_ptr<rocksdb::DB> db(opened);
    if (!status.ok()) continue;
    if (StampList(files, path) == stamp) return db;
    status = absl::UnavailableError(
        fmt::format("open database {}: another process changed it during every attempt", path));
  }
  return status;
}

}  // namespace

Database::Database(std::unique_ptr<rocksdb::Env> env, const std::string& path, rocksdb::DB* db)
    : path_(path), env_(std::move(env)), db_(db) {}

Database::~Database() {
  const FileFailures failures;  // RocksDB is called
  // What Close throws would end the process in the destructor.
  if (!threw_) CallRocks(threw_, [this] { return db_->Close(); });
  if (threw_) AbandonRocksEnv(std::move(env_), std::move(db_));
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
    return absl::AlreadyExistsError(fmt::format("create database {}: it already exists", path));
  }
  if (!opened.ok()) return FromRocks(opened, "create", path);
  return std::unique_ptr<Database>(new Database(std::move(env), path, db));
}

absl::StatusOr<std::unique_ptr<Database>> Database::Open(FileSystem& files, const std::string& path) {
  if (absl::Status status = CheckList(files, path); !status.ok()) return status;
  std::unique_ptr<rocksdb::Env> env = NewRocksEnv(files);
  rocksdb::DB* db = nullptr;
  const FileFailures failures;
  std::atomic<bool> threw = false;
  const rocksdb::Status opened = OpenToWriteAt(MakeOptions(*env), path, threw, &db);
  if (threw) AbandonRocksEnv(std::move(env), nullptr);
  if (opened.IsInvalidArgument() && opened.ToString().find("does not exist (create_if_missing") != std::string::npos) {
    return absl::NotFoundError(fmt::format("open database {}: there is none", path));
  }
  if (!opened.ok()) return FromRocks(opened, "open", path);
  return std::unique_ptr<Database>(new Database(std::move(env), path, db));
}

absl::StatusOr<std::unique_ptr<Database>> Database::OpenReadOnly(FileSystem& files, const std::string& path) {
  std::unique_ptr<rocksdb::Env> env = NewRocksEnv(files, LogDamage::kEnds);
  const rocksdb::Options options = MakeOptions(*env);
  absl::Status damage;
  absl::StatusOr<std::unique_ptr<rocksdb::DB>> opened = OpenBesideWriter(files, path, [&](rocksdb::DB** db) {
    const rocksdb::Status status = rocksdb::DB::OpenForReadOnly(options, path, db);
    if (!status.ok()) return status;
    // kDataLoss: a log that it read is damaged, so the records behind the damage are not in the database. A log that it
    // could not open it passes over.
    damage = FileFailures::Take();
    if (damage.ok() || absl::IsDataLoss(damage)) return status;
    return rocksdb::Status::IOError(std::string(damage.message()));
  });
  if (!opened.ok()) return opened.status();
  std::unique_ptr<Database> database(new Database(std::move(env), path, opened->release()));
  if (!damage.ok()) {
    database->log_damage_ =
        absl::DataLossError(fmt::format("read database {}: {}", path, PrintableText(std::string(damage.message()))));
  }
  return database;
}

absl::Status Database::Use(absl::FunctionRef<absl::Status(rocksdb::DB&)> use) {
  absl::Status status = Call(use);
  if (!status.ok()) {
    absl::MutexLock lock(&failure_mutex_);
    failure_.Update(status);
  }
  return status;
}

absl::Status Database::Call(absl::FunctionRef<absl::Status(rocksdb::DB&)> use) {
  if (threw_) {
    return absl::ResourceExhaustedError(
        fmt::format("database {} is not used any more after an exception within RocksDB", path_));
  }
  const FileFailures failures;
  absl::Status status;
  const rocksdb::Status called = CallRocks(threw_, [&] {
    status = use(*db_);
    return rocksdb::Status::OK();
  });
  return called.ok() ? status : Translate(called, "use");
}

absl::Status Database::failure() const {
  absl::MutexLock lock(&failure_mutex_);
  return failure_;
}

absl::Status Database::Write(rocksdb::WriteBatch& batch) {
  return Use([&](rocksdb::DB& db) { return Translate(db.Write({}, &batch), "write"); });
}

absl::Status Database::Translate(const rocksdb::Status& status, std::string_view operation) const {
  return FromRocks(status, operation, path_);
}

}  // namespace tidemark::storage
