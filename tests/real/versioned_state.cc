#include "tests/real/versioned_state.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace tidemark {
namespace {

constexpr size_t kFrozen = 24 << 10;
constexpr int64_t kFrozenVersions = 64;
constexpr size_t kParts = 20 << 10;
constexpr size_t kPartLength = 4 << 10;
constexpr int64_t kPartsCount = kParts / kPartLength;
constexpr size_t kWeight = 12 << 10;
constexpr size_t kNoise = 5003;

class Numbers {
 public:
  Numbers(uint64_t tensor, uint64_t seed) : state_(tensor * 0x9e3779b97f4a7c15u + seed * 0xbf58476d1ce4e5b9u + 1) {}
  uint32_t Next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  float NextWeight() { return static_cast<float>(Next()) / static_cast<float>(1u << 31) - 0.5F; }

 private:
  uint64_t state_;
};

template <typename T>
bool SameBytes(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

}  // namespace

VersionedState::VersionedState() : frozen_(kFrozen), parts_(kParts), weight_(kWeight), noise_(kNoise) {
  state_.AddTensor("model.frozen", Dtype::kUint32, {kFrozen}, frozen_.data());
  state_.AddTensor("model.parts", Dtype::kFloat32, {kPartsCount, kPartLength}, parts_.data());
  state_.AddTensor("model.weight", Dtype::kFloat32, {kWeight}, weight_.data());
  state_.AddTensor("noise", Dtype::kUint8, {kNoise}, noise_.data());
  state_.AddValue("note", &note_);
  state_.AddValue("step", &step_);
  state_.AddValue("version", &version_);
}

void VersionedState::SetTo(int64_t step, int64_t version) {
  const auto number = static_cast<uint64_t>(version);
  Numbers frozen(1, static_cast<uint64_t>(version / kFrozenVersions));
  for (uint32_t& value : frozen_) value = frozen.Next() & 0xffff;
  for (int64_t part = 0; part < kPartsCount; ++part) {
    Numbers of_part(2, number - static_cast<uint64_t>((version + part) % kPartsCount));
    const std::span values = std::span(parts_).subspan(static_cast<size_t>(part) * kPartLength, kPartLength);
    for (float& value : values) value = of_part.NextWeight();
  }
  Numbers weight(3, number);
  for (float& value : weight_) value = weight.NextWeight();
  Numbers noise(4, number);
  for (uint8_t& value : noise_) value = static_cast<uint8_t>(noise.Next());
  note_ = std::string(number * 37 % 501, 'n') + std::to_string(version);
  step_ = step;
  version_ = version;
}

bool VersionedState::IsThatOf(int64_t step, int64_t version) const {
  VersionedState expected;
  expected.SetTo(step, version);
  return SameBytes(frozen_, expected.frozen_) && SameBytes(parts_, expected.parts_) &&
         SameBytes(weight_, expected.weight_) && SameBytes(noise_, expected.noise_) && note_ == expected.note_ &&
         step_ == step && version_ == version;
}

}  // namespace tidemark
