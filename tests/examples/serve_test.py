#!/usr/bin/env python3
"""The examples that need no LibTorch: rollback goes back to a state in memory or to a step of its store, serve reads
what a trainer has saved, follow evaluates it.

  serve_test.py ROLLBACK SERVE FOLLOW [unittest arguments]
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest


class Serve(unittest.TestCase):
    rollback = None
    serve = None
    follow = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tidemark-serve-")
        cls.addClassCleanup(folder.cleanup)
        cls.store = os.path.join(folder.name, "store")
        cls.folder = folder.name
        cls.trained = cls.run_program(cls.rollback, cls.store)

    @staticmethod
    def run_program(*arguments):
        return subprocess.run(arguments, capture_output=True, text=True)

    def test_the_training_goes_back_and_comes_to_its_end(self):
        self.assertEqual(self.trained.returncode, 0, self.trained.stderr)
        self.assertIn("learning rate 0.5", self.trained.stdout)
        self.assertIn("y = 3.0000 x + 1.0000", self.trained.stdout)

    def test_the_training_resumes_with_what_it_had(self):
        again = self.run_program(self.rollback, self.store)
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(again.stdout, "y = 3.0000 x + 1.0000\n")

    def test_serves_the_best_step(self):
        served = self.run_program(self.serve, self.store, "best:loss", "s*", "offset")
        self.assertEqual(served.returncode, 0, served.stderr)
        self.assertEqual(served.stdout, "step 199\nslope [] 8 bytes\noffset [] 8 bytes\n")

    def test_evaluates_each_step_once_and_the_best_by_that_is_served(self):
        store = os.path.join(self.folder, "followed")
        shutil.copytree(self.store, store)
        followed = self.run_program(self.follow, store)
        self.assertEqual(followed.returncode, 0, followed.stderr)
        self.assertEqual(re.findall(r"^step (\d+): loss", followed.stdout, re.MULTILINE),
                         [str(step) for step in [*range(0, 200, 20), 199]])
        self.assertIn("11 steps evaluated, 0 failed\n", followed.stdout)
        self.assertEqual(self.run_program(self.follow, store).stdout, "0 steps evaluated, 0 failed\n")
        # The trainer records the reports.
        self.assertEqual(self.run_program(self.rollback, store).returncode, 0)
        served = self.run_program(self.serve, store, "best:validation/loss", "slope")
        self.assertEqual(served.stdout, "step 199\nslope [] 8 bytes\n", served.stderr)

    def test_goes_back_to_a_step_and_gives_up_the_later_ones(self):
        store = os.path.join(self.folder, "back")
        shutil.copytree(self.store, store)
        back = self.run_program(self.rollback, store, "120")
        self.assertEqual(back.returncode, 0, back.stderr)
        self.assertEqual(back.stdout, "back to step 120; 4 later steps discarded\ny = 3.0000 x + 1.0000\n")
        self.assertIn("step 140\n", self.run_program(self.serve, store, "140").stdout)  # saved anew
        missing = self.run_program(self.rollback, store, "7")
        self.assertEqual(missing.returncode, 1)
        self.assertIn("NOT_FOUND", missing.stderr)
        self.assertEqual(self.run_program(self.rollback, store, "x").returncode, 2)

    def test_says_what_it_cannot_serve(self):
        for arguments, message in [([self.store, "best:accuracy"], "finite metric 'accuracy'"),
                                   ([self.store, "newest"], "'newest' names no step"),
                                   ([self.store, "latest", "model.*"], "model.*"),
                                   ([self.store + "-", "latest"], "NOT_FOUND")]:
            served = self.run_program(self.serve, *arguments)
            self.assertEqual(served.returncode, 1, served.stdout)
            self.assertIn(message, served.stderr)


if __name__ == "__main__":
    Serve.rollback, Serve.serve, Serve.follow = (sys.argv.pop(1) for _ in range(3))
    unittest.main()
