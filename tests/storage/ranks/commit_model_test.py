#!/usr/bin/env python3
"""spin finds no broken promise in the model of the commit over ranks, and one wherever a rule is left out.

  commit_model_test.py MODEL [--long] [unittest arguments]

MODEL is commit.pml, which has the properties (a) to (e). The short test has two ranks. --long adds what is not needed
each time: three ranks, two failed syncs, and rules that are not needed under one fault. Three ranks have 140 million
states: 37 minutes and 9.4 GiB on a loaded machine.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SKIPPED = 77

# Each rule that can be left out, and the property that spin then finds broken on a shortest way.
RULES = {
    # The participant.
    "SYNC_BEFORE_VOTE": "d",
    "NO_AFTER_FAILED_SYNC": "d",
    "COMMIT_ESTABLISHED_TO_PARTICIPANT": "b",
    "COMMIT_BEFORE_NEWER_EPOCH": "c",
    "SYNC_OF_SETTLING": "b",
    "UNKNOWN": "c",
    "DEADLINE": "e",
    # The coordinator.
    "EVERY_VOTE": "d",
    "FENCE": "b",
    "COMMIT_ESTABLISHED_TO_COORDINATOR": "b",
    "FINAL_ABORT": "c",
    "SETTLING": "a",
    "SETTLING_IS_NOT_FENCED": "c",
    # Names of attempts, and the epoch in them.
    "IDENTITY_OF_VOTES": "d",
    "IDENTITY_OF_OUTCOMES": "c",
    "EPOCH_ESTABLISHED": "d",
    "OWN_EPOCH": "d",
    "ONE_LIFE_IN_AN_EPOCH": "d",
}

# Without a failed sync these are not missed. The others are, so no sync fails then: spin is faster so.
RULES_OF_FAILED_SYNCS = ("NO_AFTER_FAILED_SYNC", "SETTLING", "SETTLING_IS_NOT_FENCED")

# Rules that are needed only if ranks live on when the storage loses its power. If all ranks die with the storage, so
# does the coordinator that could commit what a lost entry had superseded.
RULES_OF_STORAGE_LOSS = {
    "NEWER_EPOCH_ESTABLISHED": "c",
    "SWEEP_AFTER_ESTABLISHED": "d",
}

# pan prints one of these when it has not seen everything.
CUT_OFF = ("max search depth too small", "Search not completed", "reached -DMEMLIM", "out of memory", "aborting")


class CommitModel(unittest.TestCase):
    model = None
    long = False

    def run_spin(self, folder, *command):
        result = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(result.returncode, 0, " ".join(command) + "\n" + result.stdout)
        return result.stdout

    def check_model(self, defines, compiler_flags, trail=False):
        """What pan prints, with the steps that lead to its error if `trail`."""
        defines = ["-D" + define for define in defines]
        with tempfile.TemporaryDirectory(prefix="tidemark-spin-") as folder:
            self.run_spin(folder, "spin", "-a", *defines, self.model)
            self.run_spin(folder, "cc", "-DSAFETY", *compiler_flags, "-o", "pan", "pan.c")
            out = subprocess.run(["./pan", "-m1000", "-w22"], cwd=folder, text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT).stdout
            if trail and not re.search(r"errors: 0\b", out):
                steps = os.path.basename(self.model) + ".trail"
                out += self.run_spin(folder, "spin", "-k", steps, "-p", "-g", *defines, self.model)
        states = re.search(r"(?m)^ *([\d.e+]+) states, stored", out)  # 1.2e+08 where there are many
        self.assertIsNotNone(states, out)
        count = int(float(states.group(1)))
        print(f"{' '.join(defines) or 'all rules'}: {count:,} states", flush=True)
        return count, out

    def assert_kept(self, *defines, states_min, unreached=(), compiler_flags=("-O1", "-DMEMLIM=4096")):
        """All states are visited, each statement is reached, and no property is broken."""
        states, out = self.check_model(defines, compiler_flags, trail=True)
        self.assertRegex(out, r"errors: 0\b")
        for cause in CUT_OFF:
            self.assertNotIn(cause, out)
        self.assertRegex(out, r"assertion violations\t\+")
        self.assertRegex(out, r"invalid end states\t\+")
        self.assertGreaterEqual(states, states_min)
        self.assertEqual(sorted(set(re.findall(r'(?m)^\t.*, state \d+, "(.*)"$', out)) - {"-end-"}), sorted(unreached))

    def broken_property(self, *defines):
        """The property that a shortest way to an error breaks. A search in breadth finds it soon, so -O0 is faster."""
        _, out = self.check_model(defines, ("-O0", "-DBFS"))
        if "pan:1: invalid end state" in out:
            return "e"
        found = re.search(r"assertion violated +(?:!\(broken_([a-d])\)|0)", out)
        return found and (found.group(1) or "never")

    def test_all_rules_keep_all_properties(self):
        self.assert_kept(states_min=2_000_000)

    def test_each_rule_is_needed(self):
        for rule, broken in RULES.items():
            with self.subTest(rule):
                failed_syncs = int(rule in RULES_OF_FAILED_SYNCS)
                self.assertEqual(self.broken_property("LEFT_OUT_" + rule, f"FAILED_SYNCS={failed_syncs}"), broken)

    def test_each_outcome_is_told(self):
        for outcome in ("COMMITTED", "ABORTED", "UNKNOWN"):
            with self.subTest(outcome):
                self.assertEqual(self.broken_property("NEVER_" + outcome, "FAILED_SYNCS=0"), "never")

    def test_all_properties_are_kept_when_ranks_outlive_the_storage(self):
        self.assert_kept("STORAGE_LOSS", states_min=200_000, unreached=["started = (started+1)"])

    def test_what_ranks_need_that_outlive_the_storage(self):
        for rule, broken in RULES_OF_STORAGE_LOSS.items():
            with self.subTest(rule):
                self.assertEqual(self.broken_property("STORAGE_LOSS", "LEFT_OUT_" + rule, "FAILED_SYNCS=0"), broken)

    def test_every_rule_of_the_model_is_in_these_tables(self):
        with open(self.model, encoding="utf-8") as file:
            rules = set(re.findall(r"#ifn?def LEFT_OUT_(\w+)", file.read()))
        self.assertEqual(rules, set(RULES) | set(RULES_OF_STORAGE_LOSS))

    def test_ranks_that_die_with_the_storage_need_less(self):
        self.skip_unless_long()
        for rule in RULES_OF_STORAGE_LOSS:
            with self.subTest(rule):
                self.assert_kept("LEFT_OUT_" + rule, states_min=2_000_000)

    def test_names_that_no_other_epoch_can_have_do_without_an_established_epoch(self):
        self.skip_unless_long()
        self.assert_kept("UNIQUE_NAMES", "LEFT_OUT_EPOCH_ESTABLISHED", states_min=2_000_000)

    def test_two_failed_syncs(self):
        self.skip_unless_long()
        self.assert_kept("FAILED_SYNCS=2", states_min=3_000_000)

    def test_three_ranks(self):
        self.skip_unless_long()
        self.assert_kept("RANKS=3", states_min=100_000_000, compiler_flags=("-O2", "-DCOLLAPSE", "-DMEMLIM=16000"))

    def skip_unless_long(self):
        if not self.long:
            self.skipTest("only with --long")


if __name__ == "__main__":
    for program in ("spin", "cc"):
        if shutil.which(program) is None:
            print(f"SKIPPED: the model of the commit over ranks: {program} is not installed")
            sys.exit(SKIPPED)
    CommitModel.model = os.path.abspath(sys.argv[1])
    arguments = sys.argv[2:]
    CommitModel.long = "--long" in arguments
    unittest.main(argv=sys.argv[:1] + [argument for argument in arguments if argument != "--long"])
