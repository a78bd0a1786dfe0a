#include "storage/shard/write/shard_writer.h"

#include <algorithm>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "fmt/format.h"
#include "storage/bytes/byte_reader.h"
#include "storage/bytes/checked_encoding.h"
#include "storage/codec/byte_planes.h"
#include "storage/io/exception_status.h"
#include "storage/io/rate_limiter.h"
#include "storage/io/registered_memory.h"
#include "storage/io/thread_priority.h"
#include "storage/shard/format/aligned_buffer.h"
#include "storage/shard/write/block_stream.h"
#include "storage/shard/write/chunk_reuse.h"
#include "storage/shard/write/compression_governor.h"
#include "storage/shard/write/encode_pipeline.h"
#include "storage/shard/write/preallocation.h"
#include "storage/shard/write/shard_plan.h"

namespace tidemark::storage {
namespace {

// More than this in flight does not make a disk faster; with less, its rate says nothing about it.
constexpr uint64_t kSaturatingBytesMax = 4 << 20;

CompressionGovernor::Disk DiskOf(const ShardWriterOptions& options) {
  return {.saturating_bytes = std::min<uint64_t>(kSaturatingBytesMax, options.io_depth * BlockStream::kBlockBytes / 2),
          .bytes_per_second_max = options.bytes_per_second_max};
}

// Keeps the disk's writes to a rate, and the governor up to date about them.
class WritePacer final : public WriteObserver {
 public:
  explicit WritePacer(const ShardWriterOptions& options) : governor_(DiskOf(options)) {
    if (options.bytes_per_second_max > 0) limiter_.emplace(options.bytes_per_second_max);
  }

  CompressionGovernor* governor() { return &governor_; }

  // Since the last call: when the thread waited for the disk, or for its turn.
  BusySpans TakeWaits() { return std::exchange(waits_, {}); }

  void Submitting(uint64_t bytes) override {
    if (limiter_) {
      const auto begin = CompressionGovernor::Now();
      std::this_thread::sleep_for(limiter_->Reserve(bytes, begin));
      waits_.Add(begin, CompressionGovernor::Now());
    }
    governor_.Submitted(bytes, CompressionGovernor::Now());
  }
  void Completed(uint64_t bytes) override { governor_.Completed(bytes, CompressionGovernor::Now()); }
  void Waited(BusySpans::Time begin, BusySpans::Time end) override { waits_.Add(begin, end); }

 private:
  std::optional<RateLimiter> limiter_;
  CompressionGovernor governor_;
  BusySpans waits_;
};

absl::Status ValidateOptions(const ShardWriterOptions& options) {
  if (!IsValidChunkBytes(options.chunk_bytes)) {
    return absl::InvalidArgumentError(fmt::format("chunk_bytes: expected a multiple of {} up to {}, found {}",
                                                  kChunkBytesMin, kChunkBytesMax, options.chunk_bytes));
  }
  if (options.codec_threads < 1 || options.codec_threads > kCodecThreadsMax) {
    return absl::InvalidArgumentError(
        fmt::format("codec_threads: expected 1 to {}, found {}", kCodecThreadsMax, options.codec_threads));
  }
  if (options.io_depth < 1 || options.io_depth > kIoDepthMax) {
    return absl::InvalidArgumentError(
        fmt::format("io_depth: expected 1 to {}, found {}", kIoDepthMax, options.io_depth));
  }
  if (options.bytes_per_second_max != 0 && options.bytes_per_second_max < kWriteRateMin) {
    return absl::InvalidArgumentError(fmt::format("bytes_per_second_max: expected 0 or at least {}, found {}",
                                                  kWriteRateMin, options.bytes_per_second_max));
  }
  if (options.nice < 0 || options.nice > kNiceMax) {
    return absl::InvalidArgumentError(fmt::format("nice: expected 0 to {}, found {}", kNiceMax, options.nice));
  }
  return absl::OkStatus();
}

}  // namespace

struct ShardWriter::Impl {
  // One shard on its way to disk.
  struct Job {
    File* file;
    const ShardHeader header;
    const ShardContents& contents;
    const std::function<bool()>& cancelled;
    ChunkReuse& reuse;
    ShardPlan plan;
    WrittenShard written;
    IndexBase index_base;
  };

