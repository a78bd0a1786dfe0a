#!/usr/bin/env python3
"""The examples rollback, which goes back to a state in memory, and serve, which reads what a trainer has saved.

  serve_test.py ROLLBACK SERVE [unittest arguments]
"""

import os
import subprocess
import sys
import tempfile
import unittest


class Serve(unittest.TestCase):
    rollback = None
    serve = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tidemark-serve-")
        cls.addClassCleanup(folder.cleanup)
        cls.store = os.path.join(folder.name, "store")
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

    def test_says_what_it_cannot_serve(self):
        for arguments, message in [([self.store, "best:accuracy"], "finite metric 'accuracy'"),
                                   ([self.store, "newest"], "'newest' names no step"),
                                   ([self.store, "latest", "model.*"], "model.*"),
                                   ([self.store + "-", "latest"], "NOT_FOUND")]:
            served = self.run_program(self.serve, *arguments)
            self.assertEqual(served.returncode, 1, served.stdout)
            self.assertIn(message, served.stderr)


if __name__ == "__main__":
    Serve.rollback, Serve.serve = sys.argv.pop(1), sys.argv.pop(1)
    unittest.main()
