// Things that a test can only do to a process that it throws away: take system calls from it, give it mounts of its
// own, drop its rights.

#ifndef TIDEMARK_TESTS_STORAGE_IO_CHILD_PROCESS_H_
#define TIDEMARK_TESTS_STORAGE_IO_CHILD_PROCESS_H_

#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

namespace tidemark::storage {

// The names of the process's threads but the calling one.
std::vector<std::string> OtherThreads();

// Runs `body` in a forked child and returns what it returned, or how the child died; one that hangs is killed after
// minutes. gtest's assertions do not reach out of the child. Of the process's threads the child has none, but the
// mutexes that they hold. So the test fails where there are any and it is the only one that runs, as under ctest: in a
// program that runs several, they may be an earlier one's. EndIndexThreads of index_threads.h ends those of RocksDB.
std::string InChild(const std::function<std::string()>& body);

// The same where there are other threads: `body` may take no memory and no mutex.
std::string InChildBesideThreads(const std::function<std::string()>& body);

// The same for a program: returns what it wrote to standard output, or how it died.
std::string InProgram(const std::string& path, std::vector<std::string> arguments);

// From here on the calling process gets `error` for these system calls (SYS_...). False where that is not allowed.
bool DenySystemCalls(std::initializer_list<int> numbers, int error);

// The same for these operations (IORING_REGISTER_..., IORING_UNREGISTER_...) of io_uring_register, and no others.
bool DenyUringRegister(std::initializer_list<int> operations, int error);

// Puts the calling process into a mount namespace of its own, as root of a user namespace of its own if it is not root
// already. False where that is not allowed.
bool EnterMountNamespace();

// Gives up root's rights (capabilities) and stays the user it is: the bits of a file's owner hold for it again. Nothing
// to do for who is not root. Works wherever the test's files lie, and in containers that know one user only.
bool GiveUpRights();

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_STORAGE_IO_CHILD_PROCESS_H_
