// Whether a thread of this process waits for something, as the kernel tells it.

#ifndef TIDEMARK_TESTS_SNAPSHOT_SLEEPING_THREAD_H_
#define TIDEMARK_TESTS_SNAPSHOT_SLEEPING_THREAD_H_

#include <sys/types.h>

#include <fstream>
#include <string>

namespace tidemark {

// True as well for one that has ended. `thread`: as gettid gives it.
inline bool Sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string text;
  std::getline(file, text);
  const size_t behind_name = text.rfind(") ");
  return behind_name == std::string::npos || text[behind_name + 2] == 'S';
}

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_SLEEPING_THREAD_H_
