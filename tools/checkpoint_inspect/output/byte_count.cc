#include "tools/checkpoint_inspect/output/byte_count.h"

#include <array>
#include <charconv>

#include "fmt/format.h"
#include "tools/checkpoint_inspect/output/text.h"

namespace tidemark::inspect {

std::optional<uint64_t> ParseByteCount(std::string_view text) {
  struct Unit {
    std::string_view name;
    uint64_t bytes;
  };
  constexpr auto kUnits = std::to_array<Unit>({{"", 1},
                                               {"B", 1},
                                               {"kB", 1'000},
                                               {"KB", 1'000},
                                               {"MB", 1'000'000},
                                               {"GB", 1'000'000'000},
                                               {"TB", 1'000'000'000'000},
                                               {"KiB", uint64_t{1} << 10},
                                               {"MiB", uint64_t{1} << 20},
                                               {"GiB", uint64_t{1} << 30},
                                               {"TiB", uint64_t{1} << 40}});
  uint64_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || count == 0) return std::nullopt;
  const std::string_view name = text.substr(static_cast<size_t>(end - text.data()));
  for (const Unit& unit : kUnits) {
    if (unit.name == name && !__builtin_mul_overflow(count, unit.bytes, &count)) return count;
  }
  return std::nullopt;
}

CLI::Option* AddByteCount(CLI::App* command, const std::string& name, uint64_t& target,
                          const std::string& description) {
  const auto set = [name, &target](const std::string& text) {
    const std::optional<uint64_t> bytes = ParseByteCount(text);
    if (!bytes) {
      throw CLI::ValidationError(fmt::format("{}: expected a size as 5GB or 512MiB, found '{}'", name, Escape(text)));
    }
    target = *bytes;
  };
  return command->add_option_function<std::string>(name, set, description)->type_name("SIZE");
}

}  // namespace tidemark::inspect
