// How small compression makes a state, and how fast one core does it.

#include <zstd.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/bench_store.h"
#include "bench/rows.h"
#include "storage/bytes/ids.h"
#include "storage/shard/format/chunk_codec.h"
#include "tidemark/torch.h"

namespace tidemark::bench {
namespace {

constexpr size_t kChunkBytes = 1 << 20;
constexpr uint8_t kBf16Bytes = 2;
constexpr int kCodecTimes = 3;  // as many pairs: a pass takes half a second

// The file of a save with Compression::kSpace ÷ the entropy bound of its tensors. One pair: neither depends on time.
absl::StatusOr<Measurement> CompareWithEntropy(Context& context, at::ScalarType dtype) {
  absl::StatusOr<TrainingState*> tensors = context.State(dtype, context.Bytes(1));
  if (!tensors.ok()) return tensors.status();
  TorchState state;
  (*tensors)->AddTo(state);
  absl::StatusOr<std::unique_ptr<BenchStore>> store = BenchStore::Open(context, {.compression = Compression::kSpace});
  if (!store.ok()) return store.status();
  if (auto saved = (*store)->SaveUntilCommitted(state); !saved.ok()) return saved.status();
  absl::StatusOr<StepInfo> step = (*store)->LastStep();
  if (!step.ok()) return step.status();
  const Pairs<double> pair = {{static_cast<double>(step->stored_bytes), (*tensors)->OrderZeroBoundBytes()}};
  return Summarise(pair, Unit::kBytes);
}

using Chunks = std::vector<std::span<const std::byte>>;

// Chunks of all kinds of tensors, evenly; more bytes of them than caches hold.
Chunks ChunksOf(const TrainingState& tensors, uint64_t bytes) {
  const size_t count = std::max<size_t>(1, bytes / kChunkBytes);
  Chunks chunks;
  for (uint64_t offset = 0; chunks.size() < count; offset += kChunkBytes) {
    bool found = false;
    for (size_t i = 0; i < tensors.tensors().size() && chunks.size() < count; ++i) {
      const std::span<const std::byte> whole = tensors.bytes_of(i);
      if (offset >= whole.size()) continue;
      found = true;
      chunks.push_back(whole.subspan(offset, std::min<uint64_t>(kChunkBytes, whole.size() - offset)));
    }
    if (!found) break;
  }
  return chunks;
}

// One thread's zstd at level 1, on the plain bytes.
class PlainZstd {
 public:
  PlainZstd() : encoder_(ZSTD_createCCtx(), &ZSTD_freeCCtx), decoder_(ZSTD_createDCtx(), &ZSTD_freeDCtx) {}

  std::span<const std::byte> Encode(std::span<const std::byte> raw) {
    buffer_.resize(ZSTD_compressBound(raw.size()));
    const size_t size =
        ZSTD_compressCCtx(encoder_.get(), buffer_.data(), buffer_.size(), raw.data(), raw.size(), /*level=*/1);
    return {buffer_.data(), ZSTD_isError(size) ? 0 : size};
  }
  bool Decode(std::span<const std::byte> frame, std::span<std::byte> raw) {
    return ZSTD_decompressDCtx(decoder_.get(), raw.data(), raw.size(), frame.data(), frame.size()) == raw.size();
  }

 private:
  const std::unique_ptr<ZSTD_CCtx, size_t (*)(ZSTD_CCtx*)> encoder_;
  const std::unique_ptr<ZSTD_DCtx, size_t (*)(ZSTD_DCtx*)> decoder_;
  std::vector<std::byte> buffer_;
};

// One thread's codec as a save uses it: what makes up the record is part of the work.
class ChunkCodec {
 public:
  std::span<const std::byte> Encode(std::span<const std::byte> raw, storage::ChunkRecord* record) {
    record->digest = storage::DigestOf(raw);
    return encoder_.Encode(raw, kBf16Bytes, /*compress=*/true, &buffer_, record);
  }
  bool Decode(const storage::ChunkRecord& record, std::span<const std::byte> stored, std::span<std::byte> raw) {
    return decoder_.Decode(record, stored, raw).ok();
  }

