#include "storage/shard/shard_writer.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "storage/shard/aligned_buffer.h"
#include "storage/shard/block_stream.h"
#include "storage/shard/byte_reader.h"
#include "storage/shard/encode_pipeline.h"

namespace tidemark::storage {
namespace {

absl::Status InvalidEntry(const ShardContents::Entry& entry, std::string_view problem) {
  return absl::InvalidArgumentError(fmt::format("entry '{}': {}", entry.spec.name.substr(0, 200), problem));
}

absl::Status ValidateContents(const ShardIdentity& identity, const ShardContents& contents) {
  if (identity.step < 0 || identity.rank >= identity.world_size) {
    return absl::InvalidArgumentError(
        fmt::format("shard identity: expected a step of 0 or more and a rank below the world size, found step {}, rank "
                    "{}, world size {}",
                    identity.step, identity.rank, identity.world_size));
  }
  absl::flat_hash_set<std::string_view, std::hash<std::string_view>> names;
  std::vector<uint64_t> sizes;
  for (const ShardContents::Entry& entry : contents.entries) {
    uint64_t bytes = 0;
    if (auto status = ValidateEntry(entry.spec, &bytes); !status.ok()) return status;
    if (!names.insert(entry.spec.name).second) return InvalidEntry(entry, "another entry has the same name");
    if (entry.alias_of >= static_cast<int64_t>(sizes.size())) {
      return InvalidEntry(entry, fmt::format("expected to be tied to an earlier entry, found {}", entry.alias_of));
    }
    const uint64_t found = entry.alias_of < 0 ? entry.bytes.size() : sizes[entry.alias_of];
    if (found != bytes) return InvalidEntry(entry, fmt::format("expected {} bytes, found {}", bytes, found));
    sizes.push_back(bytes);
  }
  return ValidateShardTexts(contents.metrics, contents.user_metadata, contents.properties);
}

// The index but for what is known only when the chunks are encoded, and the chunks to encode, in its order.
struct Plan {
  ShardIndex index;
  std::vector<EncodePipeline::Task> tasks;
  uint64_t logical_bytes = 0;
  uint64_t data_bytes_max = 0;  // of the chunks, if all are stored raw
};

Plan MakePlan(const ShardContents& contents, uint32_t chunk_bytes) {
  Plan plan;
  plan.index.created_unix_ns = contents.created_unix_ns;
  plan.index.blocked_ns = contents.blocked_ns;
  plan.index.metrics = contents.metrics;
  plan.index.user_metadata = contents.user_metadata;
  plan.index.properties = contents.properties;
  plan.index.entries.reserve(contents.entries.size());
  for (const ShardContents::Entry& entry : contents.entries) {
    ShardEntry& record = plan.index.entries.emplace_back();
    record.spec = entry.spec;
    if (entry.alias_of >= 0) {
      record.first_chunk = plan.index.entries[entry.alias_of].first_chunk;
      record.chunk_count = plan.index.entries[entry.alias_of].chunk_count;
      continue;
    }
    if (entry.bytes.empty()) continue;
    record.first_chunk = plan.tasks.size();
    for (size_t start = 0; start < entry.bytes.size(); start += chunk_bytes) {
      const size_t size = std::min<size_t>(chunk_bytes, entry.bytes.size() - start);
      plan.tasks.push_back({entry.bytes.subspan(start, size), GetDtypeInfo(entry.spec.dtype).float_bytes});
      plan.data_bytes_max += size >= kAlignedChunkBytesMin ? AlignUp(size) + kDirectAlignment : size;
    }
    record.chunk_count = plan.tasks.size() - record.first_chunk;
    plan.logical_bytes += entry.bytes.size();
  }
  plan.index.chunks.resize(plan.tasks.size());
  return plan;
}

}  // namespace

struct ShardWriter::Impl {
  Impl(FileSystem& files, const ShardWriterOptions& options, std::unique_ptr<EncodePipeline> pipeline,
       std::unique_ptr<IoQueue> queue)
      : files(files),
        options(options),
        stream(options.io_depth + 1),  // one to fill while the disk has the others
        pipeline(std::move(pipeline)),
        queue(std::move(queue)) {}

  absl::Status WriteChunks(const std::function<bool()>& cancelled, std::vector<ChunkRecord>* chunks);
  absl::Status WriteAll(File* file, const ShardIdentity& identity, Plan plan, const std::function<bool()>& cancelled,
                        ShardFooter* footer);

