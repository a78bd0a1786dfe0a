// What the store says, as JSON. docs/checkpoint-inspect.md has the schemas.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_JSON_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_JSON_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "nlohmann/json.hpp"
#include "tidemark/store_reader.h"
#include "tools/checkpoint_inspect/cli/console.h"

namespace tidemark::inspect {

// Keeps its fields in the order in which they were put in.
using Json = nlohmann::ordered_json;

// Parses JSON, independently of the process's locale, and keeps the order of keys. A discarded value: it is not JSON.
Json ParseOrdered(std::string_view text);

// Grows when a field goes away or changes its meaning; new fields leave it as it is.
inline constexpr int kSchemaVersion = 2;

// {"schema_version": .., "store": {..}}: the beginning of every document.
Json NewDocument(const StoreReader& reader, const std::string& directory);

Json ToJson(const StepInfo& info);
Json ToJson(const Evaluation& evaluation);
Json ToJson(const SavePhase& phase);
Json ToJson(const ShardInfo& shard);
Json ToJson(const ReferencedShard& shard);
Json ToJson(const StoredEntry& entry);

// A metric's value: a number, or "NaN", "Infinity", "-Infinity".
Json NumberToJson(double value);

// The user metadata as an object; null where the text is none, nests deeper than kMetadataDepthMax, or has more keys
// than kMetadataKeysMax in all of its objects together: each is looked for among those before it. So it is with more
// values than kMetadataValuesMax, itself and all that is in it: one takes some 60 bytes, and up to 2,850 where it is
// nested as deep as may be, most of them blanks before the lines that are printed. Of the 256 MiB that a command may
// take, a step of 100,000 entries leaves 118 MB: room for 2^15 of these.
inline constexpr int kMetadataDepthMax = 256;
inline constexpr size_t kMetadataKeysMax = size_t{1} << 13;
inline constexpr size_t kMetadataValuesMax = size_t{1} << 15;
Json MetadataToJson(const std::string& text);

// What follows "no JSON object of at most" where that is null: "8192 keys, 32768 values and a
// depth of 256".
std::string MetadataLimits();

// Indented, with a newline at the end, and in ASCII: what could harm a terminal is \u and four digits, as is every
// other character beyond. Bytes that are not UTF-8 become U+FFFD.
std::string Dump(const Json& document);

// The same on one line.
std::string DumpLine(const Json& value);

// Gives `write` piece by piece what Dump would return of `document`, an object that is not empty, if that had one more
// field at its end, `name`: an array. `add_all` gives the elements one after the other to the function that it gets,
// and none of them is kept: a store may have more steps, and a step more entries, than there is memory for their JSON.
using AddElements = std::function<void(const std::function<void(const Json&)>& add)>;
void WriteWithArray(const Json& document, const std::string& name, const AddElements& add_all,
                    const std::function<void(std::string_view text)>& write);

// The same to standard output.
void PrintWithArray(Console& console, const Json& document, const std::string& name, const AddElements& add_all);

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_OUTPUT_JSON_H_
