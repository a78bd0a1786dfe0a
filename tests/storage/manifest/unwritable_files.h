// A disk that takes no more, for this process alone.

#ifndef TIDEMARK_TESTS_STORAGE_MANIFEST_UNWRITABLE_FILES_H_
#define TIDEMARK_TESTS_STORAGE_MANIFEST_UNWRITABLE_FILES_H_

#include <signal.h>
#include <sys/resource.h>

namespace tidemark::storage {

// While it lives, no file can be written to, as on a disk that is full or failed; directories can be made.
class UnwritableFiles {
 public:
  UnwritableFiles() : handler_(signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &limit_);
    const rlimit none = {.rlim_cur = 0, .rlim_max = limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &none);
  }
  ~UnwritableFiles() {
    setrlimit(RLIMIT_FSIZE, &limit_);
    signal(SIGXFSZ, handler_);
  }

 private:
  const sighandler_t handler_;
  rlimit limit_ = {};
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_MANIFEST_UNWRITABLE_FILES_H_
