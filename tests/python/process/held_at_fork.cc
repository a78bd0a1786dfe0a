// Makes a fork meet a mutex of the module _native that another thread holds: the first that a thread locks after `arm`.
// Without it that takes a fork within some nanoseconds. To be preloaded, so that it comes before libc.

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

namespace {

enum : int { kOff, kArmed, kHeld, kReleased };
std::atomic<int> state = kOff;
std::atomic<pthread_mutex_t*> mutex = nullptr;
pthread_t main_thread;
pid_t parent;
sem_t held, released;

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

void LetGo() {
  int expected = kHeld;
  if (state.compare_exchange_strong(expected, kReleased)) sem_post(&released);
}

bool IsOurs(const void* caller) {
  Dl_info info;
  return dladdr(caller, &info) != 0 && info.dli_fname != nullptr && strstr(info.dli_fname, "_native") != nullptr;
}

}  // namespace

extern "C" {

void arm() {
  main_thread = pthread_self();
  parent = getpid();
  sem_init(&held, 0, 0);
  sem_init(&released, 0, 0);
  state = kArmed;
}

void await_held() { sem_wait(&held); }

int pthread_mutex_lock(pthread_mutex_t* locked) {
  static const auto next = Next<int (*)(pthread_mutex_t*)>("pthread_mutex_lock");
  const int now = state;
  if (now == kOff) return next(locked);
  if (now != kArmed && locked == mutex) {
    if (getpid() != parent) {
      // No thread is there that could unlock it.
      if (pthread_mutex_trylock(locked) == EBUSY) _exit(7);
      return 0;
    }
    if (pthread_self() == main_thread) LetGo();  // the fork waits for it
    return next(locked);
  }
  const int result = next(locked);
  int expected = kArmed;
  if (now == kArmed && pthread_self() != main_thread && IsOurs(__builtin_return_address(0)) &&
      state.compare_exchange_strong(expected, kHeld)) {
    mutex = locked;
    sem_post(&held);
    sem_wait(&released);
  }
  return result;
}

pid_t fork() {
  static const auto next = Next<pid_t (*)()>("fork");
  const pid_t child = next();
  if (child > 0 && state != kOff) LetGo();  // the fork has not waited
  return child;
}

}  // extern "C"
