#!/bin/sh
# Runs those tests of the Python package that need no PyTorch in every Python that is here, from 3.10 on. Prints a line for
# each version: "passed", "FAILED", or "SKIPPED" if no interpreter of it is in PATH, of Debian or of pyenv.
#
#   tests/pythons.sh [MINOR...]     of Python 3.MINOR; by default 10 11 12 13 14
#
# The package is the one that tests/python.sh builds: its module has the stable ABI. What pip installs is kept in the user's
# cache folder, in an environment for each version. The output of pytest is kept in build/pythons.
#
# Exits with 1 if tests fail in one of them, or if there is none. Exits with 77 and says SKIPPED if, and only if, the package
# index is out of reach. JOBS: how many processes to use for the build.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
script=tests/pythons.sh
tests="the tests of the Python package in each Python"
. "$root/tests/virtual_environment.sh"
. "$root/tests/interpreters.sh"

[ $# -gt 0 ] || set -- 10 11 12 13 14
"$root/tests/python.sh" --build
cd "$root"
logs=$root/build/pythons
mkdir -p "$logs"

# The newest versions that the Python can have.
packages_for() {
  case $1 in
    10) echo "numpy==2.2.6 hypothesis==6.168.5" ;;
    11) echo "numpy==2.4.6 hypothesis==6.170.17" ;;
    *) echo "numpy==2.5.5 hypothesis==6.170.17" ;;
  esac
  echo "ml_dtypes==0.6.0 pytest==9.2.0 nanobind-backend==1.0.0"
}

# Sets venv to an environment of Python 3.MINOR, or fails if none is here.
environment_of() {
  for python in $(interpreters "$1"); do
    [ "$(version_of "$python")" = "3.$1" ] || continue
    venv=${XDG_CACHE_HOME:-$HOME/.cache}/tidemark/pythons/3.$1
    base_python=$python
    packages=$(packages_for "$1")
    if [ "$(cat "$venv/packages" 2>/dev/null)" != "$packages" ] || ! "$venv/bin/python3" -c "" 2>/dev/null; then
      rm -rf "$venv"
      make_environment
      # Words, one package each.
      # shellcheck disable=SC2086
      install $packages
      echo "$packages" >"$venv/packages"
    fi
    return 0
  done
  return 1
}

# Without those that need PyTorch or mypy, and the kills of examples.
run_tests() {
  PYTHONPATH=$root/build/python/package PYTHONDONTWRITEBYTECODE=1 "$venv/bin/python3" -m pytest -q -rfEs -p no:cacheprovider \
    tests/python --ignore=tests/python/pytorch --ignore=tests/python/state/boxes_test.py \
    --ignore=tests/python/package/typing_test.py --ignore=tests/python/trainer/example_test.py
}

tried=0
failed=
for minor in "$@"; do
  if ! environment_of "$minor"; then
    echo "Python 3.$minor  SKIPPED  no interpreter is here"
    continue
  fi
  tried=$((tried + 1))
  name="Python $("$venv/bin/python3" -c "import platform, numpy; print(platform.python_version(), 'with NumPy', numpy.__version__)")"
  log=$logs/3.$minor.log
  outcome=passed
  run_tests >"$log" 2>&1 || outcome=FAILED
  counts=$(grep -E '^[0-9]+ (passed|failed|error|skipped)' "$log" | tail -n 1)
  echo "$name  $outcome  ${counts:-no counts: $log}"
  if [ $outcome = FAILED ]; then
    failed="$failed 3.$minor"
    grep -E '^(FAILED|ERROR) ' "$log" || tail -n 20 "$log"
  fi
done
[ $tried -gt 0 ] || fail "none of these versions is here: $*"
[ -z "$failed" ] || fail "tests failed in$failed; the output is in $logs"
