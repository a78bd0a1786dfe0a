#!/usr/bin/env python3
""".ci/run tells what passed, what failed and what was skipped, and its exit status agrees.

  ci_run_test.py ROOT [unittest arguments]
"""

import os
import subprocess
import sys
import tempfile
import unittest

# Stands for make: a stage does what the variable named after it says.
MAKE = """#!/bin/sh
case " $SKIPPING " in *" $1 "*) echo "SKIPPED: $1: no network" ;; esac
case " $FAILING " in *" $1 "*) printf '%b' "$SAYING" >&2; exit 2 ;; esac
"""

# What ctest prints of a test that passed and of one that failed.
TESTS = r"""      Start  7: SumTest.Adds\n 7/9 Test  #7: SumTest.Adds ........   Passed    0.01 sec
 8/9 Test  #8: SumTest.Carries .....***Failed    0.02 sec\nsum_test.cc:12: Failure\nexpected 10, found 0
      Start  9: SumTest.Overflows\n 9/9 Test  #9: SumTest.Overflows ...   Passed    0.01 sec\n50% tests passed\n"""
# What fuzz/run prints of two targets that failed, and make of the whole.
FINDINGS = r"""a  FAILED\nb  FAILED\n=== a failed; its log ends:\n==7==ERROR: AddressSanitizer: overflow
FOUND by a: crashes/a-crash-1, 3 bytes, in base64: YWJj\n=== b failed; its log ends:\nfuzz: violated: a rule
FOUND by b: crashes/b-crash-2, 3 bytes, in base64: YWJk\nmake: *** [Makefile:9: fuzz] Error 1\n"""
# What ninja prints of a source that gcc refuses.
REFUSAL = r"""[1/9] Building CXX object sum.cc.o\nFAILED: sum.cc.o\nsum.cc:3:1: error: expected ';'\nninja: stopped\n"""


class CiRun(unittest.TestCase):
    root = None

    def run_stages(self, failing="", skipping="", saying="", latest_begin="4500"):
        with tempfile.TemporaryDirectory(prefix="tidemark-ci-") as folder:
            make = os.path.join(folder, "make")
            with open(make, "w", encoding="utf-8") as file:
                file.write(MAKE)
            os.chmod(make, 0o755)
            environment = dict(os.environ, PATH=folder + ":" + os.environ["PATH"], FAILING=failing, SKIPPING=skipping,
                               SAYING=saying, LATEST_BEGIN=latest_begin)
            result = subprocess.run([os.path.join(self.root, ".ci", "run")], env=environment, text=True,
                                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            return result.returncode, result.stdout

    def test_all_passed(self):
        status, out = self.run_stages()
        self.assertEqual(status, 0, out)
        self.assertEqual(out.splitlines()[-1], "10 passed, 0 failed")

    def test_a_skipped_stage_has_not_passed(self):
        status, out = self.run_stages(skipping="test-torch2")
        self.assertEqual(status, 0, out)
        self.assertRegex(out, r"(?m)^test-torch2 +SKIPPED ")
        self.assertEqual(out.splitlines()[-1], "9 passed, 0 failed, 1 skipped")

    def test_a_stage_that_would_begin_too_late_is_skipped(self):
        status, out = self.run_stages(failing="test", latest_begin="0")
        self.assertEqual(status, 0, out)
        self.assertRegex(out, r"SKIPPED: test: \d+ s are over, and it does not begin after 0 s")
        self.assertEqual(out.splitlines()[-1], "0 passed, 0 failed, 10 skipped")
        status, out = self.run_stages(latest_begin="900")
        self.assertRegex(out, r"SKIPPED: tsan: \d+ s are over, and it does not begin after 0 s")
        self.assertEqual(out.splitlines()[-1], "8 passed, 0 failed, 2 skipped")

    def test_a_failed_stage_fails_the_run_and_keeps_none_from_running(self):
        status, out = self.run_stages(failing="test asan-core", skipping="asan-core test-torch2")
        self.assertEqual(status, 1, out)
        self.assertRegex(out, r"(?m)^test +FAILED ")
        self.assertRegex(out, r"(?m)^asan-core +FAILED ")
        self.assertEqual(out.splitlines()[-1], "7 passed, 2 failed, 1 skipped")

    def said_of_the_failure(self, saying):
        _, out = self.run_stages(failing="asan-core", saying=saying)
        return out.split("=== why asan-core failed\n")[1].split("=== stages\n")[0].splitlines()

    def test_the_end_repeats_what_failed_tests_printed(self):
        self.assertEqual(self.said_of_the_failure(TESTS),
                         ["   8/9 Test  #8: SumTest.Carries .....***Failed    0.02 sec",
                          "  sum_test.cc:12: Failure", "  expected 10, found 0"])

    def test_the_end_repeats_what_fuzz_targets_failed_on(self):
        self.assertEqual(self.said_of_the_failure(FINDINGS),
                         ["  === a failed; its log ends:", "  ==7==ERROR: AddressSanitizer: overflow",
                          "  FOUND by a: crashes/a-crash-1, 3 bytes, in base64: YWJj",
                          "  === b failed; its log ends:", "  fuzz: violated: a rule",
                          "  FOUND by b: crashes/b-crash-2, 3 bytes, in base64: YWJk"])

    def test_the_end_repeats_the_input_of_a_fuzz_target_that_says_much(self):
        found = "FOUND by a: crashes/a-crash-1, 3 bytes, in base64: YWJj"
        saying = "=== a failed; its log ends:\\n" + "frame\\n" * 60 + found + "\\n"
        self.assertEqual(self.said_of_the_failure(saying)[-1], "  " + found)

    def test_the_end_repeats_what_the_compiler_refused(self):
        self.assertEqual(self.said_of_the_failure(REFUSAL), ["  FAILED: sum.cc.o", "  sum.cc:3:1: error: expected ';'"])

    def test_the_end_repeats_the_last_lines_of_what_it_does_not_understand(self):
        self.assertEqual(self.said_of_the_failure("one\\ntwo\\n"), ["  one", "  two"])

    def test_of_a_process_that_runs_many_tests_what_passed_is_left_out(self):
        said = self.said_of_the_failure(
            r" 7/9 Test  #7: storage_tests.3 .....***Failed    0.02 sec\n"
            r"[ RUN      ] SumTest.Adds\n[       OK ] SumTest.Adds (0 ms)\n"
            r"[ RUN      ] SumTest.Carries\nsum_test.cc:12: Failure\n[  FAILED  ] SumTest.Carries (0 ms)\n"
            r"[ RUN      ] SumTest.Overflows\n[       OK ] SumTest.Overflows (0 ms)\n")
        self.assertEqual([line.strip() for line in said],
                         ["7/9 Test  #7: storage_tests.3 .....***Failed    0.02 sec", "[ RUN      ] SumTest.Carries",
                          "sum_test.cc:12: Failure", "[  FAILED  ] SumTest.Carries (0 ms)"])


if __name__ == "__main__":
    CiRun.root = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
