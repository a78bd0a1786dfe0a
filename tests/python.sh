#!/bin/sh
# Builds the Python package and runs its tests, in tests/python.
#
# The package is built by CMake with the flags of the preset dev, in build/python, so that the compiler cache has the core
# already. What pip installs is kept in a virtual environment in the user's cache folder. PyTorch is Debian's, of the CPU,
# so the environment is one of Debian's Python. Exits with 77 and says SKIPPED if, and only if, the package index is out of
# reach. With --build it runs no tests. With --bench it measures instead: the other arguments are those of
# python/bench/bench.py. With --fuzz SECONDS it fuzzes the reading of values that long.
# With --program FILE it runs that program. JOBS: how many processes to use. BASE_PYTHON: another Python than Debian's; without PyTorch in
# it, its tests fail.
set -eu

nanobind_version=3.1.0
backend_version=1.0.0
numpy_version=2.4.6
ml_dtypes_version=0.6.0
pytest_version=9.2.0
hypothesis_version=6.170.17
atheris_version=3.0.0
mypy_version=2.4.1
jobs=${JOBS:-$(nproc)}
root=$(cd "$(dirname "$0")/.." && pwd)
script=tests/python.sh
tests="the tests of the Python package"
venv=${XDG_CACHE_HOME:-$HOME/.cache}/tidemark/python
base_python=${BASE_PYTHON:-/usr/bin/python3}
. "$root/tests/virtual_environment.sh"

has_packages() {
  "$venv/bin/python3" - <<END 2>/dev/null
from importlib.metadata import version
wanted = {"nanobind": "$nanobind_version", "nanobind-backend": "$backend_version", "numpy": "$numpy_version",
          "ml-dtypes": "$ml_dtypes_version", "pytest": "$pytest_version", "hypothesis": "$hypothesis_version", "mypy": "$mypy_version"}
if all(version(name) == number for name, number in wanted.items()):
    print("yes")
END
}

if [ "$(has_packages)" != yes ]; then
  echo "Installing nanobind, numpy, ml_dtypes, pytest, hypothesis and mypy into $venv"
  make_environment --system-site-packages
  install "nanobind==$nanobind_version" "nanobind-backend==$backend_version" "numpy==$numpy_version" \
    "ml-dtypes==$ml_dtypes_version" "pytest==$pytest_version" \
    "hypothesis==$hypothesis_version" "mypy==$mypy_version"
  [ "$(has_packages)" = yes ] || fail "the packages are not in $venv after their installation"
fi

unchecked=OFF
[ "${1:-}" != --bench ] || unchecked=ON
build=$root/build/python
# shellcheck disable=SC2086 # several options
cmake -S "$root" -B "$build" -G Ninja ${DEV_OPTIONS:-} -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -g1" \
  -DTIDEMARK_WERROR=ON -DTIDEMARK_PYTHON=ON -DTIDEMARK_TORCH=OFF -DTIDEMARK_TESTS=OFF -DTIDEMARK_TOOLS=OFF \
  -DTIDEMARK_EXAMPLES=OFF -DTIDEMARK_PRETEND_DEVICE=ON -DTIDEMARK_PYTHON_UNCHECKED=$unchecked -DPython_EXECUTABLE="$venv/bin/python3"
case ${1:-} in
  --build | --fuzz | --program) targets=_native ;;
  --bench) targets="_native bench_python_core" ;;
  *) targets="_native pretend_device" ;;
esac
# shellcheck disable=SC2086 # several targets
cmake --build "$build" -j "$jobs" --target $targets
rm -rf "$build/package"
cmake --install "$build" --component python --prefix "$build/package" >/dev/null
[ "${1:-}" != --build ] || exit 0
export PYTHONPATH="$build/package" PYTHONDONTWRITEBYTECODE=1
export TIDEMARK_PRETEND_DEVICE="$build/python/libpretend_device.so"
cd "$root"
if [ "${1:-}" = --bench ]; then
  shift
  exec "$venv/bin/python3" python/bench/bench.py --core "$build/python/bench/libbench_python_core.so" "$@"
fi
if [ "${1:-}" = --fuzz ]; then
  "$venv/bin/python3" -c 'import atheris' 2>/dev/null || install "atheris==$atheris_version"
  corpus=$root/build/findings/python
  mkdir -p "$corpus"
  # An input of 4 KiB at most; 512 MiB in all and 64 MiB at once are findings.
  exec "$venv/bin/python3" fuzz/python/value_fuzzer.py -max_total_time="$2" -max_len=4096 -rss_limit_mb=512 \
    -malloc_limit_mb=64 -timeout=10 -print_final_stats=1 -dict=fuzz/python/value.dict -artifact_prefix="$corpus-crash-" "$corpus"
fi
if [ "${1:-}" = --program ]; then
  shift
  exec "$venv/bin/python3" "$@"
fi
exec "$venv/bin/python3" -m pytest -q -p no:cacheprovider "${@:-tests/python}"
