// What must be in a store that several processes change at the same time. It knows what was answered to whom, and
// nothing of journals: a change that was acknowledged is there, one that was refused is not, and of several the last
// one counts.

#ifndef TIDEMARK_TESTS_STORAGE_STORE_SHARED_STORE_ORACLE_H_
#define TIDEMARK_TESTS_STORAGE_STORE_SHARED_STORE_ORACLE_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "storage/bytes/ids.h"
#include "storage/records/step_catalog.h"
#include "tests/storage/io/status_matchers.h"

namespace tidemark::storage {

// The steps that are saved are 1 to this one.
inline constexpr int64_t kSharedStepsMax = 7;

// Of an operation: the count of beginnings and ends before it, and before its end.
struct Span {
  int begin = 0;
  int end = 0;
  bool IsBefore(const Span& other) const { return end <= other.begin; }
};

struct SharedAttempt {
  int64_t step = 0;
  AttemptId attempt;
  int64_t value = 0;
};

// What a client has asked for.
struct Asked {
  enum class Kind { kCommit, kDelete, kPin, kUnpin, kReport };
  Kind kind = Kind::kCommit;
  std::string who;
  SharedAttempt attempt;
  std::string text;  // the pin's note, or the evaluator
  Span span;
  bool is_done = false;  // else it is not known whether it was
};

// Thread-compatible.
class SharedStoreOracle {
 public:
  // Ignored if it was refused.
  void Note(Asked asked, const absl::Status& status) {
    if (!status.ok() && !absl::IsUnknown(status)) return;
    asked.is_done = status.ok();
    asked_.push_back(std::move(asked));
  }

  // What `kind` of the step may have come last: nothing that is done came after it for sure.
  std::vector<const Asked*> Last(int64_t step, std::set<Asked::Kind> kinds) const {
    std::vector<const Asked*> all = Of(step, kinds), last;
    for (const Asked* asked : all) {
      if (std::none_of(all.begin(), all.end(),
                       [&](const Asked* later) { return later->is_done && asked->span.IsBefore(later->span); })) {
        last.push_back(asked);
      }
    }
    return last;
  }

  std::vector<const Asked*> Of(int64_t step, std::set<Asked::Kind> kinds) const {
    std::vector<const Asked*> found;
    for (const Asked& asked : asked_) {
      if (asked.attempt.step == step && kinds.contains(asked.kind)) found.push_back(&asked);
    }
    return found;
  }

  // The attempts that were committed.
  std::vector<SharedAttempt> Committed() const {
    std::vector<SharedAttempt> committed;
    for (const Asked& asked : asked_) {
      if (asked.kind == Asked::Kind::kCommit && asked.is_done) committed.push_back(asked.attempt);
    }
    return committed;
  }

  // Whether it was, and whether it may have been.
  std::pair<bool, bool> IsDeleted(const SharedAttempt& attempt) const {
    bool is = false, may_be = false;
    for (const Asked* asked : Of(attempt.step, {Asked::Kind::kDelete})) {
      if (asked->attempt.attempt != attempt.attempt) continue;
      is = is || asked->is_done;
      may_be = true;
    }
    return {is, may_be};
  }

  // Steps that were deleted although they were pinned.
  void CheckDeletions() const {
    for (const Asked& deletion : asked_) {
      if (deletion.kind != Asked::Kind::kDelete || !deletion.is_done) continue;
      for (const Asked* pin : Of(deletion.attempt.step, {Asked::Kind::kPin})) {
        if (!pin->is_done || !pin->span.IsBefore(deletion.span)) continue;
        const auto unpins = Of(deletion.attempt.step, {Asked::Kind::kUnpin});
        EXPECT_TRUE(std::any_of(unpins.begin(), unpins.end(),
                                [&](const Asked* unpin) { return !unpin->span.IsBefore(pin->span); }))
            << "step " << deletion.attempt.step << " was deleted, and had the pin " << pin->text;
      }
    }
  }

