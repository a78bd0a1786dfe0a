// The machine that a number was measured on: without it the number means nothing.

#ifndef TIDEMARK_STORAGE_IO_MACHINE_H_
#define TIDEMARK_STORAGE_IO_MACHINE_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace tidemark::storage {

struct Machine {
  std::string cpu;  // the model's name, or "unknown"
  unsigned cores = 0;
  uint64_t memory_bytes = 0;
  std::string kernel;       // "Linux 6.1.0-26-amd64"
  std::string file_system;  // of the folder that is written to: "ext4 on /dev/vda1", or "unknown"
};

Machine DescribeMachine(const std::string& folder);

// The value of "name : value" or "name: value" in a text of such lines, like /proc/cpuinfo; "" if there is none.
std::string ValueOf(std::string_view text, std::string_view name);

// "TYPE on SOURCE" of the mount that `path` (absolute, without links) is in, from the text of /proc/self/mountinfo.
std::string FileSystemOf(std::string_view mount_info, std::string_view path);

}  // namespace tidemark::storage

#endif  // TIDEMARK_STORAGE_IO_MACHINE_H_
