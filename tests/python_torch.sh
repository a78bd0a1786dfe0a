#!/bin/sh
# Runs the tests of the Python package with torch 2.x, and those of its integrations of Lightning, Hugging Face and, with PyTorch
# as its backend, Keras.
#
# The package is the one that tests/python.sh builds. The pretend accelerator of tests/python is built
# against this torch, in build/python-torch2. The example trainer of the C++ library, in build/dev, writes and reads
# the same checkpoints; checkpoint-inspect and compare-steps, there too, read those of all integrations. Arguments go to
# pytest. With --program FILE it runs that program instead, with the other arguments. Exits with 77 and says SKIPPED if, and
# only if, the package index is out of reach. JOBS: how many processes to use.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
script=tests/python_torch.sh
tests="the tests of the Python package with torch 2.x"
. "$root/tests/torch_environment.sh"

"$root/tests/python.sh" --build
export PYTHONPATH="$root/build/python/package" PYTHONDONTWRITEBYTECODE=1
export TIDEMARK_PROGRAMS="$root/build/dev" TIDEMARK_CHAR_LM="$root/build/dev/examples/char_lm/char_lm"
# More threads than one spin while they wait for one another.
export OMP_NUM_THREADS=1
if [ "${1:-}" = --program ]; then
  shift
  cd "$root"
  exec "$venv/bin/python3" "$@"
fi
cmake -S "$root" -B "$root/build/python-torch2" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
  -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -g1" -DTIDEMARK_WERROR=ON -DTIDEMARK_PYTHON=ON -DTIDEMARK_TORCH=OFF \
  -DTIDEMARK_TESTS=OFF -DTIDEMARK_TOOLS=OFF -DTIDEMARK_EXAMPLES=OFF -DTIDEMARK_PRETEND_DEVICE=ON \
  -DPython_EXECUTABLE="$venv/bin/python3" -DTorch_DIR="$torch/share/cmake/Torch"
cmake --build "$root/build/python-torch2" -j "${JOBS:-$(nproc)}" --target pretend_device
export TIDEMARK_PRETEND_DEVICE="$root/build/python-torch2/python/libpretend_device.so"
cd "$root"
run_tests() { "$venv/bin/python3" -m pytest -q -p no:cacheprovider "$@"; }
if [ $# -eq 0 ]; then
  # In a process of their own: optimizers of torch 2.x ask a loaded device's module for more than the pretend one has.
  room=tests/python/pytorch
  run_tests $room/device_copies_test.py $room/devices_test.py
  KERAS_BACKEND=torch run_tests tests/python_jax/keras_test.py tests/python_jax/keras_preemption_test.py
  set -- $room/torch_test.py $room/torch_training_test.py $room/new_arrays_test.py tests/python_torch
fi
run_tests "$@"
