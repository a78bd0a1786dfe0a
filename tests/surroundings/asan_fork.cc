// In every test's program. AddressSanitizer of clang 14 has locks around its memory, and does not hand them over to a
// forked child as the C library does: a child that is forked while another thread takes or gives memory waits for that
// thread, which it does not have, for ever. Newer ones take their locks around a fork, as this does.

#include <pthread.h>

// Of the sanitizer's runtime library; null where a program has none.
namespace __lsan {
[[gnu::weak]] void LockThreadRegistry();
[[gnu::weak]] void UnlockThreadRegistry();
[[gnu::weak]] void LockAllocator();
[[gnu::weak]] void UnlockAllocator();
}  // namespace __lsan
namespace __sanitizer {
[[gnu::weak]] void StackDepotLockAll();
[[gnu::weak]] void StackDepotUnlockAll();
}  // namespace __sanitizer

namespace tidemark {
namespace {

void Lock() {
  __lsan::LockThreadRegistry();
  __lsan::LockAllocator();
  __sanitizer::StackDepotLockAll();
}

void Unlock() {
  __sanitizer::StackDepotUnlockAll();
  __lsan::UnlockAllocator();
  __lsan::UnlockThreadRegistry();
}

// Runs before other constructors. Handlers that are registered first are called last before a fork, so the other handlers
// can still allocate.
[[gnu::constructor(101)]] void LockAroundForks() {
  const bool is_there = __lsan::LockThreadRegistry != nullptr && __lsan::UnlockThreadRegistry != nullptr &&
                        __lsan::LockAllocator != nullptr && __lsan::UnlockAllocator != nullptr &&
                        __sanitizer::StackDepotLockAll != nullptr && __sanitizer::StackDepotUnlockAll != nullptr;
  if (is_there) pthread_atfork(Lock, Unlock, Unlock);
}

}  // namespace
}  // namespace tidemark
