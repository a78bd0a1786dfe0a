// For tests that need the current directory of their process.

#ifndef TIDEMARK_TESTS_SURROUNDINGS_KEEP_DIRECTORY_H_
#define TIDEMARK_TESTS_SURROUNDINGS_KEEP_DIRECTORY_H_

namespace tidemark {

// Ends the thread that TIDEMARK_TEST_CHDIR starts, in the directory in which the process was before, until the test
// ends: to be called by a test, or in the construction of its fixture, before it looks at that directory. Without such
// a thread it does nothing.
void KeepDirectory();

}  // namespace tidemark

#endif  // TIDEMARK_TESTS_SURROUNDINGS_KEEP_DIRECTORY_H_
