#include "storage/store/lease.h"

#include <unistd.h>

#include <chrono>
#include <fstream>
#include <set>
#include <span>
#include <stdexcept>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "storage/bytes/checked_encoding.h"
#include "storage/io/exception_status.h"
#include "storage/io/printable_text.h"
#include "storage/records/json_fields.h"

namespace tidemark::storage {
namespace {

constexpr std::string_view kSuffix = ".lease";
constexpr size_t kIdDigits = 32;

// Names of holder and evaluator, many times over.
constexpr size_t kNoteBytesMax = 16 * 1024;

// A lease is empty from its making until its note is written, two system calls later, and from being locked by who
// found it dead until it is removed. Much longer than that, and short enough for the workers that wait for it.
constexpr absl::Duration kEmptyNoteExpiry = absl::Seconds(10);
// Whoever holds it would have renewed it, and thereby written the note anew.
constexpr absl::Duration kUnreadableNoteExpiry = absl::Hours(1);

// While others take the lock for the moment that it takes them to remove what is dead.
constexpr int kAcquireTriesMax = 100;

absl::Duration DecodeExpiry(const Json& json) {
  const absl::Duration expiry = absl::Nanoseconds(DecodeInt64(json));
  if (expiry <= absl::ZeroDuration() || expiry > kLeaseExpiryMax) {
    throw std::invalid_argument(fmt::format("an expiry of {}", absl::FormatDuration(expiry)));
  }
  return expiry;
}

std::string Describe(const LeaseNote& note) {
  return fmt::format("step {} is leased by {} (evaluator {})", note.step, PrintableText(note.holder),
                     PrintableText(note.evaluator));
}

absl::StatusOr<std::string> EncodeToWrite(const LeaseNote& note) {
  auto encoded =
      EncodeAndCheck(fmt::format("the note of a lease on step {}", note.step), note, EncodeLeaseNote, DecodeLeaseNote);
  if (!encoded.ok()) return encoded.status();
  return std::move(encoded->bytes);
}

}  // namespace

std::string EncodeLeaseNote(const LeaseNote& note) {
  return DumpJson(JsonObject("version", kLeaseNoteVersion, "step", note.step, "attempt", ToHex(note.attempt.bytes),
                             "evaluator", note.evaluator, "holder", note.holder, "machine", note.machine, "expiry_ns",
                             absl::ToInt64Nanoseconds(note.expiry), "renewals", note.renewals, "lease",
                             ToHex(note.lease))) +
         "\n";
}

absl::StatusOr<LeaseNote> DecodeLeaseNote(std::string_view bytes) {
  return DecodeJson<LeaseNote>("lease note", bytes, kLeaseNoteVersion, [](const Json& json) {
    LeaseNote note;
    note.step = DecodeStep(json.at("step"));
    note.attempt = DecodeId<AttemptId>(json.at("attempt"));
    note.evaluator = json.at("evaluator").get<std::string>();
    note.holder = json.at("holder").get<std::string>();
    note.machine = json.at("machine").get<std::string>();
    note.expiry = DecodeExpiry(json.at("expiry_ns"));
    note.renewals = DecodeUnsigned<uint64_t>(json.at("renewals"));
    note.lease = DecodeId<AttemptId>(json.at("lease")).bytes;
    return note;
  });
}

std::string LeaseFileName(const AttemptId& attempt, std::string_view evaluator) {
  return fmt::format("{}-{}{}", ToHex(attempt.bytes), ToHex(DigestOf(std::as_bytes(std::span(evaluator))).bytes),
                     kSuffix);
}

std::optional<AttemptId> AttemptOfLeaseFile(std::string_view name) {
  if (name.size() != 2 * kIdDigits + 1 + kSuffix.size() || name[kIdDigits] != '-' || !name.ends_with(kSuffix)) {
    return std::nullopt;
  }
  const auto attempt = FromHex(name.substr(0, kIdDigits));
  if (!attempt || !FromHex(name.substr(kIdDigits + 1, kIdDigits))) return std::nullopt;
  return AttemptId{*attempt};
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return std::getline(file, id) ? id : "";
}

std::string ThisMachine() {
  if (std::string id = BootId(); !id.empty()) return id;
  char host[256] = "unknown";
  gethostname(host, sizeof(host) - 1);
  return host;
}

absl::Time MonotonicNow() {
  return absl::UnixEpoch() + absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
}

Lease::Lease(FileSystem& files, std::string path, LeaseNote note, std::unique_ptr<FileLock> lock)
    : files_(files), path_(std::move(path)), process_(getpid()), note_(std::move(note)), lock_(std::move(lock)) {}

// A lease that was taken for dead is not there, empty, or another's. What a failed write of our own left is ours.
absl::StatusOr<bool> Lease::IsStillHeld() const {
  absl::StatusOr<std::string> bytes = files_.ReadNote(path_, kNoteBytesMax);
  if (absl::IsNotFound(bytes.status())) return false;
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<LeaseNote> there = DecodeLeaseNote(*bytes);
  return there.ok() ? there->lease == note_.lease : !written_ && !bytes->empty();
}

absl::Status Lease::Renew() {
  absl::StatusOr<bool> held = IsStillHeld();
  if (!held.ok()) return held.status();
  if (!*held) {
    return absl::AbortedError(
        fmt::format("renew lease {}: it was not renewed within its expiry of {}, so another process removed it", path_,
                    absl::FormatDuration(note_.expiry)));
  }
  ++note_.renewals;
  const absl::StatusOr<std::string> bytes = EncodeToWrite(note_);
  if (!bytes.ok()) return bytes.status();
  absl::Status status = lock_->WriteNote(*bytes);
  written_ = status.ok();
  return status;
}

Lease::~Lease() {
  if (getpid() != process_) return;
  // A file that cannot be removed, as where there is no memory for its path, is a dead lease, since it is not locked.
  BestEffort([this] {
    if (absl::StatusOr<bool> held = IsStillHeld(); held.ok() && *held) files_.RemoveFile(path_).IgnoreError();
  });
}

LeaseObserver::LeaseObserver(FileSystem& files, const StoreLayout& layout, std::string machine,
                             std::function<absl::Time()> now)
    : files_(files), layout_(layout), machine_(std::move(machine)), now_(std::move(now)) {}

bool LeaseObserver::StoodStill(const std::string& name, const std::string& bytes, absl::Duration expiry) {
  const absl::Time now = now_();
  // What was left standing by who asked for it once, and never again.
  std::erase_if(sightings_, [&](const auto& other) {
    return other.first != name && now - other.second.since > 2 * kLeaseExpiryMax;
  });
  const auto [sighting, first] = sightings_.try_emplace(name, Sighting{bytes, now});
  if (!first && sighting->second.note != bytes) sighting->second = {bytes, now};
  return now - sighting->second.since >= expiry;
}

// What a lease's file says of it without its lock.
LeaseObserver::Look LeaseObserver::LookAt(const std::string& name, const AttemptId& attempt) {
  Look look;
  look.held.note.attempt = attempt;
  absl::StatusOr<std::string> bytes = files_.ReadNote(layout_.leases() + "/" + name, kNoteBytesMax);
  if (absl::IsNotFound(bytes.status())) {
    sightings_.erase(name);
    return look;
  }
  look.life = Life::kLive;
  look.bytes = bytes.value_or("");
  absl::StatusOr<LeaseNote> note = bytes.ok() ? DecodeLeaseNote(*bytes) : bytes.status();
  if (note.ok() && LeaseFileName(note->attempt, note->evaluator) != name) {
    note = absl::DataLossError("its note is another lease's");
  }
  if (note.ok()) {
    look.held.note = *std::move(note);
    const bool local = look.held.note.machine == machine_;
    if (local) sightings_.erase(name);
    if (local || StoodStill(name, *bytes, look.held.note.expiry)) look.life = Life::kByLock;
    return look;
  }
  look.held.readable = false;
  look.held.problem = fmt::format("{}/{}: {}", layout_.leases(), name, std::string(note.status().message()));
  if (!bytes.ok() || absl::IsUnimplemented(note.status())) return look;
  if (StoodStill(name, *bytes, bytes->empty() ? kEmptyNoteExpiry : kUnreadableNoteExpiry)) {
    look.life = Life::kByLock;
  } else if (bytes->empty()) {
    look.held.problem.clear();  // its holder has just locked the file, and has not written the note yet
  }
  return look;
}

absl::StatusOr<std::unique_ptr<Lease>> LeaseObserver::Acquire(LeaseNote note) {
  note.machine = machine_;
  note.renewals = 0;
  note.lease = RandomBytes16();
  const std::string name = LeaseFileName(note.attempt, note.evaluator);
  const std::string path = layout_.leases() + "/" + name;
  if (note.expiry <= absl::ZeroDuration() || note.expiry > kLeaseExpiryMax) {
    return absl::InvalidArgumentError(fmt::format("lease {}: an expiry of {}; it must be more than 0 and at most {}",
                                                  path, absl::FormatDuration(note.expiry),
                                                  absl::FormatDuration(kLeaseExpiryMax)));
  }
  const absl::StatusOr<std::string> bytes = EncodeToWrite(note);
  if (!bytes.ok()) return bytes.status();
  if (bytes->size() > kNoteBytesMax / 2) {  // room for the renewals to grow
    return absl::InvalidArgumentError(
        fmt::format("lease {}: a note of {} bytes; at most {} are allowed", path, bytes->size(), kNoteBytesMax / 2));
  }
  absl::Status made = files_.CreateDirectory(layout_.leases());
  if (!made.ok() && !absl::IsAlreadyExists(made)) return made;
  for (int tries = 0; tries < kAcquireTriesMax; ++tries) {
    if (tries > 0) std::this_thread::yield();
    Look look = LookAt(name, note.attempt);
    if (look.life == Life::kLive) {
      if (look.held.readable) return absl::UnavailableError(Describe(look.held.note));
      if (look.bytes.empty()) continue;  // just being taken, or removed
      return absl::UnavailableError(fmt::format("it may be leased: {}", look.held.problem));
    }
    absl::StatusOr<std::unique_ptr<FileLock>> lock = files_.TryLock(path);
    if (lock.ok()) {
      sightings_.erase(name);
      return Take(path, note, *bytes, *std::move(lock));
    }
    if (!absl::IsUnavailable(lock.status())) return lock.status();
    look = LookAt(name, note.attempt);
    if (look.life != Life::kNone && look.held.readable) return absl::UnavailableError(Describe(look.held.note));
  }
  return absl::UnavailableError(
      fmt::format("lease {} is being taken by a process that has not written its note yet", path));
}

absl::StatusOr<std::unique_ptr<Lease>> LeaseObserver::Take(const std::string& path, const LeaseNote& note,
                                                           const std::string& bytes, std::unique_ptr<FileLock> lock) {
  if (absl::Status status = lock->WriteNote(bytes); !status.ok()) {
    files_.RemoveFile(path).IgnoreError();
    return status;
  }
  // Where locks do not reach, another machine may have taken it at the same time.
  absl::StatusOr<std::string> there = files_.ReadNote(path, kNoteBytesMax);
  if (!there.ok() && !absl::IsNotFound(there.status())) {
    files_.RemoveFile(path).IgnoreError();
    return there.status();
  }
  if (!there.ok() || *there != bytes) {
    return absl::UnavailableError(fmt::format("lease {} was taken by another machine at the same time", path));
  }
  return std::unique_ptr<Lease>(new Lease(files_, path, note, std::move(lock)));
}

absl::StatusOr<std::vector<LeaseObserver::Held>> LeaseObserver::Live() {
  absl::StatusOr<std::vector<DirectoryEntry>> entries = files_.ListDirectory(layout_.leases());
  if (absl::IsNotFound(entries.status())) entries = std::vector<DirectoryEntry>();
  if (!entries.ok()) return entries.status();
  std::vector<Held> live;
  std::set<std::string> names;
  for (const DirectoryEntry& entry : *entries) {
    const std::optional<AttemptId> attempt = AttemptOfLeaseFile(entry.name);
    if (!attempt || entry.type != FileType::kRegular) continue;
    names.insert(entry.name);
    Look look = LookAt(entry.name, *attempt);
    if (look.life == Life::kByLock) {
      const std::string path = layout_.leases() + "/" + entry.name;
      absl::StatusOr<std::unique_ptr<FileLock>> lock = files_.TryLock(path);
      if (lock.ok()) {
        // A file that cannot be removed gets its note back, so that the next look finds it dead, too.
        if (files_.RemoveFile(path).ok()) {
          sightings_.erase(entry.name);
        } else {
          (*lock)->WriteNote(look.bytes).IgnoreError();
        }
        continue;
      }
      look.life = Life::kLive;  // also where the lock cannot be asked
    }
    if (look.life == Life::kLive) live.push_back(std::move(look.held));
  }
  std::erase_if(sightings_, [&](const auto& sighting) { return !names.contains(sighting.first); });
  return live;
}

}  // namespace tidemark::storage