  Impl(FileSystem& files, const ShardWriterOptions& options) : files(files), options(options), pacer(options) {}

  absl::Status Start();
  absl::Status StartThreads();
  absl::StatusOr<WrittenShard> Write(const std::string& path, const ShardIdentity& identity, ShardContents& contents,
                                     const std::function<bool()>& cancelled);
  absl::StatusOr<std::unique_ptr<File>> OpenFile(const std::string& path, bool recycle);
  void LowerPriorityOnce();
  absl::Status RegisterWith(const Job& job);
  std::map<std::string, std::string> Properties(const Job& job) const;

  absl::Status WriteChunks(Job* job, Preallocation* blocks);
  absl::Status PlaceBatch(std::span<const EncodePipeline::Encoded> batch, Job* job, Preallocation* blocks);
  absl::Status AppendChunk(const EncodePipeline::Encoded& encoded, bool stays);
  absl::Status WriteIndex(Job* job, Preallocation* blocks);
  absl::Status Land();
  absl::Status WriteAll(Job* job);

  FileSystem& files;
  const ShardWriterOptions options;
  WritePacer pacer;
  absl::Status priority;  // of our threads: what the kernel said to lowering it
  bool has_lowered_owner = false;

  // Set by Start.
  std::shared_ptr<BlockStream> stream;  // shared with nobody, but its lifetime is known to `memory`
  std::unique_ptr<IoQueue> queue;       // belongs to the thread that first calls Write
  std::unique_ptr<RegisteredMemory> memory;
  std::unique_ptr<EncodePipeline> pipeline;
};

ShardWriter::ShardWriter() = default;
ShardWriter::~ShardWriter() = default;

absl::StatusOr<std::unique_ptr<ShardWriter>> ShardWriter::Create(FileSystem& files, const ShardWriterOptions& options) {
  if (auto status = ValidateOptions(options); !status.ok()) return status;
  try {
    std::unique_ptr<ShardWriter> writer(new ShardWriter);
    writer->impl_ = std::make_unique<Impl>(files, options);
    if (auto status = writer->impl_->StartThreads(); !status.ok()) return status;
    return writer;
  } catch (...) {
    return ExceptionStatus("start to write shards");
  }
}

// Threads inherit their priority, so those of a writer with a low one are started by a thread that has it.
absl::Status ShardWriter::Impl::StartThreads() {
  if (options.nice == 0 && !options.idle_io) return Start();
  absl::Status status;
  try {
    std::thread([&] {
      try {
        priority = LowerThreadPriority(options.nice, options.idle_io);
        status = Start();
      } catch (...) {
        status = ExceptionStatus("start to write shards");
      }
    }).join();
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(fmt::format("start a thread of low priority: {}", error.what()));
  }
  return status;
}

absl::Status ShardWriter::Impl::Start() {
  auto new_queue = files.NewIoQueue(options.io, options.io_depth);
  if (!new_queue.ok()) return new_queue.status();
  queue = *std::move(new_queue);
  stream = std::make_shared<BlockStream>(options.io_depth + 1);  // one to fill while the disk has the others
  memory = std::make_unique<RegisteredMemory>(queue.get());
  auto new_pipeline =
      EncodePipeline::Create(options.policy, options.chunk_bytes, options.codec_threads, pacer.governor());
  if (!new_pipeline.ok()) return new_pipeline.status();
  pipeline = *std::move(new_pipeline);
  return absl::OkStatus();
}

void ShardWriter::Impl::LowerPriorityOnce() {
  if (std::exchange(has_lowered_owner, true)) return;
  priority.Update(LowerThreadPriority(options.nice, options.idle_io));
}

absl::StatusOr<WrittenShard> ShardWriter::Write(const std::string& path, const ShardIdentity& identity,
                                                ShardContents contents, const std::function<bool()>& cancelled) {
  try {
    return impl_->Write(path, identity, contents, cancelled);
  } catch (...) {
    return ExceptionStatus("write", path);
  }
}

absl::StatusOr<WrittenShard> ShardWriter::Impl::Write(const std::string& path, const ShardIdentity& identity,
                                                      ShardContents& contents, const std::function<bool()>& cancelled) {
  const BusySpans::Time begin = BusySpans::Now();
  bool repeats_names = false;
  if (auto status = ValidateContents(identity, contents, &repeats_names); !status.ok()) return status;
  const uint32_t chunk_bytes = options.chunk_bytes;
  ChunkReuse reuse(contents.reuse, identity, chunk_bytes, options.reuse_saves_max);
  auto plan = PlanShard(contents, chunk_bytes, &reuse);
  if (!plan.ok()) return plan.status();
  std::vector<ShardContents::Entry>().swap(contents.entries);  // the plan has all that is needed of them
  auto file = OpenFile(path, contents.recycle);
  if (!file.ok()) return file.status();
  LowerPriorityOnce();

  repeats_names = repeats_names || !plan->tiles.empty();
  Job job{.file = file->get(),
          .header = {identity, chunk_bytes, repeats_names},
          .contents = contents,
          .cancelled = cancelled,
          .reuse = reuse,
          .plan = *std::move(plan),
          .written = {},
          .index_base = {}};
  job.written.times.begin = begin;
  job.written.logical_bytes = job.plan.logical_bytes;
  job.written.entry_count = job.plan.index.entries.size();
  if (auto status = WriteAll(&job); !status.ok()) return status;
  job.written.properties = job.plan.index.properties;
  job.written.reusable = std::make_shared<const ReusableShard>(
      ReusableShard{.identity = identity,
                    .chunk_bytes = chunk_bytes,
                    .repeats_names = repeats_names,
                    .index = std::move(job.plan.index),
                    .index_base = std::move(job.index_base),
                    .files = reuse.FilesBehind({.bytes = job.written.footer.file_bytes, .sequence = identity.sequence}),
                    .anew_bytes = reuse.anew_bytes()});
  return std::move(job.written);
}

absl::StatusOr<std::unique_ptr<File>> ShardWriter::Impl::OpenFile(const std::string& path, bool recycle) {
  if (recycle) {
    auto file = files.OpenForRewrite(path, /*direct=*/true);
    if (file.ok()) return file;
    // Somebody still reads what it was; with its last name gone, it is theirs alone.
    if (auto status = files.RemoveFile(path); !status.ok()) return status;
  }
  return files.Create(path, /*direct=*/true);
}

// Until UnregisterFile, before the file is closed.
absl::Status ShardWriter::Impl::RegisterWith(const Job& job) {
  absl::Status status = memory->Use(stream->memory(), stream);
  status.Update(memory->Use(job.contents.memory, job.contents.memory_lifetime));
  status.Update(queue->RegisterFile(job.file));
  return status;
}

std::map<std::string, std::string> ShardWriter::Impl::Properties(const Job& job) const {
  std::map<std::string, std::string> properties;
  properties["library_version"] = TIDEMARK_VERSION;
  properties["io"] = queue->name();
  if (!queue->note().empty()) properties["io_reason"] = queue->note();
  properties["compression"] = CodecPolicyName(options.policy);
  if (options.policy != CodecPolicy::kNone) properties["vectors"] = BytePlanesBackend();
  properties["chunk_bytes"] = fmt::format("{}", options.chunk_bytes);
  const ReusableShard* const source = job.reuse.source();
  properties["reuse"] = source != nullptr ? fmt::format("step {}", source->identity.step) : "none";
  properties["direct_io"] = job.file->direct() ? "true" : "false";
  if (options.nice > 0) properties["nice"] = fmt::format("{}", options.nice);
  if (options.idle_io) properties["idle_io"] = "true";
  if (options.bytes_per_second_max > 0) {
    properties["write_bytes_per_second_max"] = fmt::format("{}", options.bytes_per_second_max);
  }
  if (!priority.ok()) properties["priority"] = std::string(priority.message());
  return properties;
}

absl::Status ShardWriter::Impl::WriteChunks(Job* job, Preallocation* blocks) {
  while (true) {
    if (job->cancelled != nullptr && job->cancelled()) return absl::CancelledError("writing a shard was cancelled");
    stream->Poll();
    const bool has_next = pipeline->HasNext();
    // Waiting for chunks, this thread would not see what has become of its writes.
    if (stream->in_flight() && !has_next) {
      if (auto status = stream->Wait(); !status.ok()) return status;
      continue;
    }
    const auto begin = has_next ? BusySpans::Time() : BusySpans::Now();
    const auto batch = pipeline->Next();
    if (!has_next) job->written.times.encoder_waits.Add(begin, BusySpans::Now());
    if (!batch.ok()) return batch.status();
    if (batch->empty()) return absl::OkStatus();
    if (auto status = PlaceBatch(*batch, job, blocks); !status.ok()) return status;
  }
}

absl::Status ShardWriter::Impl::PlaceBatch(std::span<const EncodePipeline::Encoded> batch, Job* job,
                                           Preallocation* blocks) {
  const auto& release = job->contents.release;
  for (const EncodePipeline::Encoded& encoded : batch) {
    ChunkRecord& record = *encoded.task->record;
    if (encoded.reused) {
      record = job->reuse.Refer(*encoded.task->reusable);
      job->written.reused_bytes += record.stored_bytes;
      if (release != nullptr) release(encoded.task->entry, encoded.task->end);
      continue;
    }
    if (record.stored_bytes >= kAlignedChunkBytesMin) {
      if (auto status = stream->Align(); !status.ok()) return status;
    }
    record.offset = stream->offset();
    if (auto status = blocks->Reserve(AlignUp(record.offset + record.stored_bytes)); !status.ok()) return status;
    if (auto status = AppendChunk(encoded, /*stays=*/release == nullptr); !status.ok()) return status;
    if (release != nullptr) release(encoded.task->entry, encoded.task->end);
  }
  return absl::OkStatus();
}

// Raw chunks are the state's own bytes. They stay unless `release` may free them. Other chunks are in the pipeline's
// buffers, which the next ones overwrite.
absl::Status ShardWriter::Impl::AppendChunk(const EncodePipeline::Encoded& encoded, bool stays) {
  const EncodePipeline::Task& task = *encoded.task;
  if (task.record->codec != Codec::kRaw) return stream->Append(encoded.stored);
  if (task.tile == nullptr) return stays ? stream->AppendInPlace(encoded.stored) : stream->Append(encoded.stored);
  absl::Status status;
  task.tile->ForEachRun(task.tile_begin, task.tile_end, [&](uint64_t offset, uint64_t bytes) {
    if (status.ok()) status = stream->Append(task.raw.subspan(offset, bytes));
  });
  return status;
}

absl::Status ShardWriter::Impl::WriteIndex(Job* job, Preallocation* blocks) {
  ShardIndex& index = job->plan.index;
  ShardFooter& footer = job->written.footer;
  if (job->contents.blocked_ns != nullptr) index.blocked_ns = job->contents.blocked_ns();
  if (!blocks->possible()) index.properties["allocate"] = "false";
  index.files = job->reuse.files();
  IndexBase& base = job->index_base;
  base = job->reuse.ChooseBase(index, job->header.repeats_names);
  index.files = job->reuse.files();  // the base's among them
  if (auto status = stream->Align(); !status.ok()) return status;
  footer.index_offset = stream->offset();
  footer.index_is_delta = base.file != 0;
  footer.index_bytes = EncodedShardIndexBytes(index, base);
  footer.file_bytes = footer.index_offset + AlignUp(footer.index_bytes) + kShardBlockBytes;
  if (auto status = blocks->Reserve(footer.file_bytes); !status.ok()) return status;
  const std::string encoded = EncodeShardIndex(index, base);
  footer.index_digest = DigestOf(AsBytes(encoded));
  if (!footer.index_is_delta) base.digest = footer.index_digest;
  if (auto status = CheckEncodedShardIndex(AsBytes(encoded), job->header, footer, index, base); !status.ok()) {
    return status;
  }
  const auto end = EncodeAndCheck("the footer of a shard", footer, EncodeShardFooter, [&](std::string_view bytes) {
    return DecodeShardFooter(AsBytes(bytes), footer.file_bytes);
  });
  if (!end.ok()) return absl::InternalError(end.status().message());
  absl::Status status = stream->Append(AsBytes(encoded));
  if (status.ok()) status = stream->Align();
  if (status.ok()) status = stream->Append(AsBytes(end->bytes));
  return status;
}

// Waits for every write, also after an error. The first exception is the result, whatever a later try says.
absl::Status ShardWriter::Impl::Land() {
  absl::Status thrown;
  while (true) {
    try {
      const absl::Status finished = stream->Finish();
      return thrown.ok() ? finished : thrown;
    } catch (...) {
      thrown.Update(ExceptionStatus("write a shard"));
      if (queue->in_flight() == 0) return thrown;
    }
  }
}

// Everything that is in flight has landed when this returns, whatever it returns: the state's bytes, the file and the
// blocks are the caller's again, and the pipeline is at rest.
absl::Status ShardWriter::Impl::WriteAll(Job* job) {
  File* const file = job->file;
  ShardIndex& index = job->plan.index;
  auto properties = Properties(*job);
  properties.merge(index.properties);
  index.properties = std::move(properties);
  const uint64_t index_bytes_max = AlignUp(job->plan.index_bytes_max);
  Preallocation blocks(file, 2 * kShardBlockBytes + AlignUp(job->plan.data_bytes_max) + index_bytes_max);
  if (auto status = blocks.Reserve(kShardBlockBytes); !status.ok()) return status;

  const absl::Status registered = RegisterWith(*job);
  stream->Begin(file, queue.get(), kShardBlockBytes, &pacer);
  WriteTimes& times = job->written.times;
  absl::Status status;
  // From here on the kernel may hold the file and the caller's memory.
  try {
    index.properties["io_registered"] = registered.ok() ? "true" : std::string(registered.message());
    pacer.TakeWaits();  // of a shard that failed
    times.opened = BusySpans::Now();
    pipeline->Start(std::move(job->plan.tasks), job->contents.wait_until_ready, job->contents.compress_all);
    status = WriteChunks(job, &blocks);
    pipeline->Stop();
    if (status.ok()) status = WriteIndex(job, &blocks);
  } catch (...) {
    status = ExceptionStatus("write", file->path());
  }
  pipeline->Stop();
  const absl::Status landed = Land();
  queue->UnregisterFile();
  if (!status.ok()) return status;
  if (!landed.ok()) return landed;
  times.landed = BusySpans::Now();
  times.disk_waits = pacer.TakeWaits();
  times.encoding.assign(pipeline->busy().begin(), pipeline->busy().end());

  // A recycled file has the chunks, the index and the footer of an earlier shard where ours did not get to the disk: a
  // header of ours in front of those would make them our shard.
  if (job->contents.recycle) {
    if (status = file->SyncData(); !status.ok()) return status;
  }
  // Last, so that a file with a header is a file that was written to the end.
  const auto encoded = EncodeAndCheck("the header of a shard", job->header, EncodeShardHeader,
                                      [](std::string_view bytes) { return DecodeShardHeader(AsBytes(bytes)); });
  if (!encoded.ok()) return absl::InternalError(encoded.status().message());
  AlignedBuffer header(kShardBlockBytes);
  std::copy(AsBytes(encoded->bytes).begin(), AsBytes(encoded->bytes).end(), header.data());
  if (status = file->WriteAt(0, header.span()); !status.ok()) return status;
  if (status = file->Truncate(job->written.footer.file_bytes); !status.ok()) return status;
  if (status = file->SyncData(); !status.ok()) return status;
  status = file->Close();
  times.end = BusySpans::Now();
  return status;
}

}  // namespace tidemark::storage
