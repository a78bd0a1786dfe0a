// What every test of the LibTorch edge includes; compiled once.

#ifndef TIDEMARK_TESTS_SNAPSHOT_TORCH_TORCH_TEST_HEADERS_H_
#define TIDEMARK_TESTS_SNAPSHOT_TORCH_TORCH_TEST_HEADERS_H_

#include "tidemark/torch.h"
#include "torch/torch.h"

// LibTorch brings logging macros of its own; gmock comes last.
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#endif  // TIDEMARK_TESTS_SNAPSHOT_TORCH_TORCH_TEST_HEADERS_H_
