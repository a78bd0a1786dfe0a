#include "storage/codec/fse_weights.h"

#include <algorithm>
#include <array>
#include <bit>

#include "storage/codec/bit_writer.h"

namespace tidemark::storage {
namespace {

constexpr int kStateBits = 6;  // the most that the format allows for weights
constexpr int kStates = 1 << kStateBits;
constexpr size_t kWeights = 12;  // 0 to 11

// How many of the states belong to each weight: in proportion to how often it occurs, and at least one if it does.
using Shares = std::array<int, kWeights>;

Shares SharesOf(std::span<const uint8_t> weights) {
  std::array<int, kWeights> counts{};
  for (const uint8_t weight : weights) ++counts[weight];
  Shares shares{};
  int left = kStates;
  for (size_t weight = 0; weight < kWeights; ++weight) {
    if (counts[weight] == 0) continue;
    shares[weight] = std::max<int>(1, counts[weight] * kStates / static_cast<int>(weights.size()));
    left -= shares[weight];
  }
  // Rounding is settled with the largest, which feels it least.
  for (; left != 0; left += left < 0 ? 1 : -1) *std::max_element(shares.begin(), shares.end()) += left < 0 ? -1 : 1;
  return shares;
}

// RFC 8878, 4.1.1.
std::byte* WriteShares(const Shares& shares, std::byte* out) {
  BitWriter writer(out);
  writer.Add(kStateBits - 5, 4);
  int left = kStates;
  for (size_t weight = 0; left > 0;) {
    // A field of 0 to left + 1; those below `shorter` take a bit less.
    const int bits = std::bit_width(static_cast<unsigned>(left + 1));
    const int shorter = (1 << bits) - 2 - left;
    const int field = shares[weight] + 1;
    if (field < shorter) {
      writer.Add(field, bits - 1);
    } else {
      writer.Add(field < 1 << (bits - 1) ? field : field + shorter, bits);
    }
    left -= shares[weight];
    if (shares[weight++] == 0) {
      // How many more are zero: twos of bits, of which 3 says that another follows.
      int zeros = 0;
      while (shares[weight + zeros] == 0) ++zeros;
      weight += zeros;
      for (; zeros >= 3; zeros -= 3) writer.Add(3, 2);
      writer.Add(zeros, 2);
    }
    writer.Flush();
  }
  return writer.FinishUnmarked();
}

// The states as a decoder has them: each yields a weight, and its next state is `base` plus the value of `bits` bits.
struct State {
  uint8_t weight = 0;
  uint8_t base = 0;
  uint8_t bits = 0;
};

class StateMachine {
 public:
  explicit StateMachine(const Shares& shares) {
    // RFC 8878, 4.1.1: how the weights are spread over the states.
    size_t position = 0;
    for (uint8_t weight = 0; weight < kWeights; ++weight) {
      for (int i = 0; i < shares[weight]; ++i) {
        states_[position].weight = weight;
        position = (position + kStates / 2 + kStates / 8 + 3) % kStates;
      }
    }
    Shares numbers = shares;
    for (uint8_t state = 0; state < kStates; ++state) {
      State& at = states_[state];
      const unsigned number = numbers[at.weight]++;
      at.bits = static_cast<uint8_t>(kStateBits + 1 - std::bit_width(number));
      at.base = static_cast<uint8_t>((number << at.bits) - kStates);
      for (int next = at.base; next < at.base + (1 << at.bits); ++next) before_[at.weight][next] = state;
      if (at.bits >= states_[last_[at.weight]].bits || states_[last_[at.weight]].weight != at.weight) {
        last_[at.weight] = state;
      }
    }
  }

  // The state in which a decoder is that yields `weight` and then stops. It stops when bits are missing for the next
  // state, so this one asks for at least one.
  uint8_t Last(uint8_t weight) const { return last_[weight]; }

  // The state that yields `weight` and is followed by `next`, and the bits that lead there.
  uint8_t Before(uint8_t weight, uint8_t next, BitWriter* writer) const {
    const uint8_t state = before_[weight][next];
    writer->Add(next - states_[state].base, states_[state].bits);
    return state;
  }

 private:
  std::array<State, kStates> states_;
  std::array<std::array<uint8_t, kStates>, kWeights> before_{};
  std::array<uint8_t, kWeights> last_{};
};

}  // namespace

size_t EncodeFseWeights(std::span<const uint8_t> weights, std::span<std::byte, kFseWeightsBytesMax> out) {
  if (std::all_of(weights.begin(), weights.end(), [&](uint8_t weight) { return weight == weights[0]; })) return 0;
  // No weight takes more than six bits, and the shares not more than 12 times seven.
  std::array<std::byte, 256> bytes;
  const Shares shares = SharesOf(weights);
  std::byte* const end_of_shares = WriteShares(shares, bytes.data());
  const StateMachine machine(shares);

  // Two states take turns, the first one with the first weight; all is written from the end.
  BitWriter writer(end_of_shares);
  std::array<uint8_t, 2> states{};
  for (size_t i = weights.size(); i-- > 0;) {
    uint8_t& state = states[i % 2];
    state = i + 2 >= weights.size() ? machine.Last(weights[i]) : machine.Before(weights[i], state, &writer);
    writer.Flush();
  }
  writer.Add(states[1], kStateBits);
  writer.Add(states[0], kStateBits);
  const size_t size = writer.Finish() - bytes.data();
  if (size > out.size()) return 0;
  std::copy_n(bytes.begin(), size, out.begin());
  return size;
}

}  // namespace tidemark::storage
