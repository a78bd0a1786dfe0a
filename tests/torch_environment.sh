# The virtual environment with torch 2.x and the frameworks above it, 5.6 GB with torch's CUDA libraries, which importing
# torch takes even without an accelerator. To be sourced, by a script that has set
#
#   root      the folder of the tree
#   script    its own path, for messages
#   tests     what is skipped where the package index is out of reach
#
# Sets torch to the folder of the installed torch, and venv. BASE_PYTHON: another Python than Debian's.

torch_version=2.15.0
venv=${XDG_CACHE_HOME:-$HOME/.cache}/tidemark/torch2
base_python=${BASE_PYTHON:-/usr/bin/python3}
torch_packages="torch==$torch_version lightning==2.6.6 transformers==5.23.0 accelerate==1.15.0 keras==3.15.1 numpy==2.4.6 ml-dtypes==0.6.0
  nanobind==3.1.0 nanobind-backend==1.0.0 pytest==9.2.0 mypy==2.4.1 torchdata==0.11.0"
. "$root/tests/virtual_environment.sh"

# Prints the folder of torch if the environment has every package in its version.
torch_folder() {
  "$venv/bin/python3" - $torch_packages <<END 2>/dev/null || true
import sys, sysconfig
from importlib.metadata import version
if all(version(name) == number for name, number in (wanted.split("==") for wanted in sys.argv[1:])):
    print(sysconfig.get_path("purelib") + "/torch")
END
}

torch=$(torch_folder)
if [ -z "$torch" ]; then
  echo "Installing torch $torch_version, its CUDA libraries, Lightning, Transformers and Keras (5.6 GB) into $venv"
  make_environment
  # What pip keeps for the next time would take the same place once more.
  install --no-cache-dir $torch_packages
  torch=$(torch_folder)
  [ -n "$torch" ] || fail "torch $torch_version is not in $venv after its installation"
fi
