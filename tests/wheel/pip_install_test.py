#!/usr/bin/env python3
"""The package that `pip install .` has built: what is installed, and that it works from any folder.

  pip_install_test.py ENVIRONMENT [unittest arguments]

ENVIRONMENT is a virtual environment with the package and NumPy, and nothing else.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
EVALUATOR = "def loss(snapshot):\n    return {'epoch': snapshot['epoch'] / 4}\n"
FOUND = """
import importlib.metadata, json, pathlib, tidemark
package = pathlib.Path(tidemark.__file__).parent
points = [point.name for point in importlib.metadata.distribution("tidemark").entry_points]
print(json.dumps([str(package), [str(path.relative_to(package)) for path in package.rglob("*")], points]))
"""
READ = "import json, sys, tidemark; print(json.dumps({step.step: step.metrics for step in tidemark.steps(sys.argv[1])}))"


class PipInstall(unittest.TestCase):
    environment = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_python(self, *arguments):
        """What it prints. The current folder is a new one."""
        result = subprocess.run([str(self.environment / "bin" / "python"), "-B", *map(str, arguments)], cwd=self.folder,
                                capture_output=True, text=True, timeout=600)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def test_the_whole_package_is_installed(self):
        package, found, entry_points = json.loads(self.run_python("-c", FOUND))
        self.assertTrue(package.startswith(str(self.environment)), package)
        sources = HERE.parents[1] / "python" / "tidemark"
        wanted = {str(path.relative_to(sources)) for path in sources.rglob("*")
                  if path.suffix in (".py", ".pyi") or path.name == "py.typed"}
        self.assertEqual(wanted - set(found), set())
        self.assertTrue([name for name in found if name.startswith("_native") and name.endswith(".so")], found)
        self.assertIn("tidemark", entry_points)

    def test_it_saves_and_restores(self):
        self.assertEqual(self.run_python(HERE / "save_and_restore.py", self.folder, "tidemark"), "restored\n")

    def test_its_worker_evaluates_what_it_saved(self):
        self.assertIn("usage: python -m tidemark.worker", self.run_python("-m", "tidemark.worker", "--help"))
        self.run_python(HERE / "save_and_restore.py", self.folder, "tidemark")
        (self.folder / "evaluators.py").write_text(EVALUATOR)
        self.run_python("-m", "tidemark.worker", "store", "evaluators:loss", "--name", "e", "--until-step", "2")
        self.assertEqual(json.loads(self.run_python("-c", READ, self.folder / "store")),
                         {"1": {"loss": 1.0, "e/epoch": 0.25}, "2": {"loss": 0.5, "e/epoch": 0.5}})


if __name__ == "__main__":
    PipInstall.environment = pathlib.Path(sys.argv.pop(1)).absolute()
    unittest.main()
