#!/bin/sh
# Runs the frameworks' own tests of checkpoints on the classes of this package, and counts them.
#
#   tests/frameworks.sh [--theirs] NAME=CHECKOUT ... [-- options of pytest]
#
# NAME is lightning, keras or orbax, CHECKOUT a clone of its repository at the commit that docs/python.md names. Nothing of it
# is changed. --theirs: on the framework's own classes, to compare with.
#
# tests/frameworks/expected/NAME.list lists the tests that fail, with reasons. Any other failure makes the run fail, and so does
# a listed test that passes. Lightning's tests run in the environment of tests/python_torch.sh, the others in that of
# tests/python_jax.sh. What only the tests import is installed in a folder of its own (35 MB). Exits with 77 and says SKIPPED
# if, and only if, the package index is out of reach. JOBS: how many processes to use.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
script=tests/frameworks.sh
tests="the frameworks' own tests"
extras=${XDG_CACHE_HOME:-$HOME/.cache}/tidemark/frameworks
venv=$extras/venv
requirements=$root/tests/frameworks/requirements
. "$root/tests/virtual_environment.sh"

theirs=
[ "${1:-}" != --theirs ] || { theirs=--theirs; shift; }
[ $# -gt 0 ] || fail "no NAME=CHECKOUT: lightning, keras and orbax are the names"
checkouts=
while [ $# -gt 0 ]; do
  case $1 in
    lightning=* | keras=* | orbax=*) checkouts="$checkouts $1" ;;
    --) shift; break ;;
    *) fail "'$1' is no NAME=CHECKOUT: lightning, keras and orbax are the names" ;;
  esac
  [ -d "${1#*=}" ] || fail "$1: there is no such folder"
  shift
done

if ! cmp -s "$requirements" "$extras/requirements"; then
  rm -rf "$extras"
  make_environment
  # Without what they depend on, which the environments have.
  install --no-deps --target "$extras/site" --requirement "$requirements"
  cp "$requirements" "$extras/requirements"
fi

status=0
for checkout in $checkouts; do
  name=${checkout%%=*}
  folder=$(cd "${checkout#*=}" && pwd)
  case $name in
    lightning) program=tests/python_torch.sh ;;
    *) program=tests/python_jax.sh ;;
  esac
  # shellcheck disable=SC2086 # no option, or one
  "$root/$program" --program tests/frameworks/run.py "$name" "$folder" "$extras/site" $theirs "$@" || status=$?
  [ "$status" -ne 77 ] || exit 77
done
exit "$status"
