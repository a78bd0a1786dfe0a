// Makes a store for tests that are no C++.
//
//   make_test_store sound|mixed|rebuilt DIRECTORY
//
// sound: three committed steps with metrics, the last of which refers to the one before. mixed: a step in each state,
// evaluated in each way, one with damage that is not found yet, and a save that was cut short. rebuilt: sound ones,
// and a journal that cannot be read. DIRECTORY must not be there.

#include <cstdio>
#include <filesystem>
#include <limits>
#include <string>

#include "gtest/gtest.h"
#include "tests/tools/checkpoint_inspect/test_store.h"

namespace tidemark::inspect {
namespace {

void SaveSound(const TestStore& store) {
  store.Save({1}, {.metrics = {{"loss", 0.5}}});
  store.Save({2}, {.metrics = {{"loss", 0.25}}, .user_metadata = R"({"run": "a", "step": 77})"});
  store.SaveReusing({3}, {.metrics = {{"loss", 0.75}}});
}

void SaveMixed(const TestStore& store) {
  SaveSound(store);
  store.Save({4}, {.metrics = {{"loss", std::numeric_limits<double>::quiet_NaN()}}});
  store.Save({5, 6, 7});
  store.SaveInVain(8);
  store.DamageChunk(7);
  store.Restart();
  store.RemoveStep(5);
  store.Update(5, [](StepInfo& info) {
    info.state = StepState::kLost;
    info.reason = "its folder is gone";
  });
  store.Delete(1, "not among the latest 3");
  store.RecordUnsaved(9, {.evaluator = "validation", .metrics = {{"loss", 0.25}}});
  store.Update(2, [](StepInfo& info) {
    info.pinned = true;
    info.pin_note = "for the paper";
    info.tags = {"figure-3", "paper"};
    info.kept = "tagged figure-3, paper (for the paper)";
  });
  store.Deliver(2, {.evaluator = "validation", .worker = "pid 7 on node-3", .metrics = {{"loss", 0.25}}});
  store.Deliver(3, {.evaluator = "validation", .outcome = Evaluation::Outcome::kSkipped, .reason = "busy"});
  store.Deliver(4, {.evaluator = "validation", .metrics = {{"loss", 3}}, .unhealthy = "loss spike"});
  store.DamageChunk(6);
  std::filesystem::create_directory(store.directory() + "/steps/0000000010-" + std::string(15, '0') + "1" +
                                    std::string(15, '0') + "9");
}

bool Make(const std::string& kind, const TestStore& store) {
  if (kind == "mixed") {
    SaveMixed(store);
  } else if (kind == "sound" || kind == "rebuilt") {
    SaveSound(store);
  } else {
    return false;
  }
  if (kind == "rebuilt") store.DamageJournal();
  return true;
}

}  // namespace
}  // namespace tidemark::inspect

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // What goes wrong in it ends the program.
  testing::GTEST_FLAG(throw_on_failure) = true;
  if (argc != 3) {
    std::fprintf(stderr, "usage: make_test_store sound|mixed|rebuilt DIRECTORY\n");
    return 2;
  }
  const tidemark::inspect::TestStore store;
  if (!tidemark::inspect::Make(argv[1], store)) {
    std::fprintf(stderr, "make_test_store: %s is no kind of store\n", argv[1]);
    return 2;
  }
  std::filesystem::copy(store.directory(), argv[2], std::filesystem::copy_options::recursive);
  return 0;
}
