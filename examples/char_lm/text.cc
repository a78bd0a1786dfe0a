#include "examples/char_lm/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "absl/status/status.h"

namespace char_lm {
namespace {

constexpr size_t kHeldOutShare = 10;  // one character in so many

}  // namespace

absl::StatusOr<Text> Text::Read(const std::string& path, TextPart part, int64_t length_min) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) return absl::NotFoundError(fmt::format("read the text {}: cannot be read", path));
  const size_t held_out = bytes.size() / kHeldOutShare;
  const size_t split = bytes.size() - held_out;
  const std::string own = part == TextPart::kTraining ? bytes.substr(0, split) : bytes.substr(split);
  const auto length = static_cast<int64_t>(own.size());
  if (length < length_min) {
    return absl::InvalidArgumentError(fmt::format("read the text {}: expected at least {} characters to {}, found {}",
                                                  path, length_min,
                                                  part == TextPart::kTraining ? "train on" : "validate with", length));
  }

  Text text;
  const std::set<unsigned char> distinct(bytes.begin(), bytes.end());
  std::array<int64_t, 256> numbers{};
  for (const unsigned char character : distinct) {
    numbers[character] = static_cast<int64_t>(text.vocabulary_.size());
    text.vocabulary_.push_back(static_cast<char>(character));
  }
  text.characters_ = torch::empty({length}, torch::kInt64);
  auto* out = text.characters_.data_ptr<int64_t>();
  for (const char character : own) *out++ = numbers[static_cast<unsigned char>(character)];
  return text;
}

Batch Text::Draw(int64_t batch, int64_t context) const {
  const auto starts = torch::randint(length() - context, {batch, 1}, torch::kInt64);
  const auto places = starts + torch::arange(context, torch::kInt64);  // [batch, context]
  return {.input = characters_.index({places}), .target = characters_.index({places + 1})};
}

std::vector<Batch> Text::Walk(int64_t batch, int64_t context) const {
  const int64_t windows = (length() - 1) / context;
  const torch::Tensor input = characters_.narrow(0, 0, windows * context).view({windows, context});
  const torch::Tensor target = characters_.narrow(0, 1, windows * context).view({windows, context});
  std::vector<Batch> batches;
  for (int64_t first = 0; first < windows; first += batch) {
    const int64_t count = std::min(batch, windows - first);
    batches.push_back({.input = input.narrow(0, first, count), .target = target.narrow(0, first, count)});
  }
  return batches;
}

}  // namespace char_lm
