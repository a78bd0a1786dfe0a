#include "tests/crash/scenarios.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "storage/io/check.h"
#include "storage/journal/journal_files.h"
#include "storage/store/store_layout.h"
#include "tests/crash/failing_disk.h"
#include "tests/crash/kept_steps.h"

namespace tidemark::crash {
namespace {

// A folder of the journal's entries.
constexpr const char* kEntries = "/journal/0000/";

// The folder of that entry, which has none yet.
void RemoveFolderOf(storage::FileSystem& files, storage::EntryNumber number) {
  const std::string folder = storage::JournalFiles(files, storage::StoreLayout(kStore).journal()).FolderOf(number);
  const absl::Status status = RemoveTree(files, folder);
  storage::Check(status.ok(), "the journal's next folder could not be removed");
}

// What a run may ask of a store, in any order that its seed gives.
class RandomLife {
 public:
  RandomLife(Stage& stage, uint64_t seed) : stage_(stage), random_(seed) {}

  void Go() {
    constexpr int kOperations = 8;
    Open();
    for (int i = 0; i < kOperations; ++i) Operate(10 + i);
    stage_.Close();
  }

 private:
  bool Chance(uint64_t of) { return random_() % of == 0; }

  void Open() {
    max_to_keep_ = Chance(2) ? 2 : 0;
    const std::vector<int64_t> due = kept_.Due(max_to_keep_);
    stage_.LetGoOf(due);
    stage_.Open({.compression = Chance(2) ? Compression::kNone : Compression::kSpace,
                 .reuse = !Chance(3),
                 .retention = {.max_to_keep = max_to_keep_}});
    See(due);
  }

  void See(const std::vector<int64_t>& due) {
    stage_.ExpectGone(due);
    for (const int64_t step : due) kept_.Gone(step);
  }

  void Save(int64_t step, int64_t content) {
    kept_.Saved(step);
    const std::vector<int64_t> due = kept_.Due(max_to_keep_);
    stage_.Save(step, content, due);
    for (const int64_t gone : due) kept_.Gone(gone);
  }

  // A tag pins, and one that is taken away leaves the pin. With the pin go the tags, and the step itself may go, too.
  void ChangePin() {
    const bool untag = !tags_.empty() && Chance(2);
    const bool tag = !untag && Chance(2);
    const bool pin = untag || tag || !Chance(3);
    const std::string drawn = Chance(2) ? "best" : "v1";
    const auto [step, name] = untag ? *tags_.begin() : std::pair(Any(), drawn);
    const auto named = std::ranges::find(tags_, name, &std::pair<int64_t, std::string>::second);
    if (tag && named != tags_.end() && named->first != step) return;  // it would be refused
    kept_.Pinned(step, pin);
    const std::vector<int64_t> due = kept_.Due(max_to_keep_);
    stage_.LetGoOf(due);
    if (untag) {
      tags_.erase({step, name});
      stage_.TagAsTool(step, name, false);
    } else if (tag) {
      tags_.emplace(step, name);
      stage_.TagAsTool(step, name, true);
    } else {
      if (!pin) std::erase_if(tags_, [step = step](const auto& other) { return other.first == step; });
      if (Chance(2)) {
        stage_.PinAsTool(step, pin);
      } else {
        stage_.Pin(step, pin);
      }
    }
    See(due);
  }

  void Discard() {
    const int64_t after = Any();
    if (after == stage_.steps().rbegin()->first || kept_.PinnedAfter(after)) return;
    std::vector<int64_t> going;
    for (auto later = stage_.steps().rbegin(); later->first > after; ++later) going.push_back(later->first);
    stage_.DiscardAfter(after, going);
    for (const int64_t gone : going) kept_.Gone(gone);
  }

  void Operate(int64_t content) {
    const auto& steps = stage_.steps();
    if (steps.empty() || Chance(2)) {
      const int64_t next = steps.empty() ? 1 : steps.rbegin()->first + 1;
      return Save(!steps.empty() && Chance(3) ? Any() : next, content);
    }
    switch (random_() % 6) {
      case 0:
        return stage_.Report(Any(), "bench", static_cast<double>(content));
      case 1:
        stage_.ReportAsWorker(Any(), "validation", static_cast<double>(content));
        return stage_.Tidy();
      case 2:
      case 3:
        return ChangePin();
      case 4:
        return Discard();
      default:
        stage_.Close();
        return Open();
    }
  }

