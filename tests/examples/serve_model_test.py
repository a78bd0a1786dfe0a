#!/usr/bin/env python3
"""serve_model loads a step of char_lm into a LibTorch module, in a process of its own, while the trainer runs.

  serve_model_test.py TRAINER SERVER [unittest arguments]
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

MODEL = ["--layers", "1", "--heads", "2", "--context", "16", "--width", "32"]
DEADLINE_SECONDS = 300
LOADS = 5


class ServeModel(unittest.TestCase):
    trainer = None
    server = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tidemark-serve-model-")
        self.addCleanup(folder.cleanup)
        self.store = os.path.join(folder.name, "store")

    def train(self, *arguments):
        return subprocess.Popen([self.trainer, "--store", self.store, *MODEL, "--batch", "2", "--validate", "--quiet",
                                 *arguments])

    def serve(self, *arguments, model=MODEL):
        return subprocess.run([self.server, "--store", self.store, *model, *arguments], capture_output=True, text=True)

    def served(self, *arguments):
        result = self.serve(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return self.parse(result.stdout)

    def parse(self, output):
        step, text = output.split("\n", 1)
        self.assertTrue(step.startswith("step "), output)
        self.assertTrue(text.startswith("The "), output)
        return int(step.removeprefix("step ")), text

    def test_loads_the_best_step_beside_a_live_trainer(self):
        trainer = self.train("--steps", "10000000", "--save-every", "50")
        try:
            loads = []
            deadline = time.monotonic() + DEADLINE_SECONDS
            while len(loads) < LOADS:
                self.assertLess(time.monotonic(), deadline, "no step was evaluated")
                result = self.serve("--step", "best:validation/loss")
                self.assertIsNone(trainer.poll(), "the trainer has ended")
                if result.returncode == 0:
                    loads.append(self.parse(result.stdout))
                else:
                    # Only before there is a store, and before a step is evaluated.
                    self.assertEqual(loads, [], result.stderr)
                    self.assertRegex(result.stderr, "NOT_FOUND|UNAVAILABLE")
            trainer.send_signal(signal.SIGTERM)
            self.assertEqual(trainer.wait(), 0)
        finally:
            trainer.kill()
            trainer.wait()
        for step, text in loads:
            self.assertEqual(self.served("--step", str(step)), (step, text))
        self.assertNotEqual(self.served("--step", "latest")[1], self.served("--step", "0")[1], "no weights were loaded")

    def test_says_what_it_cannot_serve(self):
        self.assertIn("NOT_FOUND", self.serve().stderr)
        self.assertEqual(self.train("--steps", "1").wait(), 0)
        self.assertEqual(self.served("--step", "latest")[0], 0)
        for arguments, message in ((["--step", "newest"], "'newest' names no step"),
                                   (["--step", "7"], "NOT_FOUND"),
                                   (["--step", "best:accuracy"], "finite metric 'accuracy'"),
                                   (["--prompt", "\x01"], "the model knows no")):
            result = self.serve(*arguments)
            self.assertEqual((result.returncode, result.stdout), (1, ""), arguments)
            self.assertIn(message, result.stderr)
        other = self.serve(model=[*MODEL[:-1], "64"])
        self.assertEqual(other.returncode, 1)
        self.assertIn("does not fit the module", other.stderr)
        self.assertEqual(self.serve("--prompt", "").returncode, 2)


if __name__ == "__main__":
    ServeModel.trainer, ServeModel.server = sys.argv[1:3]
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
