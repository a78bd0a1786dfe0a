// For tests in which more files are needed than may be open at once.

#ifndef TIDEMARK_TESTS_STORAGE_IO_FEW_DESCRIPTORS_H_
#define TIDEMARK_TESTS_STORAGE_IO_FEW_DESCRIPTORS_H_

#include <sys/resource.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace tidemark::storage {

// As long as it lives, the process can open at most `count` files besides those that it has.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t count) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const int next = dup(0);  // descriptors below it are taken
    EXPECT_GE(next, 0);
    close(next);
    rlimit few = before_;
    few.rlim_cur = static_cast<rlim_t>(next) + count;
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  }
  ~FewDescriptors() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_FEW_DESCRIPTORS_H_
