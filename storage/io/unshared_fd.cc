#include "storage/io/unshared_fd.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "storage/io/check.h"

namespace tidemark::storage {

struct UnsharedFd::Entry {
  int fd = -1;
  Entry* previous = nullptr;
  Entry* next = nullptr;
};

namespace {

// All entries of the process. The mutex is held while the process is forked, so that the child finds the list whole.
// It is a std::mutex, because the child's only thread may unlock that. absl::Mutex does not promise this.
struct OpenFiles {
  std::mutex mutex;
  UnsharedFd::Entry* first = nullptr;
  uint64_t forks = 0;
};

// "/proc/self/fd/N", made without functions that allocate: a forked child of a process with threads may not call those.
struct ProcPath {
  explicit ProcPath(int fd) {
    char digits[16];
    int count = 0;
    for (; fd > 0 || count == 0; fd /= 10) digits[count++] = static_cast<char>('0' + fd % 10);
    char* end = text + sizeof(kFolder) - 1;
    while (count > 0) *end++ = digits[--count];
    *end = '\0';
  }
  static constexpr char kFolder[] = "/proc/self/fd/";
  char text[sizeof(kFolder) + 16] = "/proc/self/fd/";
};

// Replaces the open file that the child shares with its parent by one of its own. Keeps O_DIRECT and the like.
// O_NONBLOCK: the opening of a fifo would wait for a writer, and the fork with it.
bool OpenAnew(int fd) {
  constexpr int kStatusFlags = O_DIRECT | O_NOATIME;
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) != O_RDONLY || (flags & O_PATH) != 0) return false;
  const int own = open(ProcPath(fd).text, O_RDONLY | O_CLOEXEC | O_NONBLOCK | (flags & kStatusFlags));
  if (own < 0) return false;
  const bool replaced = fcntl(own, F_SETFL, flags) == 0 && dup3(own, fd, O_CLOEXEC) >= 0;
  close(own);
  return replaced;
}

OpenFiles& Files();

void BeforeFork() { Files().mutex.lock(); }

void InParent() {
  ++Files().forks;
  Files().mutex.unlock();
}

// Only calls that are safe in a signal handler: another thread may have held any lock of the C library's.
void InForkedChild() {
  const int error = errno;
  for (UnsharedFd::Entry* entry = Files().first; entry != nullptr; entry = entry->next) {
    if (OpenAnew(entry->fd)) continue;
    close(entry->fd);
    entry->fd = -1;
  }
  Files().mutex.unlock();
  errno = error;
}

OpenFiles& Files() {
  static OpenFiles& files = *[] {
    Check(pthread_atfork(BeforeFork, InParent, InForkedChild) == 0, "pthread_atfork has no memory for its handlers");
    return new OpenFiles;
  }();
  return files;
}

}  // namespace

UnsharedFd::UnsharedFd() = default;

UnsharedFd::UnsharedFd(UniqueFd fd) {
  if (!fd.valid()) return;
  entry_ = std::make_unique<Entry>();
  OpenFiles& files = Files();
  const std::lock_guard lock(files.mutex);
  entry_->fd = fd.Release();
  entry_->next = files.first;
  if (files.first != nullptr) files.first->previous = entry_.get();
  files.first = entry_.get();
}

UnsharedFd::UnsharedFd(UnsharedFd&& other) noexcept = default;

UnsharedFd& UnsharedFd::operator=(UnsharedFd&& other) noexcept {
  const UniqueFd old(Release());
  entry_ = std::move(other.entry_);
  return *this;
}

UnsharedFd::~UnsharedFd() { const UniqueFd old(Release()); }

int UnsharedFd::get() const { return entry_ == nullptr ? -1 : entry_->fd; }

int UnsharedFd::Release() {
  if (entry_ == nullptr) return -1;
  OpenFiles& files = Files();
  const std::unique_ptr<Entry> entry = std::move(entry_);
  const std::lock_guard lock(files.mutex);
  (entry->previous == nullptr ? files.first : entry->previous->next) = entry->next;
  if (entry->next != nullptr) entry->next->previous = entry->previous;
  return entry->fd;
}

uint64_t UnsharedFd::Forks() {
  OpenFiles& files = Files();
  const std::lock_guard lock(files.mutex);
  return files.forks;
}

}  // namespace tidemark::storage
