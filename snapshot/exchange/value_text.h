// Entries that are no tensors as text, for formats that have no other place for them. Pure functions.

#ifndef TIDEMARK_SNAPSHOT_EXCHANGE_VALUE_TEXT_H_
#define TIDEMARK_SNAPSHOT_EXCHANGE_VALUE_TEXT_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tidemark/entry.h"

namespace tidemark {

// The text of an entry that is no tensor: a number in decimal digits, as many as tell it from every other; "true" or
// "false"; a string as it is; bytes in base64.
std::string ValueText(const EntrySpec& spec, std::span<const std::byte> bytes);

// The kind with that name, unless it is a tensor's. nullopt: none has it.
std::optional<EntryKind> ParseValueKind(std::string_view name);

struct ParsedValue {
  EntrySpec spec;  // without a name
  std::vector<std::byte> bytes;
};

// The other way round. nullopt: no value of this kind has that text, to the letter. Which NaN it was the text does not
// say. Precondition: `kind` is not kTensor.
std::optional<ParsedValue> ParseValueText(EntryKind kind, std::string_view text);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_EXCHANGE_VALUE_TEXT_H_
