#!/usr/bin/env python3
"""The tests that install packages skip where the package index is out of reach, and fail at everything else.

  package_index_test.py ROOT [unittest arguments]
"""

import os
import subprocess
import sys
import tempfile
import unittest

LOST = ("WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by 'NewConnectionError('<pip>: Failed to "
        "establish a new connection: [Errno 111] Connection refused')': /simple/torch/\n")
NO_LIST = "ERROR: Could not find a version that satisfies the requirement torch (from versions: none)\n"
NO_VERSION = "ERROR: Could not find a version that satisfies the requirement torch (from versions: 2.0.0, 2.1.0)\n"
CUT_OFF = "ERROR: Could not install packages due to an OSError: HTTPSConnectionPool: ReadTimeoutError: Read timed out.\n"
DISK_FULL = "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n"

# Stands for every python3: makes the virtual environment, with itself and a pip that fails, and knows no package.
PYTHON = """#!/bin/sh
if [ "$1" = -m ] && [ "$2" = venv ]; then
  [ "$3" != --system-site-packages ] || shift
  mkdir -p "$3/bin" && cp "$0" "$3/bin/python3"
  printf '#!/bin/sh\\ncat "$PIP_SAYS" >&2\\nexit 1\\n' >"$3/bin/pip" && chmod +x "$3/bin/pip"
fi
"""


# The script, what it is called with, and what it installs first.
SCRIPTS = ((["tests/torch2.sh"], "--no-deps torch=="), (["tests/interop.sh", "build"], "safetensors=="),
           (["tests/python.sh"], "nanobind=="), (["tests/pythons.sh"], "nanobind=="), (["tests/python_jax.sh"], "jax=="),
           (["tests/pip_install.sh"], "numpy"), (["tests/python_torch.sh"], "--no-cache-dir torch=="),
           (["tests/peers.sh"], "--no-cache-dir torch=="))


class PackageIndex(unittest.TestCase):
    root = None

    def run_with_pip(self, script, says):
        with tempfile.TemporaryDirectory(prefix="tidemark-index-") as folder:
            python = os.path.join(folder, "python3")
            with open(python, "w", encoding="utf-8") as file:
                file.write(PYTHON)
            os.chmod(python, 0o755)
            with open(os.path.join(folder, "says"), "w", encoding="utf-8") as file:
                file.write(says)
            environment = dict(os.environ, PATH=folder + ":" + os.environ["PATH"], XDG_CACHE_HOME=folder, BASE_PYTHON=python,
                               PIP_SAYS=os.path.join(folder, "says"))
            result = subprocess.run([os.path.join(self.root, script[0]), *script[1:]], env=environment, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            return result.returncode, result.stdout, result.stderr

    def test_an_index_out_of_reach_is_skipped(self):
        for script, _ in SCRIPTS:
            for says in (LOST + NO_LIST, CUT_OFF):
                status, out, _ = self.run_with_pip(script, says)
                self.assertEqual(status, 77, says)
                self.assertRegex(out, "(?m)^SKIPPED: .*out of reach$")

    def test_every_other_failure_of_pip_is_a_failure(self):
        for script, package in SCRIPTS:
            for says in (NO_LIST, NO_VERSION, LOST + NO_VERSION, DISK_FULL, LOST + DISK_FULL, ""):
                status, out, err = self.run_with_pip(script, says)
                self.assertEqual(status, 1, says)
                self.assertNotIn("SKIPPED", out)
                self.assertIn(says, err)
                self.assertIn("pip could not install " + package, err)


if __name__ == "__main__":
    PackageIndex.root = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
