#!/usr/bin/env python3
"""tests/in_memory gives a command a folder in memory for its files, removes it, and does without where there is none.

  in_memory_test.py ROOT [unittest arguments]
"""

import os
import subprocess
import sys
import tempfile
import unittest


class InMemory(unittest.TestCase):
    root = None

    def run_command(self, command, **variables):
        environment = dict(os.environ, TMPDIR="/unchanged", **variables)
        result = subprocess.run([os.path.join(self.root, "tests", "in_memory"), "sh", "-c", command], env=environment,
                                text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return result.returncode, result.stdout

    def test_the_files_are_in_memory_until_the_command_ends_with_its_status(self):
        status, out = self.run_command('touch "$TMPDIR/file" && echo "$TMPDIR" && exit 3')
        self.assertEqual(status, 3, out)
        if out == "/unchanged\n":
            self.skipTest("memory is short here, or has no O_DIRECT")
        self.assertTrue(out.startswith("/dev/shm/tidemark-tests-"), out)
        self.assertFalse(os.path.exists(out.strip()))

    def test_a_command_that_is_killed_leaves_nothing(self):
        status, out = self.run_command('echo "$TMPDIR"; kill -KILL $$')
        self.assertEqual(status, 137 if out.startswith("/dev/shm/") else -9, out)
        self.assertEqual(os.path.exists(out.strip()), False)

    def test_where_there_is_no_memory_the_command_runs_as_it_is(self):
        for place in ("/nowhere", "/proc"):
            self.assertEqual(self.run_command('echo "$TMPDIR"; exit 4', MEMORY_FOLDER=place), (4, "/unchanged\n"))

    def test_where_memory_is_short_the_command_runs_as_it_is(self):
        with tempfile.TemporaryDirectory() as place:
            mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
                     'mount -t tmpfs -o size=64m none "$0" || exit 77; MEMORY_FOLDER=$0 "$1" sh -c "echo \\$TMPDIR"',
                     place, os.path.join(self.root, "tests", "in_memory")]
            result = subprocess.run(mount, env=dict(os.environ, TMPDIR="/unchanged"), text=True, stdout=subprocess.PIPE,
                                    stderr=subprocess.STDOUT)
            if result.returncode in (1, 77):
                self.skipTest("mounting is not allowed here: " + result.stdout)
            self.assertEqual((result.returncode, result.stdout), (0, "/unchanged\n"))

    def test_where_files_in_memory_have_no_direct_access_the_command_runs_as_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            failing = os.path.join(folder, "dd")
            os.symlink("/bin/false", failing)
            before = set(os.listdir("/dev/shm"))
            self.assertEqual(self.run_command('echo "$TMPDIR"; exit 5', PATH=folder + ":" + os.environ["PATH"]),
                             (5, "/unchanged\n"))
            left = [name for name in set(os.listdir("/dev/shm")) - before if name.startswith("tidemark-tests-")]
            self.assertEqual(left, [])


if __name__ == "__main__":
    InMemory.root = sys.argv[1]
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
