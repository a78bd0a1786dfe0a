#!/usr/bin/env python3
"""The wheel installed: alone, and in one process with others that have libraries of the same names.

  installed_test.py ENVIRONMENTS TARGETS FRAMEWORK_PYTHON... [-- unittest arguments]

ENVIRONMENTS is a folder of virtual environments with the wheel and NumPy, and nothing else. TARGETS has a folder for
each version of Python that the wheel was installed into, for interpreters that have frameworks. Needs g++ and the
headers of RocksDB.
"""

import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).parent
FRAMEWORKS = ["jax", "tensorflow", "torch"]


def run(*command, **environment):
    env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "TF_CPP_MIN_LOG_LEVEL": "3", "JAX_PLATFORMS": "cpu", **environment}
    return subprocess.run([str(word) for word in command], capture_output=True, text=True, env=env, timeout=600)


class Installed(unittest.TestCase):
    environments = []
    targets = None
    framework_pythons = []

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def assert_restores(self, python, *names, **environment):
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            result = run(python, HERE / "save_and_restore.py", folder, *names, **environment)
            self.assertEqual((result.returncode, result.stdout.strip()), (0, "restored"), f"{python} {names}: {result.stderr}")

    def test_it_saves_and_restores_with_nothing_but_numpy(self):
        for environment in self.environments:
            with self.subTest(environment.name):
                self.assert_restores(environment / "bin" / "python", "tidemark")

    def test_its_program_reads_what_it_saved(self):
        for environment in self.environments:
            with self.subTest(environment.name):
                folder = self.folder / environment.name
                folder.mkdir()
                saved = run(environment / "bin" / "python", HERE / "save_and_restore.py", folder, "tidemark")
                self.assertEqual(saved.returncode, 0, saved.stderr)
                program = environment / "bin" / "checkpoint-inspect"
                listed = run(program, "--store", folder / "store", "--json", "ls")
                self.assertEqual(listed.returncode, 0, listed.stderr)
                steps = [(step["step"], step["state"], step["metrics"]) for step in json.loads(listed.stdout)["steps"]]
                self.assertEqual(steps, [(1, "committed", {"loss": 1.0}), (2, "committed", {"loss": 0.5})])
                verified = run(program, "--store", folder / "store", "verify")
                self.assertEqual(verified.returncode, 0, verified.stderr + verified.stdout)
                self.assertIn("2 of 2 steps sound", verified.stdout)
                missing = run(program, "--store", folder / "none", "ls")
                self.assertNotEqual(missing.returncode, 0)
                self.assertIn("none is not a Tidemark store", missing.stderr)

    def test_it_restores_beside_frameworks_in_either_order(self):
        for python in self.framework_pythons:
            program = ("import importlib.util as u, sys; print('%d.%d' % sys.version_info[:2], "
                       f"*[n for n in {FRAMEWORKS} if u.find_spec(n)])")
            version, *found = run(python, "-c", program).stdout.split()
            self.assertTrue(found, f"{python} has none of {FRAMEWORKS}")
            orders = [order for name in found for order in ([name, "tidemark"], ["tidemark", name])]
            if len(found) > 1:
                orders += [[*order, "tidemark"] for order in itertools.permutations(found)] + [["tidemark", *found]]
            for order in orders:
                with self.subTest(python=python, order=order):
                    self.assert_restores(python, *order, PYTHONPATH=str(self.targets / version))
                    print("restored beside", *order, f"({python})")

    def test_a_rocksdb_that_all_of_the_process_can_see_is_not_called(self):
        rival = self.folder / "librival.so"
        subprocess.run(["g++", "-std=c++17", "-shared", "-fPIC", HERE / "rival_rocksdb.cc", "-o", rival], check=True)
        exported = subprocess.run(["nm", "-D", "--defined-only", rival], capture_output=True, text=True, check=True).stdout
        opens = [line.split()[-1] for line in exported.splitlines() if "2DB4OpenE" in line]
        self.assertEqual(len(opens), 2, exported)
        # What a preloaded library defines comes first in every lookup of the process, like that of one loaded with
        # RTLD_GLOBAL before.
        for environment in self.environments:
            with self.subTest(environment.name):
                python = environment / "bin" / "python"
                self.assert_restores(python, "tidemark", LD_PRELOAD=str(rival))
                self.assert_restores(python, "rival_loaded_globally", "tidemark", RIVAL=str(rival), RIVAL_SYMBOL=opens[0],
                                     PYTHONPATH=str(HERE))


if __name__ == "__main__":
    arguments = sys.argv[1:]
    split = arguments.index("--") if "--" in arguments else len(arguments)
    environments, targets, *Installed.framework_pythons = arguments[:split]
    Installed.environments = sorted(path for path in pathlib.Path(environments).iterdir() if path.is_dir())
    Installed.targets = pathlib.Path(targets)
    assert Installed.environments, f"{environments} has no virtual environment"
    unittest.main(argv=[sys.argv[0], *arguments[split + 1:]])
