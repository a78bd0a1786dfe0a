#!/usr/bin/env python3
"""The example lr_find, which tries learning rates on the model itself and then takes all of it back.

  lr_find_test.py LR_FIND [unittest arguments]
"""

import re
import subprocess
import sys
import unittest


class LrFind(unittest.TestCase):
    lr_find = None

    def run_program(self, *arguments):
        return subprocess.run([self.lr_find, *arguments], capture_output=True, text=True)

    def test_the_training_after_the_range_test_is_the_one_without(self):
        found = self.run_program()
        self.assertEqual(found.returncode, 0, found.stderr)
        suggested, losses = found.stdout.split("\n", 1)
        rate = re.fullmatch(r"suggested learning rate (\S+)", suggested).group(1)
        without = self.run_program(rate)
        self.assertEqual(without.returncode, 0, without.stderr)
        self.assertEqual(losses, without.stdout)

    def test_the_suggested_rate_trains(self):
        found = self.run_program()
        first, last = (float(re.search(f"{which} loss (\\S+)", found.stdout).group(1)) for which in ("first", "last"))
        self.assertLess(last, first / 2)

    def test_a_rate_that_is_no_positive_number_is_refused(self):
        for arguments in ["fast"], ["0"], ["0.1", "0.2"]:
            refused = self.run_program(*arguments)
            self.assertEqual((refused.returncode, refused.stderr), (2, "usage: lr_find [RATE]\n"))


if __name__ == "__main__":
    LrFind.lr_find = sys.argv.pop(1)
    unittest.main()