  // What anybody must find who looks from now on.
  void CheckCatalog(const StepCatalog& catalog,
                    const std::function<absl::StatusOr<int64_t>(int64_t, const AttemptId&)>& read) const {
    for (int64_t step = 1; step <= kSharedStepsMax; ++step) {
      SCOPED_TRACE(History(step));
      const std::vector<const Asked*> commits = Last(step, {Asked::Kind::kCommit});
      const absl::StatusOr<std::optional<StepRecord>> record = catalog.Find(step);
      ASSERT_THAT(record, IsOk());
      const bool is_due =
          std::any_of(commits.begin(), commits.end(), [](const Asked* asked) { return asked->is_done; });
      const bool has_attempt = record->has_value() && (*record)->info.state != StepState::kFailed;
      ASSERT_TRUE(has_attempt || !is_due) << "it was committed";
      if (!has_attempt) continue;
      const StepInfo& info = (*record)->info;
      const auto found = std::find_if(commits.begin(), commits.end(), [&](const Asked* asked) {
        return ToHex(asked->attempt.attempt.bytes) == info.attempt;
      });
      ASSERT_NE(found, commits.end()) << "attempt " << info.attempt << " was not the last one to be committed";
      const SharedAttempt& attempt = (*found)->attempt;
      const auto [is_deleted, may_be_deleted] = IsDeleted(attempt);
      if (info.state == StepState::kDeleted) {
        ASSERT_TRUE(may_be_deleted) << "no client has deleted it";
        continue;
      }
      ASSERT_EQ(info.state, StepState::kCommitted);
      ASSERT_FALSE(is_deleted) << "it was deleted";
      const absl::StatusOr<int64_t> value = read(step, attempt.attempt);
      ASSERT_THAT(value, IsOk());
      ASSERT_EQ(*value, attempt.value);
      CheckPin(info);
      CheckReports(info);
    }
  }

  // What was asked of the step, a line each, for a person.
  std::string History(int64_t step) const {
    std::string lines = fmt::format("step {}:\n", step);
    for (const Asked* asked : Of(step, {Asked::Kind::kCommit, Asked::Kind::kDelete, Asked::Kind::kPin,
                                        Asked::Kind::kUnpin, Asked::Kind::kReport})) {
      constexpr std::string_view kNames[] = {"commits", "deletes", "pins", "unpins", "reports on"};
      lines += fmt::format("  [{}, {}] {} {} {} {}{}\n", asked->span.begin, asked->span.end, asked->who,
                           kNames[static_cast<size_t>(asked->kind)], ToHex(asked->attempt.attempt.bytes), asked->text,
                           asked->is_done ? "" : ": not known");
    }
    return lines;
  }

 private:
  void CheckPin(const StepInfo& info) const {
    const std::vector<const Asked*> pins = Last(info.step, {Asked::Kind::kPin, Asked::Kind::kUnpin});
    const bool is_due = std::any_of(pins.begin(), pins.end(), [](const Asked* asked) { return asked->is_done; });
    if (!is_due && !info.pinned) return;
    EXPECT_TRUE(std::any_of(pins.begin(), pins.end(), [&](const Asked* pin) {
      return info.pinned ? pin->kind == Asked::Kind::kPin && pin->text == info.pin_note
                         : pin->kind == Asked::Kind::kUnpin;
    })) << (info.pinned ? "it has the pin " + info.pin_note : "it has no pin");
  }

  void CheckReports(const StepInfo& info) const {
    std::set<std::string> evaluators;
    for (const Evaluation& evaluation : info.evaluations) evaluators.insert(evaluation.evaluator);
    for (const Asked* report : Of(info.step, {Asked::Kind::kReport})) {
      if (!report->is_done || ToHex(report->attempt.attempt.bytes) != info.attempt) continue;
      EXPECT_TRUE(evaluators.contains(report->text)) << report->text << " has reported";
    }
  }

  std::vector<Asked> asked_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_STORE_SHARED_STORE_ORACLE_H_
