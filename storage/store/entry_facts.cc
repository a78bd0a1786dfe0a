#include "storage/store/entry_facts.h"

#include <string>
#include <utility>
#include <variant>

#include "fmt/format.h"

namespace tidemark::storage {

absl::StatusOr<std::vector<Fact>> DecodeFacts(const JournalEntry& entry, const StoreId& store) {
  std::vector<Fact> facts;
  for (const std::string& bytes : entry.facts) {
    absl::StatusOr<Fact> fact = DecodeFact(bytes);
    if (!fact.ok()) {
      return absl::Status(fact.status().code(),
                          fmt::format("journal entry {}: {}", entry.number, std::string(fact.status().message())));
    }
    const auto* const of_store = std::get_if<StoreFact>(&*fact);
    if (of_store != nullptr && of_store->store != store) {
      return absl::DataLossError(fmt::format("journal entry {}: the journal belongs to store {}, this one is {}",
                                             entry.number, ToHex(of_store->store.bytes), ToHex(store.bytes)));
    }
    facts.push_back(*std::move(fact));
  }
  return facts;
}

}  // namespace tidemark::storage
