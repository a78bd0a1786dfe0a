// What is in the golden file of format 1. Never changes: a new format gets a file and contents of its own.

#ifndef TIDEMARK_TESTS_FORMAT_GOLDEN_CONTENTS_H_
#define TIDEMARK_TESTS_FORMAT_GOLDEN_CONTENTS_H_

#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {

ShardIdentity GoldenIdentity();

// Made with integer arithmetic and exact floating point alone, so that it is the same everywhere.
TestContents GoldenContents();

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_FORMAT_GOLDEN_CONTENTS_H_
