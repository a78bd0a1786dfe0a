#pragma once

// Each call of this function that a program of ours or a library of Abseil's makes comes to the one that begins with
// __wrap_ instead, by the linker's --wrap, and the function itself is the one that begins with __real_. CMakeLists.txt
// reads the symbols out of the sources. The C++ functions of these names take the object as their first argument.
#define TIDEMARK_WRAP(result, symbol, ...) \
  result __real_##symbol(__VA_ARGS__);     \
  result __wrap_##symbol(__VA_ARGS__)