  FileSystem& files;
  const ShardWriterOptions options;
  BlockStream stream;
  const std::unique_ptr<EncodePipeline> pipeline;
  const std::unique_ptr<IoQueue> queue;  // belongs to the thread that first calls Write
};

ShardWriter::ShardWriter() = default;
ShardWriter::~ShardWriter() = default;

absl::StatusOr<std::unique_ptr<ShardWriter>> ShardWriter::Create(FileSystem& files, const ShardWriterOptions& options) {
  if (!IsValidChunkBytes(options.chunk_bytes)) {
    return absl::InvalidArgumentError(fmt::format("chunk_bytes: expected a multiple of {} up to {}, found {}",
                                                  kChunkBytesMin, kChunkBytesMax, options.chunk_bytes));
  }
  if (options.codec_threads < 1) {
    return absl::InvalidArgumentError(
        fmt::format("codec_threads: expected 1 or more, found {}", options.codec_threads));
  }
  auto queue = files.NewIoQueue(options.io, options.io_depth);
  if (!queue.ok()) return queue.status();
  auto pipeline = EncodePipeline::Create(options.policy, options.chunk_bytes, options.codec_threads);
  if (!pipeline.ok()) return pipeline.status();
  std::unique_ptr<ShardWriter> writer(new ShardWriter);
  writer->impl_ = std::make_unique<Impl>(files, options, *std::move(pipeline), *std::move(queue));
  return writer;
}

absl::StatusOr<WrittenShard> ShardWriter::Write(const std::string& path, const ShardIdentity& identity,
                                                const ShardContents& contents, const std::function<bool()>& cancelled) {
  if (auto status = ValidateContents(identity, contents); !status.ok()) return status;
  auto file = impl_->files.Create(path, /*direct=*/true);
  if (!file.ok()) return file.status();

  Plan plan = MakePlan(contents, impl_->options.chunk_bytes);
  plan.index.properties["library_version"] = TIDEMARK_VERSION;
  plan.index.properties["io"] = impl_->queue->name();
  if (!impl_->queue->note().empty()) plan.index.properties["io_reason"] = impl_->queue->note();
  plan.index.properties["compression"] = CodecPolicyName(impl_->options.policy);
  plan.index.properties["direct_io"] = (*file)->direct() ? "true" : "false";
  WrittenShard written;
  written.logical_bytes = plan.logical_bytes;
  written.entry_count = plan.index.entries.size();
  written.properties = plan.index.properties;
  auto status = impl_->WriteAll(file->get(), identity, std::move(plan), cancelled, &written.footer);
  if (!status.ok()) return status;
  return written;
}

// Everything that is in flight has landed when this returns, whatever it returns: the state's bytes, the file and the
// blocks are the caller's again.
absl::Status ShardWriter::Impl::WriteChunks(const std::function<bool()>& cancelled, std::vector<ChunkRecord>* chunks) {
  for (ChunkRecord& record : *chunks) {
    if (cancelled != nullptr && cancelled()) return absl::CancelledError("writing a shard was cancelled");
    const EncodePipeline::Encoded& encoded = pipeline->Next();
    if (encoded.stored.size() >= kAlignedChunkBytesMin) {
      if (auto status = stream.Align(); !status.ok()) return status;
    }
    record = encoded.record;
    record.offset = stream.offset();
    // Raw chunks are the state's own bytes, which stay; others are the pipeline's, which the next one overwrites.
    auto status = record.codec == Codec::kRaw ? stream.AppendInPlace(encoded.stored) : stream.Append(encoded.stored);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ShardWriter::Impl::WriteAll(File* file, const ShardIdentity& identity, Plan plan,
                                         const std::function<bool()>& cancelled, ShardFooter* footer) {
  const uint64_t index_bytes = EncodedShardIndexBytes(plan.index);
  if (index_bytes > kIndexBytesMax) {
    return absl::InvalidArgumentError(
        fmt::format("write {}: its index has {} bytes, more than {}", file->path(), index_bytes, kIndexBytesMax));
  }
  // Blocks that are there before they are written: extending writes would wait for each other on the inode.
  const uint64_t worst_case = kShardBlockBytes + AlignUp(plan.data_bytes_max) + AlignUp(index_bytes) + kShardBlockBytes;
  if (auto status = file->Allocate(worst_case); !status.ok() && !absl::IsUnimplemented(status)) return status;

  stream.Begin(file, queue.get(), kShardBlockBytes);
  pipeline->Start(std::move(plan.tasks));
  absl::Status status = WriteChunks(cancelled, &plan.index.chunks);
  pipeline->Stop();
  if (status.ok()) status = stream.Align();
  footer->index_offset = stream.offset();
  footer->index_bytes = index_bytes;
  footer->file_bytes = footer->index_offset + AlignUp(index_bytes) + kShardBlockBytes;
  if (status.ok()) {
    const std::string index = EncodeShardIndex(plan.index);
    footer->index_digest = DigestOf(AsBytes(index));
    status = stream.Append(AsBytes(index));
    if (status.ok()) status = stream.Align();
    if (status.ok()) status = stream.Append(AsBytes(EncodeShardFooter(*footer)));
  }
  const absl::Status landed = stream.Finish();
  if (!status.ok()) return status;
  if (!landed.ok()) return landed;

  // Last, so that a file with a header is a file that was written to the end.
  AlignedBuffer header(kShardBlockBytes);
  const std::string encoded = EncodeShardHeader({identity, options.chunk_bytes});
  std::copy(AsBytes(encoded).begin(), AsBytes(encoded).end(), header.data());
  if (status = file->WriteAt(0, header.span()); !status.ok()) return status;
  if (status = file->Truncate(footer->file_bytes); !status.ok()) return status;
  if (status = file->SyncData(); !status.ok()) return status;
  return file->Close();
}

}  // namespace tidemark::storage
