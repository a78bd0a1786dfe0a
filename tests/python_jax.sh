#!/bin/sh
# Builds the Python package and runs the tests of its integrations of JAX, Orbax and Keras, in tests/python_jax.
#
# tests/python.sh builds the package, in an environment of its own; the module has the stable ABI, so any Python takes it.
# What pip installs here (about 870 MB) is kept in a second virtual environment in the user's cache folder, without
# PyTorch. With KERAS_BACKEND=tensorflow only the tests of Keras run, in an environment with TensorFlow (1.6 GB) and without
# JAX. Tests that need checkpoint-inspect or compare-steps in build/dev are skipped where it has none.
# With --program FILE it runs that program instead, with the other arguments. Exits with 77 and says SKIPPED if, and only
# if, the package index is out of reach. JOBS: how many processes to use. BASE_PYTHON: another Python than Debian's.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
script=tests/python_jax.sh
tests="the tests of the integrations of JAX, Orbax and Keras"
venv=${XDG_CACHE_HOME:-$HOME/.cache}/tidemark/python-jax
base_python=${BASE_PYTHON:-/usr/bin/python3}
packages="jax==0.10.2 jaxlib==0.10.2 keras==3.15.1 optax==0.2.8 flax==0.12.8 orbax-checkpoint==0.12.8 scikit-learn==1.9.1
  numpy==2.4.6 ml_dtypes==0.6.0 nanobind-backend==1.0.0 pytest==9.2.0 mypy==2.4.1"
if [ "${KERAS_BACKEND:-}" = tensorflow ]; then
  tests="the tests of Keras with TensorFlow"
  venv=$venv-tensorflow
  packages="tensorflow-cpu==2.21.0 keras==3.15.1 numpy==2.4.6 ml_dtypes==0.6.0 nanobind-backend==1.0.0 pytest==9.2.0"
  [ $# -gt 0 ] || set -- tests/python_jax/keras_test.py tests/python_jax/keras_preemption_test.py
fi
. "$root/tests/virtual_environment.sh"

has_packages() {
  "$venv/bin/python3" - $packages <<END 2>/dev/null
import sys
from importlib.metadata import version
if all(version(name) == number for name, number in (package.split("==") for package in sys.argv[1:])):
    print("yes")
END
}

if [ "$(has_packages)" != yes ]; then
  echo "Installing ${packages%% *} and what the tests need besides into $venv"
  make_environment
  # Split into words: one package each.
  # shellcheck disable=SC2086
  install $packages
  [ "$(has_packages)" = yes ] || fail "the packages are not in $venv after their installation"
fi

"$root/tests/python.sh" --build
export PYTHONPATH="$root/build/python/package" PYTHONDONTWRITEBYTECODE=1 TIDEMARK_PROGRAMS="$root/build/dev"
# Sharded arrays are tested on four devices, which the CPU stands for.
export JAX_PLATFORMS=cpu XLA_FLAGS=--xla_force_host_platform_device_count=4 KERAS_BACKEND="${KERAS_BACKEND:-jax}"
cd "$root"
if [ "${1:-}" = --program ]; then
  shift
  exec "$venv/bin/python3" "$@"
fi
exec "$venv/bin/python3" -m pytest -q -p no:cacheprovider "${@:-tests/python_jax}"
