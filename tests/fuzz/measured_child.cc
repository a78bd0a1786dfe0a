#include "tests/fuzz/measured_child.h"

#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "tests/storage/io/sanitizers.h"

namespace tidemark::fuzz {
namespace {

constexpr int64_t kMemoryKibMax = storage::kAddressSanitizer ? 2 << 20 : 256 << 10;
constexpr double kSecondsMax = storage::kAddressSanitizer ? 20 : 2;
constexpr unsigned kHangSeconds = 300;

// What takes long does so every time; a machine that was slow for a while is another matter.
constexpr int kTries = 3;

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

// What InMeasuredChild returns; `seconds`: of a processor, that it took.
std::string RunInChild(const std::function<std::string()>& body, double* seconds) {
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  malloc_trim(0);  // else the child starts with what this process has freed
  const pid_t child = fork();
  if (child < 0) std::abort();
  if (child == 0) {
    alarm(kHangSeconds);
    const std::string answer = body();
    _exit(write(ends[1], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string answer;
  char buffer[4096];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof(buffer))) > 0;) answer.append(buffer, size);
  close(ends[0]);
  int how = 0;
  rusage usage = {};
  wait4(child, &how, 0, &usage);
  EXPECT_LE(usage.ru_maxrss, kMemoryKibMax);
  *seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  return how == 0 ? answer : fmt::format("died of {:#x}: {}", how, answer);
}

}  // namespace

std::string InMeasuredChild(const std::function<std::string()>& body) {
  double seconds = 0;
  std::string answer = RunInChild(body, &seconds);
  for (int i = 1; i < kTries && seconds > kSecondsMax; ++i) answer = RunInChild(body, &seconds);
  EXPECT_LE(seconds, kSecondsMax);
  return answer;
}

}  // namespace tidemark::fuzz
