#include "tidemark/torch_ranks.h"

#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "fmt/format.h"

namespace tidemark {
namespace {

class StoreKeys final : public RankKeys {
 public:
  explicit StoreKeys(c10::intrusive_ptr<c10d::Store> store) : store_(std::move(store)) {}

  absl::Status Set(const std::string& key, const std::string& value) override {
    return Try("set", key, [&] { store_->set(key, std::vector<uint8_t>(value.begin(), value.end())); });
  }

  // `get` waits for a key that is not there, so it is asked for one that is.
  absl::StatusOr<std::optional<std::string>> Find(const std::string& key) override {
    std::optional<std::string> found;
    const absl::Status status = Try("get", key, [&] {
      if (!store_->check({key})) return;
      const std::vector<uint8_t> bytes = store_->get(key);
      found.emplace(bytes.begin(), bytes.end());
    });
    if (!status.ok()) return status;
    return found;
  }

  // A FileStore has no such function.
  void Remove(const std::string& key) override {
    Try("delete", key, [&] { store_->deleteKey(key); }).IgnoreError();
  }

 private:
  template <typename Call>
  static absl::Status Try(const char* what, const std::string& key, const Call& call) {
    try {
      call();
      return absl::OkStatus();
    } catch (const std::exception& error) {
      return absl::UnavailableError(fmt::format("c10d store: {} '{}': {}", what, key, error.what()));
    }
  }

  const c10::intrusive_ptr<c10d::Store> store_;
};

}  // namespace

AllGather GatherOverStore(c10::intrusive_ptr<c10d::Store> store, std::string prefix, int32_t rank, int32_t world_size,
                          absl::Duration timeout) {
  return GatherOverKeys(std::make_shared<StoreKeys>(std::move(store)), std::move(prefix), rank, world_size, timeout);
}

}  // namespace tidemark
