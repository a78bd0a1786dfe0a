#!/bin/sh
# Installs the Python package as a user of Debian does, by `pip install .` from a clean copy of the tree in a fresh
# environment of Debian's Python, and uses it from another folder.
#
# The copy has the files that git lists, and what is new and not ignored. Exits with 77 and says SKIPPED if, and only if, the
# package index is out of reach. JOBS: how many processes to use. BASE_PYTHON: another Python than Debian's.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
script=tests/pip_install.sh
tests="the installation of the Python package by pip"
base_python=${BASE_PYTHON:-/usr/bin/python3}
. "$root/tests/virtual_environment.sh"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree"
git -C "$root" ls-files -z --cached --others --exclude-standard |
  tar -C "$root" -c --null --ignore-failed-read -T - 2>/dev/null | tar -C "$work/tree" -x
venv=$work/environment
make_environment
export CMAKE_BUILD_PARALLEL_LEVEL="${JOBS:-$(nproc)}"
install numpy "$work/tree"
rm -rf "$work/tree"
"$venv/bin/pip" check
cd "$work"
python3 -B "$root/tests/wheel/pip_install_test.py" "$venv"
