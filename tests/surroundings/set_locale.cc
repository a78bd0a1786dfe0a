// In every test's program and in the processes that tests start. Where TIDEMARK_TEST_LOCALE is set, the process has the
// locale that the environment names, as many a trainer has.

#include <clocale>
#include <cstdlib>

namespace {

// Before main, so that no library has read the locale yet. Where there is no such locale it stays the one that it was:
// surroundings_test says so, and the other tests run.
[[gnu::constructor]] void SetLocale() {
  if (std::getenv("TIDEMARK_TEST_LOCALE") == nullptr) return;
  std::setlocale(LC_ALL, "");
}

}  // namespace
