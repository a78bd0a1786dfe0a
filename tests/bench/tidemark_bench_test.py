#!/usr/bin/env python3
"""The bench's command line, and a run on little data.

  tidemark_bench_test.py TIDEMARK_BENCH [unittest arguments]
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

NAMES = """stage_vs_memcpy stage_small_vs_memcpy first_vs_later_save stage_overlapped stage_gpu_vs_pinned_copy
stage_gpu_on_device write_raw_vs_fio write_throughput_vs_fio size_bf16_vs_entropy size_fp32_vs_entropy encode_vs_zstd1
decode_vs_zstd cpu_vs_torch_save committed_vs_torch_save restore_vs_fio restore_auto_vs_fio restore_vs_torch_load
statistics_vs_fio
reuse_90_frozen commit_vs_fdatasync open_100k_vs_10 ranks_4_vs_1 ranks_blocked_4_vs_1 plan_1024x1024
training_slowdown auto_size_vs_space rss_vs_state million_blocked_vs_memcpy million_commit_vs_large
million_restore_vs_large million_stored_16b million_stored_1kib million_changed million_rss_vs_state""".split()

# All but those that train, which takes as long on little data.
RUN = [name for name in NAMES if name not in ("training_slowdown", "auto_size_vs_space")]


class TidemarkBench(unittest.TestCase):
    program = None

    def run_bench(self, *arguments, path=None):
        environment = dict(os.environ)
        if path is not None:
            environment["PATH"] = path
        result = subprocess.run([self.program, *arguments], env=environment, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE)
        return result.returncode, result.stdout, result.stderr

    def test_an_unknown_row_is_refused_with_the_names_of_all(self):
        status, _, err = self.run_bench("--only", "no_such_row")
        self.assertEqual(status, 2)
        for name in NAMES:
            self.assertIn(name, err)

    def test_wrong_values_are_refused(self):
        for arguments in (["--pairs", "0"], ["--size", "none"], ["--unknown"]):
            self.assertEqual(self.run_bench(*arguments)[0], 2, arguments)

    def test_help_names_the_options(self):
        status, out, _ = self.run_bench("--help")
        self.assertEqual(status, 0)
        for option in ("--only", "--json", "--dir", "--assert-goals", "--size", "--pairs"):
            self.assertIn(option, out)

    def test_a_folder_that_cannot_be_made_is_trouble(self):
        status, _, err = self.run_bench("--dir", "/proc/no/such/folder", "--only", "commit_vs_fdatasync")
        self.assertEqual(status, 1)
        self.assertIn("/proc/no/such/folder", err)

    def test_rows_run_on_little_data_and_leave_nothing_behind(self):
        with tempfile.TemporaryDirectory(prefix="tidemark-bench-test-") as folder:
            report = os.path.join(folder, "report.json")
            work = os.path.join(folder, "work")
            only = [argument for name in RUN for argument in ("--only", name)]
            status, out, err = self.run_bench("--size", "16", "--pairs", "1", "--dir", work, "--json", report,
                                              "--assert-goals", *only)
            with open(report, encoding="utf-8") as file:
                rows = json.load(file)
            # On so little data some row misses its goal, as a rule.
            self.assertEqual(status, 3 if any(row["met"] is False for row in rows) else 0, err)
            self.assertEqual([row["name"] for row in rows], RUN)
            for row in rows:
                self.assertIn("| " + row["name"], out)
                self.assertIn(row["better"], ("lower", "higher"))
                if row["skipped"] is None:
                    self.assertGreater(row["ratio"], 0, row)
                    self.assertIsInstance(row["met"], bool, row)
            self.assertEqual(os.listdir(work), [])

    def test_growth_is_measured_on_little_data(self):
        with tempfile.TemporaryDirectory(prefix="tidemark-bench-test-") as folder:
            report = os.path.join(folder, "growth.json")
            work = os.path.join(folder, "work")
            status, out, err = self.run_bench("--growth", "--size", "4", "--pairs", "1", "--dir", work, "--json", report)
            self.assertEqual(status, 0, err)
            with open(report, encoding="utf-8") as file:
                series = json.load(file)["series"]
            self.assertEqual(os.listdir(work), [])
        self.assertEqual({(one["axis"], one["quantity"]) for one in series},
                         {(axis, quantity) for axis in ("state bytes", "entries")
                          for quantity in ("blocked", "committed", "restored", "memory")} |
                         {("steps", "open"), ("steps", "ls"), ("ranks", "blocked"), ("ranks", "committed")})
        for one in series:
            self.assertEqual(one["sizes"], sorted(one["sizes"]))
            self.assertEqual(len(one["sizes"]), len(one["values"]), one)
            self.assertGreater(min(one["values"]), 0, one)
            self.assertIn("| " + one["quantity"], out)

    def test_growth_and_rows_exclude_each_other(self):
        self.assertEqual(self.run_bench("--growth", "--only", "rss_vs_state")[0], 2)

    def test_without_fio_its_rows_say_so(self):
        with tempfile.TemporaryDirectory(prefix="tidemark-bench-test-") as folder:
            status, out, _ = self.run_bench("--only", "write_raw_vs_fio", "--dir", folder, path="/nowhere")
        self.assertEqual(status, 0)
        self.assertRegex(out, r"write_raw_vs_fio .* skipped \| fio is not installed")


if __name__ == "__main__":
    TidemarkBench.program = sys.argv.pop(1)
    unittest.main()
