// Whose a store is: what is written into it only its own user can read, so nobody else may write there.

#ifndef TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_STORE_OWNER_H_
#define TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_STORE_OWNER_H_

#include <string>

#include "absl/status/status.h"

namespace tidemark::inspect {

// kPermissionDenied, with what to do, where the store is another user's; root is no exception, for it would shut the
// trainer out of its own store. What is missing or denied is ok here: whoever opens the store says it better.
absl::Status CheckOwner(const std::string& directory);

// The name of this process's user, or its number where it has none.
std::string ThisUser();

}  // namespace tidemark::inspect

#endif  // TIDEMARK_TOOLS_CHECKPOINT_INSPECT_CHECKS_STORE_OWNER_H_
