// In every test's program and in the processes that tests start. Where TIDEMARK_TEST_LOCALE is set, the process has the
// locale that the environment names, as many a trainer has.

#include <cerrno>
#include <clocale>
#include <cstdlib>
#include <string_view>
#include <utility>

namespace {

// All programs without it, and why.
constexpr std::pair<std::string_view, std::string_view> kInCsLocale[] = {
    {"tools_checkpoint_inspect_tests", "checkpoint-inspect sets no locale, so its functions never run in one"},
};

// Before main, so that no library has read the locale yet. Where there is no such locale it stays the one that it was:
// surroundings_test says so, and the other tests run.
[[gnu::constructor]] void SetLocale() {
  if (std::getenv("TIDEMARK_TEST_LOCALE") == nullptr) return;
  for (const auto& [program, reason] : kInCsLocale) {
    if (program == program_invocation_short_name) return;
  }
  std::setlocale(LC_ALL, "");
}

}  // namespace
