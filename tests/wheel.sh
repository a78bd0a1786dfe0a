#!/bin/sh
# Tests the wheel that tools/wheel has made: what is in it, that it works in fresh virtual environments of every Python from
# 3.10 on that is here, beside frameworks, and with the examples.
#
#   tests/wheel.sh WHEEL              in a quarter of an hour
#   tests/wheel.sh --contents WHEEL   only what is in it, in seconds
#
# PYTHONS: the interpreters; by default those of PATH, of Debian and of pyenv. FRAMEWORKS: what pip installs for the tests
# beside frameworks and of the examples, by default JAX, TensorFlow and Keras, in all about 2 GB in the user's cache folder;
# torch 2.x is that of tests/torch_environment.sh, 5.6 GB more. Empty: neither. FRAMEWORK_PYTHONS: further interpreters that
# have frameworks; by default Debian's, if it has PyTorch. Exits with 77 and says SKIPPED if, and only if, the package index
# is out of reach.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
contents=
[ "$1" != --contents ] || { contents=only; shift; }
wheel=$1
script=tests/wheel.sh
tests="the tests of the wheel"
cache=${XDG_CACHE_HOME:-$HOME/.cache}/tidemark/wheel
venv=$cache/venv
. "$root/tests/virtual_environment.sh"
. "$root/tests/interpreters.sh"

python3 -B "$root/tests/wheel/contents_test.py" "$wheel"
python3 -B "$root/tests/wheel/libraries_test.py"
[ -z "$contents" ] || exit 0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/environments"

# The first interpreter of each version.
for python in ${PYTHONS-$(interpreters 10 11 12 13 14)}; do
  version=$(version_of "$python") || continue
  [ ! -e "$work/environments/$version" ] || continue
  base_python=$python venv=$work/environments/$version
  make_environment
  install "$wheel" numpy
  # The wheel without NumPy, for interpreters of this version that have one. nanobind-backend is made for each version.
  install --no-deps --target "$work/targets/$version" "$wheel" nanobind-backend
  "$venv/bin/pip" check >/dev/null || fail "$python: pip check finds something missing"
done
echo "Python versions: $(ls -C "$work/environments")"

frameworks=${FRAMEWORKS-jax==0.10.2 tensorflow-cpu==2.21.0 keras==3.15.1 optax==0.2.8 scikit-learn==1.9.1}
framework_pythons=${FRAMEWORK_PYTHONS-$(! /usr/bin/python3 -c "import torch" 2>/dev/null || echo /usr/bin/python3)}
with_frameworks=
if [ -n "$frameworks" ]; then
  venv=$cache/frameworks
  base_python=${BASE_PYTHON:-/usr/bin/python3}
  if [ "$(cat "$venv/packages" 2>/dev/null)" != "$frameworks" ]; then
    echo "Installing $frameworks into $venv"
    rm -rf "$venv"
    make_environment
    # Words, one package each.
    install $frameworks
    echo "$frameworks" >"$venv/packages"
  fi
  packages_of() { "$1/bin/python3" -c "import sysconfig; print(sysconfig.get_path('purelib'))"; }
  installed=$(packages_of "$venv")
  . "$root/tests/torch_environment.sh" # sets venv and torch

  # A fresh environment into which pip puts the wheel and what it asks for. It finds the frameworks, gigabytes, where they are.
  venv=$work/with_frameworks
  make_environment
  install "$wheel"
  printf '%s\n' "$installed" "$(dirname "$torch")" >"$(packages_of "$venv")/frameworks.pth"
  with_frameworks=$venv/bin/python
fi

python3 -B "$root/tests/wheel/installed_test.py" "$work/environments" "$work/targets" $framework_pythons $with_frameworks
python3 -B "$root/tests/wheel/examples_test.py" "$work/environments" $with_frameworks