 private:
  storage::ChunkEncoder encoder_;
  storage::ChunkDecoder decoder_;
  std::vector<std::byte> buffer_;
};

absl::StatusOr<Chunks> Bf16Chunks(Context& context) {
  constexpr double kGib = 0.25;
  absl::StatusOr<TrainingState*> tensors = context.State(at::kBFloat16, context.Bytes(1));
  if (!tensors.ok()) return tensors.status();
  return ChunksOf(**tensors, context.Bytes(kGib));
}

double BytesOf(const Chunks& chunks) {
  double bytes = 0;
  for (const std::span<const std::byte> chunk : chunks) bytes += static_cast<double>(chunk.size());
  return bytes;
}

std::vector<std::byte> Copy(std::span<const std::byte> bytes) { return {bytes.begin(), bytes.end()}; }

}  // namespace

absl::StatusOr<Measurement> SizeBf16VsEntropy(Context& context) { return CompareWithEntropy(context, at::kBFloat16); }

absl::StatusOr<Measurement> SizeFp32VsEntropy(Context& context) { return CompareWithEntropy(context, at::kFloat); }

absl::StatusOr<Measurement> EncodeVsZstd1(Context& context) {
  absl::StatusOr<Chunks> chunks = Bf16Chunks(context);
  if (!chunks.ok()) return chunks.status();
  const double bytes = BytesOf(*chunks);
  ChunkCodec codec;
  PlainZstd zstd;
  return context.Compare(
      Unit::kBytesPerSecond,
      [&]() -> absl::StatusOr<double> {
        const Stopwatch watch;
        for (const std::span<const std::byte> chunk : *chunks) {
          storage::ChunkRecord record;
          if (codec.Encode(chunk, &record).empty()) return absl::InternalError("the codec stored nothing");
        }
        return bytes / watch.seconds();
      },
      [&]() -> absl::StatusOr<double> {
        const Stopwatch watch;
        for (const std::span<const std::byte> chunk : *chunks) {
          if (zstd.Encode(chunk).empty()) return absl::InternalError("zstd cannot compress a chunk");
        }
        return bytes / watch.seconds();
      },
      kCodecTimes);
}

absl::StatusOr<Measurement> DecodeVsZstd(Context& context) {
  absl::StatusOr<Chunks> chunks = Bf16Chunks(context);
  if (!chunks.ok()) return chunks.status();
  const double bytes = BytesOf(*chunks);
  ChunkCodec codec;
  PlainZstd zstd;
  std::vector<storage::ChunkRecord> records(chunks->size());
  std::vector<std::vector<std::byte>> stored;
  std::vector<std::vector<std::byte>> frames;
  std::vector<std::vector<std::byte>> raw;
  for (size_t i = 0; i < chunks->size(); ++i) {
    stored.push_back(Copy(codec.Encode((*chunks)[i], &records[i])));
    frames.push_back(Copy(zstd.Encode((*chunks)[i])));
    raw.emplace_back((*chunks)[i].size());
  }
  return context.Compare(
      Unit::kBytesPerSecond,
      [&]() -> absl::StatusOr<double> {
        const Stopwatch watch;
        for (size_t i = 0; i < raw.size(); ++i) {
          if (!codec.Decode(records[i], stored[i], raw[i])) return absl::InternalError("a chunk cannot be decoded");
        }
        return bytes / watch.seconds();
      },
      [&]() -> absl::StatusOr<double> {
        const Stopwatch watch;
        for (size_t i = 0; i < raw.size(); ++i) {
          if (!zstd.Decode(frames[i], raw[i])) return absl::InternalError("zstd cannot decode its own frame");
        }
        return bytes / watch.seconds();
      },
      kCodecTimes);
}

}  // namespace tidemark::bench
