#include "examples/char_lm/text.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include "absl/status/status.h"

namespace char_lm {

absl::StatusOr<Text> Text::Read(const std::string& path, int64_t length_min) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) return absl::NotFoundError(fmt::format("read the training text {}: cannot be read", path));
  const auto length = static_cast<int64_t>(bytes.size());
  if (length < length_min) {
    return absl::InvalidArgumentError(
        fmt::format("read the training text {}: expected at least {} characters, found {}", path, length_min, length));
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
  for (const char character : bytes) *out++ = numbers[static_cast<unsigned char>(character)];
  return text;
}

Batch Text::Draw(int64_t batch, int64_t context) const {
  const auto starts = torch::randint(length() - context, {batch, 1}, torch::kInt64);
  const auto places = starts + torch::arange(context, torch::kInt64);  // [batch, context]
  return {.input = characters_.index({places}), .target = characters_.index({places + 1})};
}

}  // namespace char_lm
