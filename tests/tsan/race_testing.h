#pragma once

// For the tests of what ThreadSanitizer sees.

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <thread>

inline void RunBoth(const std::function<void()>& first, const std::function<void()>& second) {
  std::thread one(first);
  std::thread other(second);
  one.join();
  other.join();
}

// A process that has reported a race, and exits as if it had not.
inline void ExpectReported(const std::function<void()>& race) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        race();
        std::exit(0);
      },
      testing::ExitedWithCode(66), "ThreadSanitizer: data race");
}
