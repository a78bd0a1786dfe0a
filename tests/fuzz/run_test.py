#!/usr/bin/env python3
"""fuzz/run tells what each target did, and fails where one of them does.

  run_test.py ROOT [unittest arguments]
"""

import os
import subprocess
import sys
import tempfile
import unittest

# What libFuzzer of clang 14 prints, and a crash where the target's name is in $FAILING.
PROGRAM = """#!/bin/sh
echo "INFO: Loaded 1 modules   (3193 inline 8-bit counters): 3193 [0x1, 0x2),"
echo "#65536 pulse  cov: 900 ft: 2000 corp: 280/20Kb lim: 300 exec/s: 32768 rss: 100Mb"
echo "#131072 DONE   cov: 911 ft: 2011 corp: 284/21Kb lim: 300 exec/s: 32768 rss: 100Mb"
echo "stat::number_of_executed_units: 131072"
echo "stat::peak_rss_mb:              492"
case "$FAILING" in $(basename "$0"))
  echo "fuzz: violated: a rule"
  for word; do case "$word" in -artifact_prefix=*)
    if [ -n "$KEEPING" ]; then
      kept=${word#-artifact_prefix=}crash-1
      printf 'abc' > "$kept"
      echo "artifact_prefix='${word#-artifact_prefix=}'; Test unit written to $kept"
    fi
  esac; done
  exit 77 ;;
esac
for word; do case "$word" in -max_total_time=7) echo "$word" >> "$(dirname "$0")/times" ;; esac; done
"""


class FuzzRun(unittest.TestCase):
    root = None

    def run_targets(self, *targets, failing="", keeping="yes"):
        with tempfile.TemporaryDirectory(prefix="tidemark-fuzz-") as folder:
            for target in os.listdir(os.path.join(self.root, "fuzz", "corpus")):
                path = os.path.join(folder, "fuzz_" + target)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(PROGRAM)
                os.chmod(path, 0o755)
            result = subprocess.run([os.path.join(self.root, "fuzz", "run"), "--programs", folder, "--work", folder + "/work",
                                     "--seconds", "7", "--jobs", "2", *targets], text=True,
                                    env=dict(os.environ, FAILING=failing, KEEPING=keeping),
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.times = 0
            if not failing:
                with open(os.path.join(folder, "times"), encoding="utf-8") as times:
                    self.times = len(times.readlines())
            return result.returncode, result.stdout

    def test_every_target_has_a_row(self):
        status, out = self.run_targets()
        self.assertEqual(status, 0, out)
        targets = os.listdir(os.path.join(self.root, "fuzz", "corpus"))
        self.assertEqual(self.times, len(targets))
        for target in targets:
            self.assertRegex(out, rf"(?m)^{target} +\d+ +131072 +\d+ +911 +3193 +284 +492$")
        self.assertRegex(out, rf"(?m)^total +\d+ +{131072 * len(targets)}$")

    def test_targets_can_be_chosen(self):
        status, out = self.run_targets("shard_index")
        self.assertEqual((status, self.times), (0, 1), out)
        status, out = subprocess.getstatusoutput(f"{self.root}/fuzz/run --programs x --work x none")
        self.assertEqual(status, 2, out)
        self.assertIn("there is no target none", out)

    def test_a_target_that_fails_fails_the_run_and_shows_its_end(self):
        status, out = self.run_targets("shard_index", "shard_block", failing="fuzz_shard_index")
        self.assertEqual(status, 1, out)
        self.assertRegex(out, r"(?m)^shard_index .* FAILED$")
        self.assertRegex(out, r"(?m)^shard_block .* 492$")
        self.assertIn("fuzz: violated: a rule", out)
        self.assertRegex(out, r"(?m)^FOUND by shard_index: .*/crashes/shard_index-crash-1, 3 bytes, in base64: YWJj$")

    def test_a_target_that_fails_without_an_input_fails_the_run(self):
        status, out = self.run_targets("shard_index", failing="fuzz_shard_index", keeping="")
        self.assertEqual(status, 1, out)
        self.assertRegex(out, r"(?m)^FOUND by shard_index: no input was kept$")


if __name__ == "__main__":
    FuzzRun.root = os.path.abspath(sys.argv[1])
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
