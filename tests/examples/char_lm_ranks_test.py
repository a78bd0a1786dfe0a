#!/usr/bin/env python3
"""The command line of char_lm_ranks, and a job of two processes.

  char_lm_ranks_test.py TRAINER [unittest arguments]
"""

import os
import subprocess
import sys
import tempfile
import unittest

SMALL = ["--width", "16", "--heads", "2", "--layers", "1", "--context", "16", "--batch", "4"]


class CharLmRanks(unittest.TestCase):
    trainer = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="char-lm-ranks-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def command(self, store, rank, world, *extra):
        return [self.trainer, "--store", os.path.join(self.folder, store), "--rank", str(rank), "--world", str(world),
                "--rendezvous", os.path.join(self.folder, f"{store}-{world}"), "--steps", "4", "--save-every", "2", *SMALL,
                *extra]

    def run_job(self, store, world, *extra):
        ranks = [subprocess.Popen(self.command(store, rank, world, *extra), text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT) for rank in range(world)]
        output = [rank.communicate(timeout=120)[0] for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0] * world, output)
        return output

    def test_wrong_values_are_refused(self):
        for rank, world, message in ((2, 2, "--rank 2 is none of 2 ranks"), (0, 5, "--batch 4 is less than --world 5")):
            result = subprocess.run(self.command("none", rank, world), text=True, stderr=subprocess.PIPE)
            self.assertEqual(result.returncode, 2)
            self.assertEqual(result.stderr, f"char_lm_ranks: {message}\n")
        self.assertFalse(os.path.exists(os.path.join(self.folder, "none")))

    def test_two_processes_save_what_one_goes_on_with(self):
        for kind in ((), ("--tensor-parallel",)):
            store = f"store{len(kind)}"
            output = self.run_job(store, 2, *kind)
            for rank in (0, 1):
                self.assertIn(f"rank {rank}: step 3 is committed\n", output[rank])
            self.assertIn("done; every save is committed", output[0])
            self.assertIn("resuming after step 3", self.run_job(store, 1)[0])


if __name__ == "__main__":
    CharLmRanks.trainer = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
