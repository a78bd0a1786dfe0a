#include "tools/checkpoint_inspect/cli/interrupt.h"

#include <csignal>
#include <initializer_list>

namespace tidemark::inspect {
namespace {

volatile std::sig_atomic_t interrupted = 0;

void OnSignal(int) { interrupted = 1; }

}  // namespace

void CatchInterrupts() {
  struct sigaction action = {};
  action.sa_handler = OnSignal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second one does what it always did
  for (const int signal : {SIGINT, SIGTERM}) {
    struct sigaction old = {};
    sigaction(signal, nullptr, &old);
    if (old.sa_handler == SIG_DFL || old.sa_handler == SIG_IGN) sigaction(signal, &action, nullptr);
  }
}

bool IsInterrupted() { return interrupted != 0; }

}  // namespace tidemark::inspect
