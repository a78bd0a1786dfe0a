// In a test's program that always has the surroundings, whatever the test preset is: asks for them before the objects
// beside this one look into the environment. What the environment says already counts.

#include <cstdlib>

namespace {

// Before the constructors without a priority, which set the locale.
[[gnu::constructor(101)]] void AskForSurroundings() {
  setenv("TIDEMARK_TEST_CHDIR", "1", /*overwrite=*/0);
  setenv("TIDEMARK_TEST_LOCALE", "1", 0);
  setenv("LC_ALL", "ps_AF.UTF-8", 0);
  setenv("LOCPATH", TESTS_LOCALES, 0);
}

}  // namespace
