// A process that uses a store from a machine of its own, which no locks of others reach.

#ifndef TIDEMARK_TESTS_STORAGE_STORE_SHARING_CLIENT_H_
#define TIDEMARK_TESTS_STORAGE_STORE_SHARING_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "storage/store/store.h"
#include "storage/store/store_journal.h"
#include "tests/storage/io/failing_file_system.h"
#include "tests/storage/io/simulated_disk.h"
#include "tests/storage/io/stale_file_system.h"

namespace tidemark::storage {

inline constexpr const char* kSharedStore = "/store";
inline constexpr size_t kAlwaysOld = 1'000'000;  // looks, for which a listing serves

// Its file system shows old listings, but for the index, at which threads of RocksDB look. Thread-compatible.
class SharingClient {
 public:
  // `age_max`: a listing serves up to so many further looks, a number that `seed` draws for each; kAlwaysOld: so many.
  SharingClient(SimulatedDisk& disk, std::string name, uint32_t seed, size_t age_max)
      : name_(std::move(name)),
        client_(disk.NewClient()),
        stale_(
            *client_,
            [this, seed, age_max](const std::string& directory) -> size_t {
              // By directory, because threads of RocksDB look at some of them.
              auto [random, is_new] = ages_.try_emplace(directory, seed);
              if (age_max >= kAlwaysOld) return age_max;
              return age_max == 0 || random->second() % 2 == 0 ? 0 : random->second() % age_max;
            },
            std::string(kSharedStore) + "/index"),
        files_(stale_) {}

  const std::string& name() const { return name_; }
  FailingFileSystem& files() { return files_; }
  Store* store() { return store_.get(); }
  StoreJournal* journal() { return journal_.get(); }

  absl::Status OpenStore() {
    absl::StatusOr<std::unique_ptr<Store>> store =
        Store::Open(files_, {.directory = kSharedStore, .warn = [this](std::string_view line) { Warn(line); }});
    if (store.ok()) store_ = *std::move(store);
    return store.status();
  }
  absl::Status OpenJournal(const StoreLayout& layout, const StoreId& id) {
    absl::StatusOr<std::unique_ptr<StoreJournal>> journal =
        StoreJournal::Open(files_, layout, id, {.appends = true, .warn = [](std::string_view) {}});
    if (journal.ok()) journal_ = *std::move(journal);
    return journal.status();
  }
  void Warn(std::string_view line) const {
    EXPECT_EQ(line.find("the journal cannot be read"), line.npos) << name_ << ": " << line;
  }
  void CloseStore() { store_.reset(); }
  void CloseJournal() { journal_.reset(); }

 private:
  const std::string name_;
  std::map<std::string, std::mt19937> ages_;
  const std::unique_ptr<FileSystem> client_;
  StaleFileSystem stale_;
  FailingFileSystem files_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<StoreJournal> journal_;
};

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_STORE_SHARING_CLIENT_H_
