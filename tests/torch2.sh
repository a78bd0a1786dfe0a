#!/bin/sh
# Builds the LibTorch edge against the LibTorch 2.x inside Python's torch wheel, and runs its tests.
#
# The wheel is in the environment of tests/torch_environment.sh, which tests/python_torch.sh uses as well. Exits with 77
# and says SKIPPED if, and only if, the package index is out of reach. JOBS: how many processes to use.
set -eu

jobs=${JOBS:-$(nproc)}
root=$(cd "$(dirname "$0")/.." && pwd)
script=tests/torch2.sh
tests="the tests against LibTorch 2.x"
. "$root/tests/torch_environment.sh"

# Found by the environment's CMAKE_PREFIX_PATH, too; CMake only configures there.
from_environment=$(mktemp -d)
trap 'rm -rf "$from_environment"' EXIT
CMAKE_PREFIX_PATH="/nowhere:$torch" cmake -S "$root" -B "$from_environment" -G Ninja -DTIDEMARK_TESTS=OFF \
  >"$from_environment/log" 2>&1 || { cat "$from_environment/log" >&2; fail "configuring by CMAKE_PREFIX_PATH failed"; }
grep -F "LibTorch $torch_version: $torch/" "$from_environment/log" ||
  fail "CMAKE_PREFIX_PATH=$torch of the environment led to another LibTorch"

cmake -S "$root" -B "$root/build/torch2" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -g1" -DTIDEMARK_WERROR=ON -DTorch_DIR="$torch/share/cmake/Torch"
cmake --build "$root/build/torch2" -j "$jobs" --target torch_tests
ctest --test-dir "$root/build/torch2" -j "$jobs" -L torch --output-on-failure --no-tests=error
