#!/bin/sh
# Holds `checkpoint-inspect export` and `import`, and the statistics that a trainer writes for Prometheus, against software
# that is not ours: Python's safetensors, numpy and the Prometheus client; and the report against headless Chromium, where
# it is installed.
#
# The packages are kept in a virtual environment in the user's cache folder and installed there once. Exits with 77 and
# says SKIPPED if, and only if, the package index is out of reach.
#
#   tests/interop.sh BUILD    where checkpoint-inspect, inspect_make_run and make_test_store have been built
set -eu

safetensors_version=0.8.0
numpy_version=2.4.6
prometheus_version=0.26.0
root=$(cd "$(dirname "$0")/.." && pwd)
inspect=$1/tools/checkpoint-inspect
make_run=$1/tests/tools/checkpoint_inspect/inspect_make_run
make_test_store=$1/tests/tools/checkpoint_inspect/make_test_store
script=tests/interop.sh
tests="the tests of export and import against safetensors and numpy"
venv=${XDG_CACHE_HOME:-$HOME/.cache}/tidemark/interop
. "$root/tests/virtual_environment.sh"

has_packages() {
  "$venv/bin/python3" - <<EOF 2>/dev/null
from importlib.metadata import version
wanted = {"safetensors": "$safetensors_version", "numpy": "$numpy_version", "prometheus-client": "$prometheus_version"}
if all(version(name) == number for name, number in wanted.items()):
    print("yes")
EOF
}

if [ "$(has_packages)" != yes ]; then
  echo "Installing Python's safetensors $safetensors_version, numpy $numpy_version and prometheus-client $prometheus_version into $venv"
  make_environment
  install "safetensors==$safetensors_version" "numpy==$numpy_version" "prometheus-client==$prometheus_version"
  [ "$(has_packages)" = yes ] || fail "the packages are not in $venv after their installation"
fi

exec "$venv/bin/python3" "$root/tests/interop.py" "$inspect" "$make_run" "$make_test_store"
