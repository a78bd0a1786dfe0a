#!/usr/bin/env python3
"""Completes with the shells themselves, as far as they are installed, and has man look at the manual page.

  shell_pages_test.py CHECKPOINT_INSPECT MAKE_TEST_STORE [unittest arguments]
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

COMMANDS = {"ls", "show", "history", "verify", "repair", "doctor"}
STEPS = {"latest", "latest-healthy", "1", "2", "3", "best:loss"}
TAGGED = {"best:loss", "best:validation/loss", "tag:figure-3", "tag:paper"}
ENTRIES = {"model.*", "model.weight", "model.bias"}
# What a shell would run if it expanded the name, and what it would take for several words.
HOSTILE = ["$(touch expanded)", "`touch expanded`", "a; touch expanded", "a b", "it's", "new\nline"]


class ShellPages(unittest.TestCase):
    program = None
    make_test_store = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tidemark-shell-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.store = os.path.join(cls.folder, "a store")  # with a space, as directories may have
        cls.mixed = os.path.join(cls.folder, "mixed")
        subprocess.run([cls.make_test_store, "sound", cls.store], check=True, cwd=cls.folder)
        subprocess.run([cls.make_test_store, "mixed", cls.mixed], check=True, cwd=cls.folder)
        cls.pages = {}
        for name, words in {"bash": ["completions", "bash"], "zsh": ["completions", "zsh"],
                            "fish": ["completions", "fish"], "man": ["man-page"]}.items():
            cls.pages[name] = os.path.join(cls.folder, name)
            with open(cls.pages[name], "wb") as file:
                subprocess.run([cls.program, *words], check=True, stdout=file)

    def need(self, program):
        if shutil.which(program) is None:
            self.skipTest(f"{program} is not installed")

    def run_quietly(self, *command, **options):
        """Its standard output; it must succeed and complain of nothing."""
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)
        self.assertEqual((result.returncode, result.stderr), (0, ""), command)
        return result.stdout

    def bash(self, *words, environment=None):
        """What bash completes the last of these words to, the words being as bash breaks them."""
        script = 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _checkpoint_inspect "$1"; ' \
                 '((${#COMPREPLY[@]} == 0)) || printf "%s\\n" "${COMPREPLY[@]}"'
        out = self.run_quietly("bash", "--norc", "-uc", script, "bash", self.pages["bash"], self.program, *words,
                               cwd=self.folder, env={**os.environ, **(environment or {})})
        return set(out.splitlines())

    def test_bash_completes_commands(self):
        self.assertLessEqual(COMMANDS, self.bash(""))
        self.assertLessEqual({"completions", "man-page"}, self.bash(""))
        self.assertEqual(self.bash("verif"), {"verify"})
        self.assertLessEqual(COMMANDS, self.bash("--json", "--store", self.store, ""))
        self.assertEqual(self.bash("nothing-like-it"), set())

    def test_bash_completes_options_of_the_program_and_of_the_command(self):
        self.assertLessEqual({"--store", "--json", "--help"}, self.bash("--"))
        self.assertNotIn("--apply", self.bash("--"))
        self.assertEqual(self.bash("repair", "--ap"), {"--apply"})
        self.assertEqual(self.bash("ls", "--sto"), {"--store"})
        self.assertEqual(self.bash("ls", "--ap"), set())

    def test_bash_completes_steps_of_a_store_that_is_not_trusted(self):
        tried = subprocess.run([self.program, "--untrusted", "--store", self.store, "ls"],
                               stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
        if "UndefinedBehaviorSanitizer" in tried.stderr:
            self.skipTest("UBSan looks at an object by writing it to a pipe, which the sandbox does not let it have")
        self.assertEqual(self.bash("verify", "--untrusted", "--store", self.store, ""), STEPS)

    def test_bash_completes_steps_of_the_store(self):
        self.assertEqual(self.bash("--store", self.store, "show", ""), STEPS)
        self.assertEqual(self.bash("--store", "=", self.store, "show", ""), STEPS)
        self.assertEqual(self.bash("show", "", environment={"TIDEMARK_STORE": self.store}), STEPS)
        self.assertEqual(self.bash("show", "lat", environment={"TIDEMARK_STORE": self.store}),
                         {"latest", "latest-healthy"})
        self.assertLessEqual(TAGGED, self.bash("--store", self.mixed, "show", ""))
        # There is one step, and the place for it is taken.
        self.assertEqual(self.bash("--store", self.store, "show", "1", ""), set())
        # Where there is no store there are no numbers, and no noise.
        self.assertEqual(self.bash("--store", "/nowhere", "show", ""), {"latest", "latest-healthy"})

    def test_bash_completes_what_it_has_broken_at_a_colon(self):
        self.assertEqual(self.bash("--store", self.mixed, "show", "best", ":"), {"loss", "validation/loss"})
        self.assertEqual(self.bash("--store", self.mixed, "show", "best", ":", "val"), {"validation/loss"})
        self.assertEqual(self.bash("--store", self.mixed, "show", "tag", ":", "p"), {"paper"})
        # These three are one argument, so the next is the second one.
        self.assertEqual(self.bash("--store", self.mixed, "show", "best", ":", "loss", ""), set())
        self.assertIn("latest", self.bash("--store", self.mixed, "diff", "best", ":", "loss", ""))

    def test_bash_completes_metrics(self):
        metrics = {"loss", "validation/loss"}
        self.assertEqual(self.bash("--store", self.mixed, "history", ""), metrics)
        self.assertEqual(self.bash("--store", self.mixed, "history", "loss", "v"), {"validation/loss"})
        self.assertEqual(self.bash("--store", self.mixed, "prune", "--keep-best", ""), metrics)
        self.assertEqual(self.bash("--store", self.mixed, "report", "--metric", "lo"), {"loss"})
        self.assertEqual(self.bash("--store", "/nowhere", "history", ""), set())

    def test_bash_completes_entries(self):
        escaped = {name.replace("*", "\\*") for name in ENTRIES}
        self.assertLessEqual(escaped, self.bash("--store", self.store, "tensors", "latest", ""))
        self.assertLessEqual(escaped, self.bash("--store", self.store, "diff", "1", "latest", "mod"))
        self.assertEqual(self.bash("--store", self.store, "export", "3", "--exclude", "model.b"), {"model.bias"})

    def hostile_store(self):
        """A store whose metrics and entries have hostile names."""
        store = os.path.join(self.folder, "hostile")
        if not os.path.exists(store):
            header = json.dumps({name: {"dtype": "U8", "shape": [1], "data_offsets": [i, i + 1]}
                                 for i, name in enumerate(HOSTILE)}).encode()
            file = os.path.join(self.folder, "hostile.safetensors")
            with open(file, "wb") as out:
                out.write(struct.pack("<Q", len(header)) + header + bytes(len(HOSTILE)))
            metrics = [word for name in HOSTILE for word in ("--metric", name + "=1")]
            self.run_quietly(self.program, "--store", store, "import", file, "--step", "0", "--create", *metrics)
        return store

    def test_no_shell_expands_a_name(self):
        store = self.hostile_store()
        named = ["\\$\\(touch\\ expanded\\)", "\\`touch\\ expanded\\`", "a\\;\\ touch\\ expanded", "a\\ b", "it\\'s"]
        self.assertEqual(self.bash("--store", store, "history", ""), set(named))
        self.assertEqual(self.bash("--store", store, "tensors", "0", ""), set(named))
        # No word in these names tells which end of the metric is the best.
        self.assertLessEqual({f"best:{name}:{end}" for name in named for end in ("lowest", "highest")},
                             self.bash("--store", store, "show", ""))
        if shutil.which("zsh") is not None:
            self.zsh("checkpoint-inspect --store hostile history it", "*it?'s*")
            self.zsh("checkpoint-inspect --store hostile history ", "*touch*expanded*")
        if shutil.which("fish") is not None:
            self.assertLessEqual({"$(touch expanded)", "a b"}, self.fish(f"checkpoint-inspect --store {store} history "))
        self.assertFalse(os.path.exists(os.path.join(self.folder, "expanded")))

    def test_bash_completes_directories(self):
        self.assertEqual(self.bash("--store", "a"), {"a store"})
        self.assertLessEqual({"a store", "mixed"}, self.bash("--store", "="))
        self.assertEqual(self.bash("doctor", "a"), {"a store"})
        self.assertEqual(self.bash("doctor", "--bytes", ""), set())

    def test_zsh_takes_its_script(self):
        self.need("zsh")
        self.run_quietly("zsh", "-n", self.pages["zsh"])
        registered = self.run_quietly("zsh", "-fc", 'autoload -Uz compinit; compinit -D -u; source "$1"; '
                                      'print ${_comps[checkpoint-inspect]}', "zsh", self.pages["zsh"])
        self.assertEqual(registered, "_checkpoint-inspect\n")

    def zsh(self, line, expected):
        """Fails unless zsh, at a terminal, shows the pattern `expected` when it completes the line."""
        script = """
            zmodload zsh/zpty
            zpty shell zsh -fi
            # So that what is echoed is not taken for what is shown.
            zpty -w shell "PS1=REA'DY>'; TERM=dumb; fpath=($1 \\$fpath); path=($2 \\$path); cd $3; autoload -Uz compinit"
            zpty -w shell "compinit -D -u; PS1=REA'LLY>'"
            zpty -r shell text '*REALLY>*'
            zpty -w -n shell "$4"$'\\t'
            zpty -r shell text "$5" && print found
            zpty -d shell"""
        functions = os.path.join(self.folder, "functions")
        os.makedirs(functions, exist_ok=True)
        shutil.copy(self.pages["zsh"], os.path.join(functions, "_checkpoint-inspect"))
        shutil.copytree(self.store, os.path.join(self.folder, "store"), dirs_exist_ok=True)
        result = subprocess.run(["zsh", "-fc", script, "zsh", functions, os.path.dirname(self.program), self.folder, line,
                                 expected], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=100)
        self.assertEqual(result.stdout, "found\n", result.stderr)

    def test_zsh_completes(self):
        self.need("zsh")
        self.zsh("checkpoint-inspect ", "*history*repair*show*verify*")
        self.zsh("checkpoint-inspect repair --a", "*pply*")
        self.zsh("checkpoint-inspect --store store show ", "*1*best:loss*latest-healthy*")
        self.zsh("checkpoint-inspect verify --store store ", "*1*best:loss*latest-healthy*")
        self.zsh("checkpoint-inspect --store mixed show best:v", "*best:validation/loss*")
        self.zsh("checkpoint-inspect --store mixed history v", "*validation/loss*")
        self.zsh("checkpoint-inspect --store store tensors latest model.", "*model.bias*model.weight*")

    def fish(self, line):
        """What fish completes the last word of the line to."""
        out = self.run_quietly(
            "fish", "--no-config", "-c", "source $argv[1]; complete -C $argv[2]", self.pages["fish"], line,
            cwd=self.folder, env={**os.environ, "PATH": os.path.dirname(self.program) + ":" + os.environ["PATH"],
                                  "HOME": self.folder})
        return {text.split("\t")[0] for text in out.splitlines()}

    def test_fish_completes(self):
        self.need("fish")
        self.run_quietly("fish", "-n", self.pages["fish"])
        complete = self.fish
        store = self.store.replace(" ", "\\ ")
        self.assertLessEqual(COMMANDS, complete("checkpoint-inspect "))
        self.assertNotIn("show", complete("checkpoint-inspect ls "))
        self.assertEqual(complete("checkpoint-inspect repair --ap"), {"--apply"})
        self.assertEqual(complete("checkpoint-inspect ls --ap"), set())
        self.assertEqual(complete(f"checkpoint-inspect --store {store} show "), STEPS)
        self.assertEqual(complete(f"checkpoint-inspect show --store={store} "), STEPS)
        self.assertEqual(complete("checkpoint-inspect --store mixed show best:v"), {"best:validation/loss"})
        self.assertEqual(complete("checkpoint-inspect --store mixed history "), {"loss", "validation/loss"})
        self.assertLessEqual(ENTRIES, complete(f"checkpoint-inspect --store {store} tensors latest "))

    def test_man_takes_the_page(self):
        self.need("man")
        environment = {**os.environ, "MANWIDTH": "100", "LC_ALL": "C.UTF-8"}
        text = self.run_quietly("man", "--warnings", "--local-file", self.pages["man"], env=environment)
        for words in ("checkpoint-inspect - Lists", "SYNOPSIS", "--untrusted", "COMMANDS: LOOK", "best:METRIC",
                      "LOGICAL   bytes of the tensors", "BLOCKED   how long the training waited"):
            self.assertIn(words, text)

    def test_groff_takes_the_page(self):
        self.need("groff")
        self.run_quietly("groff", "-man", "-ww", "-z", self.pages["man"])
        with open(self.pages["man"], "rb") as file:
            self.assertTrue(file.read().isascii())

    def test_a_shell_that_is_not_known_is_refused(self):
        result = subprocess.run([self.program, "completions", "csh"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertEqual((result.returncode, result.stdout), (2, b""))


if __name__ == "__main__":
    ShellPages.program = sys.argv.pop(1)
    ShellPages.make_test_store = sys.argv.pop(1)
    unittest.main()
