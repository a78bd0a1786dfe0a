// Preloaded into a test's program: sets the locale that the environment names, as a trainer does.

#include <unistd.h>

#include <clocale>
#include <cstdio>

namespace {

[[gnu::constructor]] void SetLocale() {
  if (std::setlocale(LC_ALL, "") != nullptr) return;
  std::fprintf(stderr, "the locale that the environment names cannot be set\n");
  _exit(2);
}

}  // namespace
