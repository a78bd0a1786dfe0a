// Saves plain memory and its average, opens the store again, restores it and exports it.

#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "tidemark/async_checkpointer.h"
#include "tidemark/average.h"
#include "tidemark/export.h"

namespace {

int Fail(const char* what, const absl::Status& status) {
  std::fprintf(stderr, "%s: %s\n", what, status.ToString().c_str());
  return 1;
}

}  // namespace

int main(int, char** argv) {
  std::vector<float> weights(100'000);
  std::iota(weights.begin(), weights.end(), 0.5f);
  const std::vector<float> expected = weights;
  std::string note = "kept";
  tidemark::State state;
  state.AddTensor("weights", tidemark::Dtype::kFloat32, {100, 1000}, weights.data());
  state.AddValue("note", &note);

  {
    auto checkpointer = tidemark::AsyncCheckpointer::Open({.directory = argv[1]});
    if (!checkpointer.ok()) return Fail("open", checkpointer.status());
    auto average = tidemark::MakeAverage({.entries = {"weights"}});
    if (!average.ok()) return Fail("average", average.status());
    if (absl::Status added = (*checkpointer)->AddCompanion(*average); !added.ok()) return Fail("companion", added);
    auto save = (*checkpointer)->Save(7, state, {.metrics = {{"loss", 0.25}}});
    if (!save.ok()) return Fail("save", save.status());
    if (absl::Status committed = save->committed().Wait(); !committed.ok()) return Fail("commit", committed);
    if (absl::Status closed = (*checkpointer)->Close(); !closed.ok()) return Fail("close", closed);
  }

  weights.assign(weights.size(), 0.0f);
  note = "lost";
  auto checkpointer = tidemark::AsyncCheckpointer::Open({.directory = argv[1]});
  if (!checkpointer.ok()) return Fail("open again", checkpointer.status());
  auto restored = (*checkpointer)->RestoreLatest(state);
  if (!restored.ok()) return Fail("restore", restored.status());
  if (restored->step != 7 || weights != expected || note != "kept")
    return Fail("compare", absl::DataLossError("other"));
  auto store = tidemark::StoreReader::Open(argv[1]);
  if (!store.ok()) return Fail("read", store.status());
  auto exported = tidemark::ExportSafetensors(**store, 7, std::string(argv[1]) + ".safetensors");
  if (!exported.ok()) return Fail("export", exported.status());
  std::printf("restored step %d\n", static_cast<int>(restored->step));
  return 0;
}
