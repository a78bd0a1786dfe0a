#!/usr/bin/env python3
"""What the example trainer does when it cannot go on: a clear message, a failing exit status, the store unharmed.

  char_lm_test.py TRAINER COMPARE [unittest arguments]
"""

import os
import subprocess
import sys
import tempfile
import unittest

FAST = ["--layers", "1", "--heads", "2", "--context", "16", "--batch", "2", "--threads", "1", "--save-every", "2"]


class CharLm(unittest.TestCase):
    trainer = None
    compare = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="tidemark-char-lm-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def train(self, store, *arguments, width=32):
        return subprocess.run([self.trainer, "--store", self.path(store), *FAST, "--width", str(width), *arguments],
                              capture_output=True, text=True)

    def assert_trained(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)

    def assert_failed(self, result, *parts):
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        for part in ("char_lm: ",) + parts:
            self.assertIn(part, result.stderr)

    def assert_same_state(self, a, b):
        compared = subprocess.run([self.compare, self.path(a), self.path(b)], capture_output=True, text=True)
        self.assertEqual(compared.returncode, 0, compared.stdout + compared.stderr)

    def assert_other_state(self, a, b):
        compared = subprocess.run([self.compare, self.path(a), self.path(b)], capture_output=True, text=True)
        self.assertEqual(compared.returncode, 1, compared.stdout + compared.stderr)

    def test_says_what_it_does(self):
        first = self.train("store", "--steps", "3")
        self.assert_trained(first)
        self.assertIn("starting afresh", first.stdout)
        self.assertIn("the training stood still for", first.stdout)
        second = self.train("store", "--steps", "5")
        self.assert_trained(second)
        self.assertIn("resuming after step 2", second.stdout)

    def test_is_silent_when_quiet(self):
        result = self.train("store", "--steps", "3", "--quiet")
        self.assert_trained(result)
        self.assertEqual(result.stdout, "")

    def test_two_seeds_end_in_two_states_and_one_in_one(self):
        for store, seed in (("a", "1"), ("b", "2"), ("c", "1")):
            self.assert_trained(self.train(store, "--steps", "3", "--seed", seed))
        self.assert_same_state("a", "c")
        self.assert_other_state("a", "b")

    def test_a_model_of_another_size_fails_and_harms_nothing(self):
        for store in ("store", "twin"):
            self.assert_trained(self.train(store, "--steps", "3"))
        self.assert_failed(self.train("store", "--steps", "9", width=64), "INVALID_ARGUMENT", "model.head.weight")
        self.assert_same_state("store", "twin")

    def test_a_text_of_other_characters_fails(self):
        for name, text in (("ab", "ab" * 50), ("xy", "xy" * 50)):
            with open(self.path(name), "w", encoding="ascii") as file:
                file.write(text)
        self.assert_trained(self.train("store", "--steps", "3", "--text", self.path("ab")))
        result = self.train("store", "--steps", "9", "--text", self.path("xy"))
        self.assert_failed(result, "FAILED_PRECONDITION", "trained on a text of other characters")

    def test_a_folder_that_is_no_store_fails_and_keeps_its_files(self):
        os.mkdir(self.path("photos"))
        with open(self.path("photos/cat"), "w", encoding="ascii") as file:
            file.write("meow")
        self.assert_failed(self.train("photos", "--steps", "3"), "FAILED_PRECONDITION", "photos")
        self.assertEqual(os.listdir(self.path("photos")), ["cat"])

    def test_damaged_shards_fail_instead_of_starting_afresh(self):
        self.assert_trained(self.train("store", "--steps", "3"))
        steps = self.path("store/steps")
        shards = [os.path.join(steps, step, name) for step in os.listdir(steps) for name in os.listdir(os.path.join(steps, step))
                  if name.endswith(".tmk")]
        self.assertGreater(len(shards), 0)
        for shard in shards:
            with open(shard, "r+b") as file:
                file.seek(os.path.getsize(shard) // 2)
                byte = file.read(1)
                file.seek(-1, os.SEEK_CUR)
                file.write(bytes([byte[0] ^ 0xFF]))
        self.assert_failed(self.train("store", "--steps", "9"), "DATA_LOSS")

    def test_a_missing_text_and_a_missing_folder_of_the_loss_log_fail(self):
        self.assert_failed(self.train("store", "--steps", "3", "--text", self.path("none")), "NOT_FOUND", "none")
        self.assert_failed(self.train("store", "--steps", "3", "--loss-log", self.path("none/losses")), "none/losses")

    def test_wrong_flags_are_refused(self):
        for flags in (["--steps", "0"], ["--heads", "5"], ["--nonsense"]):
            result = self.train("store", *flags)
            self.assertNotIn(result.returncode, (0, 1), flags)
            self.assertNotEqual(result.stderr, "", flags)
        self.assertFalse(os.path.exists(self.path("store")))


if __name__ == "__main__":
    CharLm.trainer = sys.argv.pop(1)
    CharLm.compare = sys.argv.pop(1)
    unittest.main()
