#!/usr/bin/env python3
"""Holds what checkpoint-inspect prints for people about a store of the example trainer against golden text.

  golden_test.py CHECKPOINT_INSPECT CHAR_LM GOLDEN [--update] [unittest arguments]

GOLDEN has a file for each command. What differs from run to run, or from machine to machine, is replaced by a word in
angle brackets: quantities, fractions, times, identifiers; and several blanks by one, since columns are as wide as what
is in them. Integers without a unit are compared. Of what doctor finds of a machine the names of the checks are compared,
and whether any is missing. --update writes the files anew, to be looked at by whoever commits them.
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

TRAINER_FLAGS = ["--quiet", "--validate", "--steps", "5", "--save-every", "2", "--layers", "1", "--heads", "2", "--width",
                 "32", "--context", "16", "--batch", "2", "--threads", "1", "--keep-latest", "3"]

# Not a command: what has happened to the store before the next one.
DAMAGE = "# a byte of step 4 has changed on the disk"

# What is printed for each of them. A run has a copy of the store, {store}, and an empty folder, {out}, to itself; what
# follows a run in the same list finds what it has done.
RUNS = {
    "diff": [["diff 2 4 --sort name"], ["diff 2 2"], ["diff 2 4 model.head.* --structure-only"], ["diff 2 99"]],
    "doctor": [["doctor {out} --seconds 0.01 --bytes 8MiB"], ["doctor {store}/store.json"]],
    "export": [["export latest -o {out}/a.safetensors", "tensors latest model.head.*",
                "diff 4 {out}/a.safetensors model.* --structure-only", "export latest -o {out}/a.safetensors"],
               ["export latest -o {out}/a.npz --include model.*"], ["export best:loss -o {out}/a --format raw"]],
    "history": [["history"], ["history loss validation/loss"], ["history accuracy"],
                ["history --plot loss"]],
    "import": [["export latest -o {out}/a.safetensors", "import {out}/a.safetensors --step 100", "ls"]],
    "journal": [["journal --step 99"], ["journal --from 1000"]],
    "ls": [["ls"], ["ls --all"], ["ls --last 2 --sort metric:loss"], ["ls --follow"]],
    "pin": [["pin 2 --note paper", "ls", "prune --keep-latest 1", "unpin 2", "unpin 2"], ["pin 99"]],
    "prune": [["prune --keep-latest 1"], ["prune --keep-best validation/loss --apply", "ls --all"], ["prune"]],
    "repair": [["repair"], ["repair --apply"], [DAMAGE, "repair", "repair --apply", "verify"]],
    "report": [["report -o {out}/a.html"]],
    "show": [["show latest"], ["show best:accuracy"], ["show 3"], ["tag 2 paper", "show tag:paper"]],
    "stats": [["stats"]],
    "tag": [["tag best:loss paper", "ls", "tag 0 paper", "tag 0 paper --move", "diff tag:paper latest --structure-only",
             "untag paper", "ls", "verify tag:paper"], ["tag 2 a*b"], ["untag paper"]],
    "tensors": [["tensors latest"], ["tensors latest --tree"], ["tensors latest model.head.* --stats"],
                ["tensors 2 nothing*"], ["tensors latest model.* --sort size"]],
    "trace": [["trace latest -o {out}/a.json"]],
    "verify": [["verify"], ["verify 2 --read-data=50% --seed 7"], [DAMAGE, "verify", "verify 4"]],
}

UNITS = r"(?:[KMGTPE]i?B|B|ns|us|ms|s|min|h|d|%)"
NUMBER = r"[+-]?[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?"
VARYING = [
    (re.compile(r"\b[0-9a-f]{32}\b"), "<id>"),
    (re.compile(r"\b0x[0-9a-f]{16}\b"), "<checksum>"),
    (re.compile(r"\b[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z"), "<time>"),
    (re.compile(rf"(?<![\w.])(?:under )?{NUMBER} ?{UNITS}(?!\w)"), "<quantity>"),
    (re.compile(r"(?<![\w.])(?:under )?[+-]?[0-9]+(?:\.[0-9]+(?:e[+-]?[0-9]+)?|e[+-]?[0-9]+)(?![\w.])"), "<fraction>"),
    (re.compile(r"\b[0-9]+ (bytes|events)\b"), r"<count> \1"),
    (re.compile(r"(?<=\S)  +"), " "),
    (re.compile(r"--+"), "--"),
    (re.compile(r" +$", re.MULTILINE), ""),
    # What a save waited for, and what the machine gave it.
    (re.compile(r"^( +[a-z ]+ [0-9]+(?: <quantity>(?:/s)?| -){6}(?: waits)?\n)+", re.MULTILINE), "  <phases>\n"),
    (re.compile(r"^ +(?:allocate|io_reason|nice|priority) .*\n", re.MULTILINE), ""),
    (re.compile(r"^( +)(direct_io|io|io_registered|library_version|staging_memory|vectors) .+$", re.MULTILINE),
     r"\1\2 <machine>"),
]


# Of a plot: rows and the axis, as wide as their labels leave room; and the line of marks, where there is one.
VARYING.append((re.compile(r"^(?: *\S* [│┤].*\n)+ +└[─┬]+\n *(step .*\n)(?: +([*!x ]+\n))?", re.MULTILINE),
                lambda found: "  <curve>\n  " + found[1] + ("  " + found[2] if found[2] else "")))

# What doctor says of a machine on which a store can be: no two have the same, and the advice goes with it.
MACHINE = [
    (re.compile(r"^(\w[\w ]*?) +(?:ok|slow|risk) .*\n(?:  .*\n)*", re.MULTILINE), r"\1 <verdict> <found>\n"),
    (re.compile(r"^a store works here.*$", re.MULTILINE), "a store works here <how>"),
]


def without_the_machine(text):
    for pattern, words in MACHINE:
        text = pattern.sub(words, text)
    return text


def without_what_varies(text):
    for pattern, word in VARYING:
        text = pattern.sub(word, text)
    return text


class Golden(unittest.TestCase):
    flags = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tidemark-golden-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = os.path.realpath(folder.name)
        cls.store = os.path.join(cls.folder, "store")
        # By a bare name, for the step's own data say how it was called.
        subprocess.run([os.path.basename(cls.flags.trainer), "--store", "store", *TRAINER_FLAGS], check=True,
                       executable=os.path.abspath(cls.flags.trainer), cwd=cls.folder)

    def change_a_byte(self, store):
        """The first one behind the header, which is a chunk's."""
        folder, = [name for name in os.listdir(os.path.join(store, "steps")) if name.startswith("0000000004-")]
        with open(os.path.join(store, "steps", folder, "shard-00000-of-00001.tmk"), "r+b") as shard:
            shard.seek(4096)
            byte = shard.read(1)[0]
            shard.seek(4096)
            shard.write(bytes([byte ^ 0x10]))

    def run_tool(self, store, words):
        """(standard output, standard error, exit code). What goes on by itself gets a Ctrl-C once it has begun."""
        with subprocess.Popen([self.flags.checkpoint_inspect, "--store", store, *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            begun = ""
            if "--follow" in words:
                begun = process.stderr.readline()
                process.send_signal(signal.SIGINT)
            printed, complained = process.communicate()
            return printed, begun + complained, process.returncode

    def print_session(self, commands):
        """What a person sees who gives these commands one after another. A line of standard error begins with '! '."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            store = shutil.copytree(self.store, os.path.join(scratch, "store"))
            out = os.path.join(scratch, "out")
            os.mkdir(out)
            text = ""
            for command in commands:
                if command == DAMAGE:
                    self.change_a_byte(store)
                    text += DAMAGE + "\n\n"
                    continue
                printed, complained, code = self.run_tool(store, command.format(store=store, out=out).split())
                if command.startswith("doctor "):
                    printed = without_the_machine(printed)
                text += f"$ checkpoint-inspect {command}\n{printed}"
                text += "".join(f"! {line}\n" for line in complained.splitlines())
                text += f"(exit {code})\n\n"
            return without_what_varies(text.replace(out, "{out}").replace(store, "{store}"))

    def test_prints_what_the_golden_text_says(self):
        for command, sessions in RUNS.items():
            path = os.path.join(self.flags.golden, command + ".txt")
            with concurrent.futures.ThreadPoolExecutor(max_workers=4) as threads:
                printed = "".join(threads.map(self.print_session, sessions))
            if self.flags.update:
                with open(path, "w", encoding="utf-8") as file:
                    file.write(printed)
                continue
            with self.subTest(command), open(path, encoding="utf-8") as file:
                self.maxDiff = None
                self.assertMultiLineEqual(file.read(), printed)

    def test_every_command_about_a_store_has_a_golden_text(self):
        text = subprocess.run([self.flags.checkpoint_inspect, "--help"], stdout=subprocess.PIPE, text=True,
                              check=True).stdout.split("\n\n\n")[0]
        commands = set(re.findall(r"^  ([a-z][a-z-]*)\b", text, re.MULTILINE))
        shown = {line.split()[0] for sessions in RUNS.values() for session in sessions for line in session} - {"#"}
        # These two print what they are given by the parser, which has tests of its own.
        self.assertEqual(commands - shown, {"completions", "man-page"})
        self.assertEqual(set(os.listdir(self.flags.golden)), {command + ".txt" for command in RUNS})

    def test_only_what_varies_is_replaced(self):
        self.assertEqual(without_what_varies("step 11  committed 240.0 KiB, ratio 1.09, 5e-05, 3 steps, [96, 32]"),
                         "step 11 committed <quantity>, ratio <fraction>, <fraction>, 3 steps, [96, 32]")
        found = ("io_uring    slow     refused (EPERM)\n  threads replace it\nlocks       missing  none\n  take another\n"
                 "open files  ok       at most 64\na store works here, at a risk\n")
        self.assertEqual(without_the_machine(found),
                         "io_uring <verdict> <found>\nlocks       missing  none\n  take another\n"
                         "open files <verdict> <found>\na store works here <how>\n")
        self.assertEqual(without_what_varies("loss\n 4.2 ┤⠉⠒\n     │  ⠉⠒\n   4 ┤    ⠉\n"
                                             "     └┬─┬─┬\nstep  0 2 4\n       *\n  * best\n"),
                         "loss\n  <curve>\n  step 0 2 4\n  *\n  * best\n")
        self.assertEqual(without_what_varies("expected 0x0123456789abcdef, found 0x1"), "expected <checksum>, found 0x1")
        self.assertEqual(without_what_varies("0 s 1 min 5 s 12 % under 0.01 % under 0.01 model.0.weight v1.2"),
                         "<quantity> <quantity> <quantity> <quantity> <quantity> <fraction> model.0.weight v1.2")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for flag in ("checkpoint_inspect", "trainer", "golden"):
        parser.add_argument(flag)
    parser.add_argument("--update", action="store_true")
    Golden.flags, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
