// A snapshot that a test makes by hand, and what the entries of any hold.

#ifndef TIDEMARK_TESTS_SNAPSHOT_TEST_SNAPSHOT_H_
#define TIDEMARK_TESTS_SNAPSHOT_TEST_SNAPSHOT_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tidemark/snapshot.h"

namespace tidemark {

class TestSnapshot final : public Snapshot {
 public:
  explicit TestSnapshot(int64_t step = 0, std::map<std::string, double> metrics = {})
      : step_(step), metrics_(std::move(metrics)) {}

  // An entry that consists of copies of `values`.
  template <typename T>
  TestSnapshot& Add(EntrySpec spec, const std::vector<T>& values) {
    auto bytes = std::make_shared<std::vector<std::byte>>(values.size() * sizeof(T));
    if (!values.empty()) std::memcpy(bytes->data(), values.data(), bytes->size());
    return AddBytes(std::move(spec), std::move(bytes));
  }
  // A tensor of one dimension.
  TestSnapshot& Add(std::string_view name, const std::vector<float>& values) {
    return Add({.name = std::string(name), .dtype = Dtype::kFloat32, .shape = {static_cast<int64_t>(values.size())}},
               values);
  }
  TestSnapshot& Add(std::string_view name, const std::vector<double>& values) {
    return Add({.name = std::string(name), .dtype = Dtype::kFloat64, .shape = {static_cast<int64_t>(values.size())}},
               values);
  }
  // An entry that is tied to an earlier one.
  TestSnapshot& AddTied(std::string name, std::string_view other) {
    const size_t index = *Find(other);
    EntrySpec spec = specs_[index];
    spec.name = std::move(name);
    return AddBytes(std::move(spec), bytes_[index]);
  }

  int64_t step() const override { return step_; }
  std::span<const EntrySpec> entries() const override { return specs_; }
  std::span<const std::byte> bytes(size_t index) const override { return *bytes_[index]; }
  std::shared_ptr<const void> memory() const override {
    return std::make_shared<std::vector<std::shared_ptr<std::vector<std::byte>>>>(bytes_);
  }
  std::optional<size_t> Find(std::string_view name) const override {
    for (size_t i = 0; i < specs_.size(); ++i) {
      if (specs_[i].name == name) return i;
    }
    return std::nullopt;
  }
  const std::map<std::string, double>& metrics() const override { return metrics_; }
  const std::string& user_metadata() const override { return user_metadata_; }

 private:
  TestSnapshot& AddBytes(EntrySpec spec, std::shared_ptr<std::vector<std::byte>> bytes) {
    specs_.push_back(std::move(spec));
    bytes_.push_back(std::move(bytes));
    return *this;
  }

  int64_t step_;
  std::map<std::string, double> metrics_;
  std::string user_metadata_ = "{}";
  std::vector<EntrySpec> specs_;
  std::vector<std::shared_ptr<std::vector<std::byte>>> bytes_;
};

// The numbers that an entry consists of, or its characters.
template <typename T>
std::vector<T> Numbers(const Snapshot& snapshot, std::string_view name) {
  const std::span<const std::byte> bytes = snapshot.bytes(*snapshot.Find(name));
  std::vector<T> numbers(bytes.size() / sizeof(T));
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SNAPSHOT_TEST_SNAPSHOT_H_
