#!/bin/sh
# Runs the tests of the Python package with torch 2.x, and those of its doors to Lightning and Hugging Face.
#
# The package is the one that tests/python.sh builds. The example trainer of the C++ library, in build/dev, writes and reads
# the same checkpoints. Arguments go to pytest. Exits with 77 and says SKIPPED if, and only if, the package index is out of
# reach. JOBS: how many processes to use.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
script=tests/python_torch.sh
tests="the tests of the Python package with torch 2.x"
. "$root/tests/torch_environment.sh"

"$root/tests/python.sh" --build
export PYTHONPATH="$root/build/python/package" PYTHONDONTWRITEBYTECODE=1 TIDEMARK_CHAR_LM="$root/build/dev/examples/char_lm/char_lm"
# More threads than one spin while they wait for one another.
export OMP_NUM_THREADS=1
cd "$root"
[ $# -gt 0 ] || set -- tests/python/torch_test.py tests/python_torch
exec "$venv/bin/python3" -m pytest -q -p no:cacheprovider "$@"
