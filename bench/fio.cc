#include "bench/fio.h"

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_replace.h"
#include "bench/process.h"
#include "fmt/format.h"

namespace tidemark::bench {
namespace {

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

std::vector<std::string> Arguments(const FioJob& job) {
  // fio takes a colon for the end of a file name.
  const std::string path = absl::StrReplaceAll(job.path, {{":", "\\:"}});
  std::vector<std::string> arguments = {"fio",
                                        "--name=tidemark-bench",
                                        "--filename=" + path,
                                        "--ioengine=io_uring",
                                        "--direct=1",
                                        fmt::format("--bs={}", job.block_bytes),
                                        fmt::format("--iodepth={}", job.depth),
                                        "--output-format=json"};
  if (job.direction == FioDirection::kWrite) {
    arguments.insert(arguments.end(),
                     {fmt::format("--size={}", job.bytes), "--rw=write", "--fallocate=posix", "--end_fsync=1"});
  } else {
    // Parts begin at whole blocks, as direct reads must.
    const auto readers = static_cast<uint64_t>(job.readers);
    const uint64_t part = job.bytes / readers / job.block_bytes * job.block_bytes;
    const uint64_t size = readers > 1 && part > 0 ? part : job.bytes;
    arguments.insert(arguments.end(),
                     {fmt::format("--size={}", size), "--rw=read", "--readonly", "--group_reporting",
                      fmt::format("--numjobs={}", part > 0 ? readers : 1), fmt::format("--offset_increment={}", part)});
  }
  return arguments;
}

}  // namespace

absl::StatusOr<double> ParseFioRate(std::string_view json, FioDirection direction) {
  // Warnings may stand before the object.
  const size_t begin = json.find('{');
  const nlohmann::json parsed = begin == std::string_view::npos
                                    ? nlohmann::json()
                                    : nlohmann::json::parse(json.substr(begin), nullptr, /*allow_exceptions=*/false);
  try {
    const nlohmann::json& job = parsed.at("jobs").at(0);
    if (const int error = job.at("error").get<int>(); error != 0) {
      return absl::InternalError(fmt::format("fio: its job failed with error {}", error));
    }
    const nlohmann::json& side = job.at(direction == FioDirection::kWrite ? "write" : "read");
    const auto bytes = side.at("io_bytes").get<double>();
    const auto milliseconds = side.at("runtime").get<double>();
    if (bytes <= 0 || milliseconds <= 0) {
      return absl::InternalError(fmt::format("fio: {} bytes in {} ms are no rate", bytes, milliseconds));
    }
    return bytes / milliseconds * 1000;
  } catch (const nlohmann::json::exception& error) {
    return absl::InternalError(fmt::format("fio: its report is not what was expected: {}", error.what()));
  }
}

absl::StatusOr<double> RunFio(const FioJob& job) {
  absl::StatusOr<ProcessOutput> output = RunProcess(Arguments(job));
  if (!output.ok()) return output.status();
  if (output->exit_code != 0) {
    return absl::InternalError(
        fmt::format("fio on {}: exit code {}: {}", job.path, output->exit_code, FirstLine(output->err)));
  }
  return ParseFioRate(output->out, job.direction);
}

std::string FioProblem(const std::string& folder) {
  absl::StatusOr<ProcessOutput> version = RunProcess({"fio", "--version"});
  if (absl::IsNotFound(version.status())) return "fio is not installed";
  if (!version.ok()) return std::string(version.status().message());
  const FioJob probe{.path = folder + "/fio-probe", .bytes = 1 << 20};
  absl::StatusOr<double> rate = RunFio(probe);
  std::error_code ignored;
  std::filesystem::remove(probe.path, ignored);
  return rate.ok() ? std::string() : std::string(rate.status().message());
}

}  // namespace tidemark::bench
