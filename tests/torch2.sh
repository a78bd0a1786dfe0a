#!/bin/sh
# Builds the LibTorch edge against the LibTorch 2.x inside Python's torch wheel, and runs its tests.
#
# The wheel is kept in a virtual environment in the user's cache folder and installed there once. Only what linking its
# CPU half takes is installed with it: two CUDA libraries of a few MB, and not the gigabytes that its CUDA half would.
# Exits with 77 and says SKIPPED if, and only if, the package index is out of reach. JOBS: how many processes to use.
set -eu

torch_version=2.15.0 # as in tests/torch_environment.sh, whose environment has what is needed here as well
cuda_version=13.2.2 # the cuda-toolkit that torch 2.15.0 asks for
jobs=${JOBS:-$(nproc)}
root=$(cd "$(dirname "$0")/.." && pwd)
script=tests/torch2.sh
tests="the tests against LibTorch 2.x"
venv=${XDG_CACHE_HOME:-$HOME/.cache}/tidemark/torch2
. "$root/tests/virtual_environment.sh"

# Prints the folder of the installed torch package, or nothing.
torch_folder() {
  "$venv/bin/python3" - <<EOF 2>/dev/null || true
import importlib.metadata, sysconfig
if importlib.metadata.version("torch") == "$torch_version" and importlib.metadata.version("nvidia-cuda-cupti"):
    print(sysconfig.get_path("purelib") + "/torch")
EOF
}

torch=$(torch_folder)
if [ -z "$torch" ]; then
  echo "Installing Python's torch $torch_version (about 500 MB) into $venv"
  make_environment
  install --no-deps "torch==$torch_version"
  install "cuda-toolkit[cudart,cupti]==$cuda_version"
  torch=$(torch_folder)
  [ -n "$torch" ] || fail "torch $torch_version is not in $venv after its installation"
fi

# Found by the environment's CMAKE_PREFIX_PATH, too; CMake only configures there.
from_environment=$(mktemp -d)
trap 'rm -rf "$from_environment"' EXIT
CMAKE_PREFIX_PATH="/nowhere:$torch" cmake -S "$root" -B "$from_environment" -G Ninja -DTIDEMARK_TESTS=OFF \
  >"$from_environment/log" 2>&1 || { cat "$from_environment/log" >&2; fail "configuring by CMAKE_PREFIX_PATH failed"; }
grep -F "LibTorch $torch_version: $torch/" "$from_environment/log" ||
  fail "CMAKE_PREFIX_PATH=$torch of the environment led to another LibTorch"

# The core with the flags of the preset dev, so that the compiler cache has it already.
# shellcheck disable=SC2086 # several options
cmake -S "$root" -B "$root/build/torch2" -G Ninja ${DEV_OPTIONS:-} -DCMAKE_BUILD_TYPE=RelWithDebInfo -DTIDEMARK_TORCH_UNITY=ON \
  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -g1" -DTIDEMARK_WERROR=ON -DTorch_DIR="$torch/share/cmake/Torch"
cmake --build "$root/build/torch2" -j "$jobs" --target torch_tests
ctest --test-dir "$root/build/torch2" -j "$jobs" -L torch --output-on-failure --no-tests=error
