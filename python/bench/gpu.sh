#!/bin/sh
# Checks and measures the Python package with tensors on an NVIDIA GPU, from its wheel alone: python/bench/devices.py, at most
# 8 minutes in all.
#
#   python/bench/gpu.sh [WHEEL] [OPTION...]
#
# WHEEL: by default that of build/wheel, which tools/wheel makes. Options go to devices.py; `--device pretend` or `cpu` is a dry
# run. It takes a Python with PyTorch, and nanobind-backend, either installed for that Python or as a wheel in the folder of
# WHEEL. Nothing is downloaded. Without NumPy DCP is skipped. Neither a compiler nor Debian's packages are needed.
#
#   OUT      the folder for check.json, bench.json and what both printed; default: build/gpu
#   PYTHON   the Python that has PyTorch; default: python3
#   WORK     the folder on the disk to be measured, with four states' room; default: build/gpu-work. What is written is removed.
#
# Exit codes: 0 all checks passed and all rows were measured; 1 one failed, or something else came back than was saved; 2 this
# machine lacks something.
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
out=${OUT:-$root/build/gpu}
work=${WORK:-$root/build/gpu-work}
python=${PYTHON:-python3}
lacks() {
  echo "gpu.sh: $1" >&2
  exit 2
}

case ${1:-} in
  *.whl) wheel=$1; shift ;;
  *) wheel=$(ls "$root"/build/wheel/tidemark-*.whl 2>/dev/null | tail -1) ;;
esac
[ -f "$wheel" ] || lacks "no wheel: name one, or make it in build/wheel by make wheel"
"$python" -c "import torch" || lacks "$python has no PyTorch: PYTHON names one that has"
mkdir -p "$out" "$work"
venv=$(mktemp -d "$work/venv-XXXXXX")
trap 'rm -rf "$venv"' EXIT
trap 'exit 1' INT TERM

# Without pip's own wheel, which not every Python brings. A Python that is itself of an environment hides its packages from one
# made of it, so the folders are named.
"$python" -m venv --without-pip --system-site-packages "$venv" || lacks "$python cannot make a virtual environment"
"$python" -c "import sys; print('\n'.join(p for p in sys.path if p.endswith('-packages')))" \
  >"$("$venv/bin/python3" -c "import sysconfig; print(sysconfig.get_path('purelib'))")/outer.pth"
unset PYTHONPATH
"$venv/bin/python3" -m pip install --quiet --disable-pip-version-check --no-index --find-links "$(dirname "$wheel")" \
  --force-reinstall --no-deps "$wheel" || lacks "pip could not install $wheel"
"$venv/bin/python3" -c "import nanobind_backend" 2>/dev/null ||
  "$venv/bin/python3" -m pip install --quiet --disable-pip-version-check --no-index --find-links "$(dirname "$wheel")" \
    "nanobind-backend>=1.0" || lacks "nanobind-backend is not there: put its wheel beside $wheel"

failed=0
# Arguments: name, seconds, options of devices.py.
measure() {
  name=$1 seconds=$2
  shift 2
  status=0
  PYTHONDONTWRITEBYTECODE=1 timeout -k 10 "$seconds" "$venv/bin/python3" "$root/python/bench/devices.py" --dir "$work" \
    --json "$out/$name.json" "$@" >"$out/$name.txt" || status=$?
  cat "$out/$name.txt"
  [ "$status" -eq 0 ] || { echo "gpu.sh: $name: exit code $status" >&2; failed=1; }
  [ "$status" -ne 2 ] || exit 2
}
rm -f "$out/check.json" "$out/bench.json"
measure check 120 --check "$@"
measure bench 345 --budget 270 "$@"
exit "$failed"
