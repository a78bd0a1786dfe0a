// What the fuzz targets share: values that are drawn from an input, and the end of the process where a property does
// not hold.
//
// A target is one source that defines LLVMFuzzerTestOneInput. With TIDEMARK_FUZZERS it is linked with libFuzzer, which
// invents inputs; else with replay.cc, which runs it on the files of its corpus, as a test of every ordinary build.

#ifndef TIDEMARK_FUZZ_FUZZING_H_
#define TIDEMARK_FUZZ_FUZZING_H_

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string_view>

// Handles one input, whatever it is; returns 0. Ends the process where the library does what it must never do.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace tidemark::fuzz {

inline void Require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: violated: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

// Hands out an input from its front. What is taken beyond its end is zeros, or nothing. Thread-compatible.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : bytes_(reinterpret_cast<const char*>(data), size) {}
  explicit FuzzInput(std::string_view bytes) : bytes_(bytes) {}

  bool empty() const { return bytes_.empty(); }

  template <std::integral T>
  T Take() {
    T value = 0;
    const size_t size = std::min(sizeof(T), bytes_.size());
    if (size > 0) std::memcpy(&value, bytes_.data(), size);
    bytes_.remove_prefix(size);
    return value;
  }

  // The next `size` bytes, or as many as there are.
  std::string_view TakeText(size_t size) {
    const std::string_view text = bytes_.substr(0, size);
    bytes_.remove_prefix(text.size());
    return text;
  }

  std::string_view TakeRest() { return TakeText(bytes_.size()); }

 private:
  std::string_view bytes_;
};

inline std::span<const std::byte> AsBytes(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace tidemark::fuzz

#endif  // TIDEMARK_FUZZ_FUZZING_H_