  int64_t Any() {
    const auto& steps = stage_.steps();
    return std::next(steps.begin(), static_cast<int64_t>(random_() % steps.size()))->first;
  }

  Stage& stage_;
  std::mt19937_64 random_;
  int64_t max_to_keep_ = 0;
  KeptSteps kept_;
  std::set<std::pair<int64_t, std::string>> tags_;  // of steps that are pinned
};

}  // namespace

Scenario OpenEmpty() {
  return {.name = "OpenEmpty", .prepare = nullptr, .damage = nullptr, .drive = [](Stage& stage) {
            stage.Open();
            stage.Save(1, 1);
            stage.Close();
          }};
}

Scenario SaveSteps() {
  return {.name = "SaveSteps",
          .prepare =
              [](Stage& stage) {
                stage.Open();
                stage.Save(1, 1);
                stage.Close();
              },
          .damage = nullptr,
          .drive =
              [](Stage& stage) {
                stage.Open();
                stage.Save(2, 1);
                stage.Save(3, 1);
                stage.Save(5, 1);
              }};
}

Scenario CrossFolders() {
  return {.name = "CrossFolders",
          .prepare =
              [](Stage& stage) {
                stage.Open();
                stage.Save(1, 1);
                stage.FillJournal(62);
                stage.Close();
              },
          // There was no room to make it ahead.
          .damage = [](storage::FileSystem& files) { RemoveFolderOf(files, 65); },
          .drive =
              [](Stage& stage) {
                stage.Open();  // entry 63
                stage.Save(2, 1);
                stage.ReportAsWorker(2, "validation", 0.5);  // the first of a folder
                stage.Tidy();
                stage.Save(3, 1);
                stage.Pin(2, true);
                stage.Close();
              }};
}

Scenario Overwrite() {
  const CheckpointerOptions plain{.compression = Compression::kNone};
  return {.name = "Overwrite",
          .prepare =
              [plain](Stage& stage) {
                stage.Open(plain);
                stage.Save(1, 1);
                stage.Save(2, 1);
                stage.Close();
              },
          .damage = nullptr,
          .drive =
              [plain](Stage& stage) {
                stage.Open(plain);
                stage.Save(2, 2);  // whose old file nobody needs
                stage.Save(1, 2);  // to which step 2 refers; written over the old file of that
                stage.Save(2, 3);
              }};
}

Scenario ReportMetrics() {
  return {.name = "ReportMetrics",
          .prepare =
              [](Stage& stage) {
                stage.Open();
                stage.Save(1, 1);
                stage.Save(2, 1);
                stage.Close();
              },
          .damage = nullptr,
          .drive =
              [](Stage& stage) {
                stage.Open();
                stage.Report(1, "bench", 0.5);
                stage.ReportAsWorker(2, "validation", 0.25);
                stage.ReportAsWorker(1, "validation", 0.125);
                stage.Tidy();
                stage.ReportTogether(1, "first", {{"bench", 0.75}, {"health", 2}, {"test", 3}});
                stage.ReportAsWorker(2, "validation", 2.5);
                stage.ReportAsWorker(2, "test", 1.5);  // both rows at once
                stage.Tidy();
                stage.Close();
              }};
}

Scenario PinSteps() {
  return {.name = "PinSteps",
          .prepare =
              [](Stage& stage) {
                stage.Open();
                stage.Save(1, 1);
                stage.Save(2, 1);
                stage.Pin(2, true);
                stage.TagAsTool(2, "v1", true);
                stage.Tidy();
                stage.Close();
              },
          .damage = nullptr,
          .drive =
              [](Stage& stage) {
                stage.Open();
                stage.Pin(1, true);
                stage.TagAsTool(2, "v1", false);  // from there
                stage.TagAsTool(1, "v1", true);   // to here
                stage.TagAsTool(2, "v2", true);
                stage.Tidy();
                stage.Save(2, 2);
                stage.TagAsTool(2, "v2", false);
                stage.Tidy();
                stage.Pin(1, false);  // whose tag goes, too
                stage.Pin(2, false);
                stage.Close();
              }};
}

Scenario AskAsTool() {
  return {.name = "AskAsTool",
          .prepare =
              [](Stage& stage) {
                stage.Open();
                for (const int64_t step : {1, 2, 3, 4, 5}) stage.Save(step, 1);
                stage.Pin(3, true);
                stage.Close();
              },
          .damage = nullptr,
          .drive =
              [](Stage& stage) {
                stage.Open();
                stage.PinAsTool(1, true);
                stage.PinAsTool(3, false);
                stage.AskToDelete(2);  // to which others refer
                stage.ExpectGone({2});
                stage.PinAsTool(1, false);
                stage.PinAsTool(1, true);
                stage.PinAsTool(4, true);
                stage.PinAsTool(4, false);
                stage.AskToDelete(3);
                stage.Close();
              }};
}

Scenario Retain() {
  const CheckpointerOptions keep_two{.reuse = true, .retention = {.max_to_keep = 2}};
  return {.name = "Retain",
          .prepare =
              [](Stage& stage) {
                stage.Open({.reuse = false});
                stage.Save(1, 1);
                stage.Save(2, 1);
                stage.Close();
              },
          .damage = nullptr,
          .drive =
              [keep_two](Stage& stage) {
                stage.Open(keep_two);
                stage.Save(3, 1, {1});  // to whose file nobody refers
                stage.Save(4, 1, {2});  // to which 3 and 4 do
                stage.Save(5, 1, {3});
                stage.Close();
              }};
}

Scenario RetainLeased() {
  const CheckpointerOptions keep_two{.reuse = true, .retention = {.max_to_keep = 2}};
  return {.name = "RetainLeased",
          .prepare =
              [](Stage& stage) {
                stage.Open();
                stage.Save(1, 1);
                stage.Save(2, 1);
                stage.Close();
              },
          .damage = nullptr,
          .drive =
              [keep_two](Stage& stage) {
                stage.Open(keep_two);
                stage.Lease(1);
                stage.Lease(2);
                stage.Save(3, 1);
                stage.Save(4, 1);
                stage.LetGoOf({2});
                stage.Release(2);
                stage.ExpectGone({2});
                stage.LetGoOf({1});
                stage.Release(1);
                stage.ExpectGone({1});
                stage.Lease(4);
                stage.Save(4, 3);  // the file that is read goes later
                stage.Close();
                stage.Release(4);
              }};
}

Scenario RetainOnAFullDisk() {
  return {.name = "RetainOnAFullDisk",
          .prepare =
              [](Stage& stage) {
                stage.Open({.reuse = false});
                for (const int64_t step : {1, 2, 3, 4}) stage.Save(step, 1);
                stage.Tidy();
                stage.Close();
              },
          .damage = nullptr,
          .drive =
              [](Stage& stage) {
                FailingDisk full(stage.disk());
                Stage crowded(stage.disk(), full.files());
                crowded.Open({.reuse = false});
                full.Fill();
                crowded.SaveInVain(5, 1);
                crowded.Delete(1);
                crowded.DiscardAfter(2, {4, 3});
                full.Heal();
                crowded.Save(3, 2);
                crowded.Tidy();
                crowded.Close();
              }};
}

Scenario SaveOnAFailingDisk() {
  return {.name = "SaveOnAFailingDisk",
          .prepare =
              [](Stage& stage) {
                stage.Open();
                stage.Save(1, 1);
                stage.Close();
              },
          .damage = nullptr,
          .drive =
              [](Stage& stage) {
                FailingDisk failing(stage.disk());
                Stage unlucky(stage.disk(), failing.files());
                unlucky.Open();
                failing.FailOnce("SyncData", ".tmk", absl::InternalError("EIO"));
                unlucky.Save(2, 1);  // at the second try
                failing.FailOnce("QueueWrite", ".tmk", absl::ResourceExhaustedError("ENOSPC"));
                unlucky.SaveInVain(3, 1);
                failing.FailOnce("SyncDirectory", "/steps", absl::ResourceExhaustedError("ENOSPC"));
                unlucky.SaveInVain(4, 1);
                failing.FailOnceIn("SyncData", kEntries, absl::ResourceExhaustedError("ENOSPC"));
                unlucky.SaveInVain(3, 2);
                failing.FailOnceIn("SyncData", kEntries, absl::InternalError("EIO"));
                unlucky.Save(3, 3);  // as another attempt
                failing.FailOnceIn("SyncDirectory", kEntries, absl::InternalError("EIO"));
                unlucky.Save(2, 2);  // its entry is settled by another one
                failing.FailIn("SyncDirectory", kEntries, absl::InternalError("EIO"));
                unlucky.SaveIntoTheUnknown(2, 3);  // the next append finds out
                failing.Heal();
                unlucky.Save(5, 1);  // it is committed with this one, and what it replaces goes
                unlucky.Close();
              }};
}

Scenario DeleteAfterFailedSaves() {
  return {.name = "DeleteAfterFailedSaves",
          .prepare =
              [](Stage& stage) {
                stage.Open();
                for (const int64_t step : {1, 2, 3}) stage.Save(step, 1);
                stage.Pin(2, true);
                stage.Close();
              },
          .damage = nullptr,
          .drive =
              [](Stage& stage) {
                FailingDisk failing(stage.disk());
                Stage unlucky(stage.disk(), failing.files());
                unlucky.Open();
                failing.FailOnce("SyncDirectory", "/steps", absl::ResourceExhaustedError("ENOSPC"));
                unlucky.SaveInVain(1, 2);
                unlucky.AskToDelete(1);
                unlucky.ExpectGone({1});
                failing.FailIn("SyncDirectory", kEntries, absl::ResourceExhaustedError("ENOSPC"));
                unlucky.SaveIntoTheUnknown(2, 2);  // with the pin
                failing.Heal();
                unlucky.Tidy();
                unlucky.Pin(2, false);
                failing.FailOnce("SyncDirectory", "/steps", absl::ResourceExhaustedError("ENOSPC"));
                unlucky.SaveInVain(7, 1);
                unlucky.Save(5, 1);
                failing.FailOnce("SyncDirectory", "/steps", absl::ResourceExhaustedError("ENOSPC"));
                unlucky.SaveInVain(3, 2);
                unlucky.Report(3, "bench", 0.5);  // on the attempt that there is
                unlucky.Close();
              }};
}

Scenario GoBack() {
  return {.name = "GoBack",
          .prepare =
              [](Stage& stage) {
                stage.Open();
                for (const int64_t step : {1, 2, 3, 4, 5}) stage.Save(step, 1);
                stage.Close();
              },
          .damage = nullptr,
          .drive =
              [](Stage& stage) {
                FailingDisk failing(stage.disk());
                Stage back(stage.disk(), failing.files());
                back.Open();
                back.Save(6, 1);
                failing.FailOnce("SyncDirectory", "/steps", absl::ResourceExhaustedError("ENOSPC"));
                back.SaveInVain(7, 1);
                back.DiscardAfter(4, {6, 5});
                back.Save(5, 2);  // refers to nothing
                back.Save(7, 2);  // refers to that
                back.Close();
                back.PruneAfter(2, {7, 5, 4, 3});
                back.Open();
                back.Save(3, 2);
                back.Close();
              }};
}

Scenario LiveAtRandom(uint64_t seed) {
  return {.name = "LiveAtRandom", .prepare = nullptr, .damage = nullptr, .drive = [seed](Stage& stage) {
            RandomLife(stage, seed).Go();
          }};
}

Scenario CloseAndReopen() {
  return {.name = "CloseAndReopen",
          .prepare =
              [](Stage& stage) {
                stage.Open();
                stage.Save(1, 1);
                stage.Save(2, 1);
                stage.Close();
              },
          .damage = nullptr,
          .drive =
              [](Stage& stage) {
                stage.Open();
                stage.Close();
                stage.Open();
                stage.Save(3, 1);
                stage.Close();
                // So often that RocksDB compacts.
                for (int i = 0; i < 4; ++i) {
                  stage.Open();
                  stage.Pin(3, i % 2 == 0);
                  stage.Close();
                }
              }};
}

}  // namespace tidemark::crash
