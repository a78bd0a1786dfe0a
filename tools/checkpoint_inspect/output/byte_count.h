// Numbers of bytes as a user gives them. All options that take one have the same units.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_BYTE_COUNT_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_BYTE_COUNT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "CLI/CLI.hpp"

namespace tidemark::inspect {

// "5GB", "512MiB", "1000": kB (or KB), MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB of 1024. nullopt: no
// such whole number above 0, or more than 64 bits can hold.
std::optional<uint64_t> ParseByteCount(std::string_view text);

// An option that takes such a number; what is none is a usage error. `target` must live as long as the command.
CLI::Option* AddByteCount(CLI::App* command, const std::string& name, uint64_t& target, const std::string& description);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_BYTE_COUNT_H_
