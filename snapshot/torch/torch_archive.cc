// Objects that save themselves into LibTorch's archives, as entries of bytes.

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "snapshot/torch/torch_errors.h"
#include "tidemark/torch.h"

namespace tidemark {
namespace {

using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

using SaveToArchive = std::function<void(OutputArchive&)>;
using LoadFromArchive = std::function<void(InputArchive&)>;

absl::StatusOr<std::vector<std::byte>> Save(const SaveToArchive& save) {
  std::vector<std::byte> bytes;
  absl::Status status = CatchTorch("saving into an archive", [&] {
    OutputArchive archive;
    save(archive);
    archive.save_to([&](const void* data, size_t size) {
      const auto* begin = static_cast<const std::byte*>(data);
      bytes.insert(bytes.end(), begin, begin + size);
      return size;
    });
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return bytes;
}

absl::Status Load(const LoadFromArchive& load, std::span<const std::byte> bytes) {
  return CatchTorch("loading from an archive", [&] {
    InputArchive archive;
    archive.load_from(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    load(archive);
    return absl::OkStatus();
  });
}

}  // namespace

void TorchState::AddArchive(std::string name, SaveToArchive save, LoadFromArchive load) {
  std::function<absl::StatusOr<std::vector<std::byte>>()> save_bytes;
  if (save != nullptr) save_bytes = [save = std::move(save)] { return Save(save); };
  std::function<absl::Status(std::span<const std::byte>)> load_bytes;
  if (load != nullptr) {
    load_bytes = [load = std::move(load)](std::span<const std::byte> bytes) { return Load(load, bytes); };
  }
  AddObject(std::move(name), std::move(save_bytes), std::move(load_bytes));
}

void TorchState::AddArchive(std::string name, torch::optim::Optimizer& optimizer) {
  const auto save = [&optimizer]() -> absl::StatusOr<std::vector<std::byte>> {
    absl::StatusOr<std::vector<std::byte>> bytes = Save([&](OutputArchive& archive) { optimizer.save(archive); });
    if (!bytes.ok()) return bytes;
    absl::StatusOr<std::vector<std::byte>> nothing = Save([](OutputArchive&) {});
    if (nothing.ok() && bytes->size() == nothing->size()) {
      return absl::FailedPreconditionError("the optimizer has written nothing: its class does not override save");
    }
    return bytes;
  };
  AddObject(std::move(name), save, [&optimizer](std::span<const std::byte> bytes) {
    return Load([&](InputArchive& archive) { optimizer.load(archive); }, bytes);
  });
}

}  // namespace tidemark
