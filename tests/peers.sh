#!/bin/sh
# Measures Tidemark against other libraries that save checkpoints: python/bench/peers.py with the environments that they need.
#
# The package is the one that tests/python.sh builds. torch and what stands on it is that of tests/torch_environment.sh;
# a second environment adds the other libraries for torch to it (140 MB), and a third has JAX, Orbax and TensorStore (730 MB).
# Arguments go to python/bench/peers.py. Exits with 77 and says SKIPPED if, and only if, the package index is out of reach.
# JOBS: how many processes to use. BASE_PYTHON: another Python than Debian's.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
script=tests/peers.sh
tests="the other libraries that save checkpoints"
. "$root/tests/torch_environment.sh"
torch_site=$(dirname "$torch")

# Says yes if the environment has each package in its version.
has_packages() {
  "$venv/bin/python3" - "$@" <<END 2>/dev/null || true
import sys
from importlib.metadata import version
if all(version(name) == number for name, number in (package.split("==") for package in sys.argv[1:])):
    print("yes")
END
}

# Arguments: the environment's name, then its packages.
make_with() {
  venv=${XDG_CACHE_HOME:-$HOME/.cache}/tidemark/$1
  shift
  [ "$(has_packages "$@")" != yes ] || return 0
  echo "Installing $* into $venv"
  make_environment
  # The packages of the environment with torch are there as well: pip sees them and leaves them as they are.
  case $venv in
    *-torch)
      site=$("$venv/bin/python3" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
      echo "$torch_site" >"$site/torch.pth"
      ;;
  esac
  install "$@"
  [ "$(has_packages "$@")" = yes ] || fail "the packages are not in $venv after their installation"
}

# zipnn is a source package, which is compiled.
make_with peers-torch torch-checkpointing==0.1.1 zipnn==0.5.4 fastsafetensors==0.5.0 matplotlib==3.11.2
torch_python=$venv/bin/python3
make_with peers-jax jax==0.10.2 jaxlib==0.10.2 orbax-checkpoint==0.12.8 tensorstore==0.1.86 numpy==2.4.6 ml_dtypes==0.6.0
jax_python=$venv/bin/python3

"$root/tests/python.sh" --build
export PYTHONPATH="$root/build/python/package" PYTHONDONTWRITEBYTECODE=1 JAX_PLATFORMS=cpu
cd "$root"
exec "$torch_python" python/bench/peers.py --python "torch=$torch_python" --python "jax=$jax_python" "$@"
