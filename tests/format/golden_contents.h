// What is in the golden files, one of each version. Never changes: a new version gets a file and contents of its own.

#ifndef TIDEMARK_TESTS_FORMAT_GOLDEN_CONTENTS_H_
#define TIDEMARK_TESTS_FORMAT_GOLDEN_CONTENTS_H_

#include "tests/storage/shard/shard_testing.h"

namespace tidemark::storage {

ShardIdentity GoldenIdentity();

// Made with integer arithmetic and exact floating point alone, so that it is the same everywhere.
TestContents GoldenContents();

// The golden file of version 2 of the footer is of the next step. Its index is a delta to that of version 1: the epoch
// is another, and so are the bytes and the size of the text.
ShardIdentity GoldenDeltaIdentity();
TestContents GoldenDeltaContents();

// The golden file of version 2 of the header: three boxes of one tensor, one of them empty, beside a box of another
// tensor and a text.
ShardIdentity GoldenBoxesIdentity();
TestContents GoldenBoxesContents();

// The whole file. `base` is the golden file of version 1. An index so small is written whole by ShardWriter, so the
// delta is put together by hand.
std::string MakeGoldenDelta(const ShardReader& base);

}  // namespace tidemark::storage

#endif  // TIDEMARK_TESTS_FORMAT_GOLDEN_CONTENTS_H_
