// What CheckpointerOptions and SaveOptions allow, and what they mean for the layers below.

#ifndef TIDEMARK_SNAPSHOT_CHECKPOINTER_OPTIONS_H_
#define TIDEMARK_SNAPSHOT_CHECKPOINTER_OPTIONS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "storage/shard/read/shard_reader.h"
#include "storage/shard/write/shard_writer.h"
#include "tidemark/async_checkpointer.h"

namespace tidemark {

// kInvalidArgument names the field, its value and the legal range.
absl::Status ValidateOptions(const CheckpointerOptions& options);

// kInvalidArgument: no JSON object, or too long.
absl::Status ValidateUserMetadata(const std::string& text);

// kInvalidArgument: a name is empty, longer than EntrySpec::kNameBytesMax, or not UTF-8. The message begins with
// `owner`, the option or the evaluator that the metrics are of.
absl::Status ValidateMetrics(std::string_view owner, const std::map<std::string, double>& metrics);

// Threads that Tuning::codec_threads asks for; 1 or more.
int CodecThreads(const Tuning& tuning);

storage::ShardWriterOptions WriterOptions(const CheckpointerOptions& options);

// How long a save may compress everything (Compression::kAuto): a quarter of the time in which it has to be committed.
// The uncompressed rest may have to be written in the remaining time.
absl::Duration CompressionMax(const CheckpointerOptions& options);
storage::ShardReadOptions ReadOptions(const Tuning& tuning);

}  // namespace tidemark

#endif  // TIDEMARK_SNAPSHOT_CHECKPOINTER_OPTIONS_H_
