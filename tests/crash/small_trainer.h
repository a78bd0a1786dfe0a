// A training state of a few KiB, which a number stands for.

#ifndef TIDEMARK_TESTS_CRASH_SMALL_TRAINER_H_
#define TIDEMARK_TESTS_CRASH_SMALL_TRAINER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidemark/state.h"

namespace tidemark::crash {

class SmallTrainer {
 public:
  SmallTrainer() : frozen_(kNumbers), weight_(kNumbers) {
    state.AddTensor("model.frozen", Dtype::kInt32, {kNumbers}, frozen_.data());
    state.AddTensor("model.weight", Dtype::kInt32, {kNumbers}, weight_.data());
    state.AddValue("content", &content_);
    state.AddValue("note", &note_);
  }

  void SetTo(int64_t step, int64_t content) {
    content_ = content;
    note_ = absl::StrCat("step ", step, ", content ", content);
    // The same at every step: its chunks are written once, and referred to by those that follow.
    Fill(frozen_, 1);
    Fill(weight_, static_cast<uint32_t>(step) * 7919u + static_cast<uint32_t>(content) + 2);
  }

  // Nothing that was ever saved.
  void Clear() {
    content_ = -1;
    note_ = "nothing";
    Fill(frozen_, 0);
    Fill(weight_, 0);
  }

  // The content whose bytes these are, all of them; nullopt: of none at that step.
  std::optional<int64_t> ContentAt(int64_t step) const {
    SmallTrainer expected;
    expected.SetTo(step, content_);
    const bool same = frozen_ == expected.frozen_ && weight_ == expected.weight_ && note_ == expected.note_;
    return same && content_ >= 0 ? std::optional(content_) : std::nullopt;
  }

  State state;

 private:
  // One chunk of 4 KiB and a part of another.
  static constexpr int64_t kNumbers = 1500;

  static void Fill(std::vector<int32_t>& numbers, uint32_t seed) {
    uint32_t bits = seed * 2654435761u + 1;
    for (int32_t& number : numbers) {
      bits = bits * 1664525u + 1013904223u;
      number = static_cast<int32_t>(bits);
    }
  }

  std::vector<int32_t> frozen_;
  std::vector<int32_t> weight_;
  int64_t content_ = -1;
  std::string note_;
};

}  // namespace tidemark::crash

#endif  // TIDEMARK_TESTS_CRASH_SMALL_TRAINER_H_
