#!/usr/bin/env python3
"""Holds the help of every command to the same: what it does, its arguments, an example, and a place in the manual.

  help_test.py CHECKPOINT_INSPECT MANUAL [unittest arguments]
"""

import re
import subprocess
import sys
import unittest


class Help(unittest.TestCase):
    program = None
    manual = None

    def help(self, *words):
        result = subprocess.run([self.program, *words, "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def commands_in(self, *words):
        """Those that the help of a command lists under its headings."""
        # The footer, which begins behind two empty lines, has examples that look alike.
        text = self.help(*words).split("\n\n\n")[0]
        for heading, lines in re.findall(r"^([A-Z].*):\n((?:  .*\n?)+)", text, re.MULTILINE):
            if heading not in ("Options", "Positionals"):
                for name in re.findall(r"^  ([a-z][a-z-]*)\b", lines, re.MULTILINE):
                    yield (*words, name)
                    yield from self.commands_in(*words, name)

    def commands(self):
        found = list(self.commands_in())
        self.assertGreaterEqual(len(found), 6)
        self.assertIn(("ls",), found)
        self.assertIn(("completions",), found)
        return found

    def test_each_begins_with_one_line_that_says_what_the_command_does(self):
        for words in self.commands():
            with self.subTest(words):
                first, second = self.help(*words).split("\n")[:2]
                self.assertRegex(first, r"^[A-Z][a-z]+ ")
                self.assertFalse(first.endswith("."))
                self.assertLessEqual(len(first), 100)
                self.assertRegex(second, r"^Usage: checkpoint-inspect " + " ".join(words))

    def test_each_describes_every_option_and_argument(self):
        for words in [()] + self.commands():
            for name, description in re.findall(r"^  ((?:-|[A-Z]+\b)\S*.*?)(?: {2,}|\n {20,})(\S.*)?$",
                                                self.help(*words).split("\n\n\n")[0], re.MULTILINE):
                with self.subTest(words, name=name):
                    self.assertRegex(description, r"\w{2,}")

    def test_each_has_an_example_of_itself(self):
        for words in self.commands():
            with self.subTest(words):
                examples = self.help(*words).split("Example", 1)
                self.assertEqual(len(examples), 2, "no example")
                self.assertRegex(examples[1], r"\bcheckpoint-inspect\b.*\b" + " ".join(words) + r"\b")

    def test_each_has_a_row_in_the_manual(self):
        with open(self.manual, encoding="utf-8") as file:
            rows = [line.split("|")[1] for line in file if line.startswith("| `")]
        for words in self.commands():
            with self.subTest(words):
                # `pin`, `unpin` may share one.
                self.assertTrue(any(re.search("`" + " ".join(words) + r"[ `]", row) for row in rows))

    def test_the_first_one_answers_what_a_person_asks_first(self):
        with open(self.manual, encoding="utf-8") as file:
            asked = re.findall(r"^\| ([a-z][^|`]+?)\?? \| `(.+)` \|$", file.read().split("## ")[0], re.MULTILINE)
        self.assertEqual([command.split()[0] for _, command in asked], ["show", "diff", "verify", "stats", "export"])
        for question, command in asked + [("the same, drawn", "history METRIC --plot"),
                                          ("all of this on one page", "report -o page.html"),
                                          ("keep a step", "pin 1000 --note 'for the paper'")]:
            with self.subTest(question):
                self.assertRegex(self.help(), f"(?m)^  checkpoint-inspect {re.escape(command)} .*{question}")


if __name__ == "__main__":
    Help.program = sys.argv.pop(1)
    Help.manual = sys.argv.pop(1)
    unittest.main()
