#!/usr/bin/env python3
"""The example's evaluator: beside the trainer or after it, each step once, and a clear message where it cannot go on.

  char_lm_evaluate_test.py TRAINER EVALUATOR [unittest arguments]
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest

MODEL = ["--layers", "1", "--heads", "2", "--context", "16"]
LINE = re.compile(r"step (\d+): held-out loss (\d+\.\d+), \d+\.\d+ s")


class CharLmEvaluate(unittest.TestCase):
    trainer = None
    evaluator = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tidemark-char-lm-evaluate-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def train(self, steps):
        command = [self.trainer, "--store", self.path("store"), *MODEL, "--width", "32", "--batch", "2", "--save-every",
                   "2", "--steps", str(steps)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def command(self, *arguments, width=32):
        return [self.evaluator, "--store", self.path("store"), *MODEL, "--width", str(width), *arguments]

    def evaluate(self, *arguments, width=32):
        return subprocess.run(self.command(*arguments, width=width), capture_output=True, text=True)

    def steps_of(self, output):
        lines = output.splitlines()
        matches = [LINE.fullmatch(line) for line in lines]
        self.assertTrue(all(matches), output)
        for match in matches:
            self.assertTrue(0 < float(match.group(2)) < 10, match.group(0))
        return [int(match.group(1)) for match in matches]

    def test_evaluates_each_step_once(self):
        self.train(5)
        first = self.evaluate("--once")
        self.assertEqual(first.returncode, 0, first.stderr)
        self.assertEqual(self.steps_of(first.stdout), [0, 2, 4])
        self.assertEqual(self.evaluate("--once").stdout, "")
        self.train(7)
        self.assertEqual(self.steps_of(self.evaluate("--once").stdout), [6])
        again = self.evaluate("--once", "--name", "another", "--every-steps", "4")
        self.assertEqual(self.steps_of(again.stdout), [0, 4])
        self.assertEqual(again.stdout.splitlines()[0].split(",")[0], first.stdout.splitlines()[0].split(",")[0])

    def test_follows_a_training_from_before_its_start(self):
        with subprocess.Popen(self.command("--until-step", "8"), stdout=subprocess.PIPE, text=True) as evaluator:
            self.train(9)
            output, _ = evaluator.communicate()
        self.assertEqual(evaluator.returncode, 0)
        self.assertEqual(self.steps_of(output), [0, 2, 4, 6, 8])

    def test_a_model_of_another_size_is_a_failed_evaluation(self):
        self.train(1)
        result = self.evaluate("--once", width=64)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("char_lm_evaluate: 1 of 1 evaluations failed\n", result.stderr)
        self.assertRegex(result.stdout, r"^step 0: failed: INVALID_ARGUMENT: .*does not fit the module")
        self.assertEqual(len(result.stdout.splitlines()), 1)
        result = self.evaluate("--once")
        self.assertEqual((result.returncode, result.stdout), (0, ""))
        result = self.evaluate("--once", "--again-if-failed")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(self.steps_of(result.stdout), [0])

    def test_says_why_it_cannot_begin(self):
        for arguments, message in ((["--text", self.path("none")], "NOT_FOUND"), (["--name", "a/b"], "INVALID_ARGUMENT")):
            result = self.evaluate("--once", *arguments)
            self.assertEqual(result.returncode, 1)
            self.assertIn("char_lm_evaluate: " + message, result.stderr)
        self.assertNotIn(self.evaluate("--heads", "5").returncode, (0, 1))

    def test_explains_itself(self):
        result = self.evaluate("--help")
        self.assertEqual(result.returncode, 0)
        for word in ("--until-step", "--idle-timeout", "--once", "held out"):
            self.assertIn(word, result.stdout)


if __name__ == "__main__":
    CharLmEvaluate.trainer, CharLmEvaluate.evaluator = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
