#include "bench/rss_probe.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <system_error>
#include <vector>

#include "bench/process.h"
#include "bench/training_state.h"
#include "fmt/format.h"
#include "storage/io/machine.h"
#include "tidemark/async_checkpointer.h"
#include "tidemark/torch.h"

namespace tidemark::bench {
namespace {

// VmRSS or VmHWM of this process.
absl::StatusOr<uint64_t> ResidentBytes(std::string_view name) {
  std::ifstream file("/proc/self/status");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const std::string value = storage::ValueOf(text, name);  // "1234 kB"
  uint64_t kib = 0;
  if (std::from_chars(value.data(), value.data() + value.size(), kib).ec != std::errc()) {
    return absl::InternalError(fmt::format("/proc/self/status: {} is '{}', not a size", name, value));
  }
  return kib * 1024;
}

}  // namespace

absl::StatusOr<uint64_t> MeasureSaveMemory(const std::string& directory, uint64_t bytes, size_t tensors) {
  TorchState state;
  AddRandomTensors(state, bytes, tensors);
  absl::StatusOr<uint64_t> before = ResidentBytes("VmRSS");
  if (!before.ok()) return before.status();
  auto checkpointer = AsyncCheckpointer::Open({.directory = directory});
  if (!checkpointer.ok()) return checkpointer.status();
  auto save = (*checkpointer)->Save(0, state);
  if (!save.ok()) return save.status();
  if (absl::Status committed = save->committed().Wait(); !committed.ok()) return committed;
  absl::StatusOr<uint64_t> peak = ResidentBytes("VmHWM");
  if (!peak.ok()) return peak.status();
  return *peak - std::min(*before, *peak);
}

absl::StatusOr<uint64_t> RunRssProbe(const std::string& directory, uint64_t bytes, size_t tensors) {
  std::error_code error;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe", error).string();
  absl::StatusOr<ProcessOutput> output =
      RunProcess({program, kRssProbeOption, directory, std::to_string(bytes), std::to_string(tensors)});
  if (!output.ok()) return output.status();
  uint64_t extra = 0;
  const char* const end = output->out.data() + output->out.size();
  if (output->exit_code != 0 || std::from_chars(output->out.data(), end, extra).ec != std::errc()) {
    return absl::InternalError(
        fmt::format("the probe of a save's memory: exit code {}: {}", output->exit_code, output->err));
  }
  return extra;
}

}  // namespace tidemark::bench
