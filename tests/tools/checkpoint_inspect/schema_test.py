#!/usr/bin/env python3
"""Holds what checkpoint-inspect --json prints against the schemas in docs/schemas: each field that is printed is in
them, and each that is in them is printed.

  schema_test.py CHECKPOINT_INSPECT MAKE_TEST_STORE SCHEMAS [--trainer CHAR_LM] [unittest arguments]
"""

import argparse
import concurrent.futures
import copy
import fcntl
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

import jsonschema  # Debian: python3-jsonschema

SHARED = "definitions.json"

# The runs of a command whose documents its schema describes. A new schema is a file of the command's name and a line
# here. Each run has a copy of each of the stores, {store}, and an empty folder, {out}, to itself. {tensors} is a
# safetensors file that has some of a step's entries, changed, and lacks others.
RUNS = {
    "diff": [["diff", "2", "3"], ["diff", "2", "2", "--structure-only"], ["diff", "2", "{tensors}"],
             ["diff", "{tensors}", "{store}@2", "--structure-only", "--sort", "name"]],
    "doctor": [["doctor", "{store}", "--seconds", "0", "--bytes", "1MiB"], ["doctor", "/proc"]],
    "export": [["export", "2", "-o", "{out}/a.safetensors"],
               ["export", "2", "-o", "{out}/a", "--shard-size", "1KB", "--rename", "model=net"],
               ["export", "2", "-o", "{out}/a.npz"], ["export", "2", "-o", "{out}/a", "--format", "raw"]],
    "history": [["history"], ["history", "loss"], ["history", "loss", "validation/loss"]],
    "import": [["import", "{tensors}", "--step", "100", "--metric", "loss=nan"],
               ["import", "{tensors}", "--step", "100", "--metadata", '{{"run": "b"}}']],
    "journal": [["journal"], ["journal", "--step", "2"], ["journal", "--from", "2"]],
    "ls": [["ls"], ["ls", "--all"], ["ls", "--all", "--sort", "metric:loss", "--last", "2"]],
    "ls-follow": [["ls", "--follow"]],
    "pin": [["pin", "2"], ["pin", "latest", "--note", "for the paper"]],
    "prune": [["prune", "--keep-latest", "1"], ["prune", "--keep-best", "loss", "--apply"]],
    "repair": [["repair"], ["repair", "--apply"]],
    "report": [["report", "-o", "{out}/a.html"], ["report", "-o", "{out}/a.html", "--no-tensors"]],
    "show": [["show", "2"], ["show", "latest"]],
    "stats": [["stats"]],
    "tag": [["tag", "2", "v1"], ["tag", "latest", "paper", "--move"]],
    "tensors": [["tensors", "2"], ["tensors", "2", "--stats"], ["tensors", "2", "--tree", "--sort", "size"],
                ["tensors", "2", "--tree", "--stats"]],
    "trace": [["trace", "all", "-o", "{out}/a.json"], ["trace", "2", "--last", "1", "-o", "{out}/a.json"]],
    "unpin": [["unpin", "2"], ["unpin", "latest"]],
    "untag": [["untag", "paper"]],
    "verify": [["verify"], ["verify", "2"], ["verify", "--read-data=50%", "--seed", "7"]],
}

# What a command finds done, for it has nothing to tell of a store where nobody has done it.
BEFORE = {"untag": ["tag", "latest", "paper"]}

# Commands that print a document on each line.
LINES = {"journal", "ls-follow"}

# Commands that print no document, whatever they are given.
WITHOUT_DOCUMENT = {"completions", "man-page"}

# Exit codes that come with a document: what was found, not that something could not be told.
TELLING = {0, 1, 3, 13}


def objects_of(schema):
    """Every part of the schema that describes an object with named fields."""
    if isinstance(schema, list):
        for item in schema:
            yield from objects_of(item)
    elif isinstance(schema, dict):
        # A document may have a field of that name, which is no such part.
        if schema.get("type") == "object" and "properties" in schema:
            yield schema
        for item in schema.values():
            yield from objects_of(item)


def write_safetensors(path):
    """Of a step of make_test_store: entries of other numbers, a NaN among them, one of another dtype and shape, and one
    that it does not have."""
    tensors = {
        "model.bias": ("F32", [3], struct.pack("<3f", 1, 2, float("nan"))),
        "model.weight": ("F32", [5000, 1], struct.pack("<5000f", *range(5000))),
        "model.tied": ("I64", [2], struct.pack("<2q", -(1 << 62), 1)),
        "model.new.scale": ("F64", [], struct.pack("<d", 0.5)),
    }
    header = {}
    data = b""
    for name, (dtype, shape, contents) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(contents)]}
        data += contents
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class Schema(unittest.TestCase):
    flags = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tidemark-schema-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.tensors = os.path.join(folder.name, "tensors.safetensors")
        write_safetensors(cls.tensors)
        cls.schemas = {}
        for name in sorted(os.listdir(cls.flags.schemas)):
            with open(os.path.join(cls.flags.schemas, name), encoding="utf-8") as file:
                cls.schemas[name] = json.load(file)
        cls.printed = {}
        cls.stores = {}
        for kind in ("sound", "mixed", "rebuilt"):
            cls.stores[kind] = os.path.join(folder.name, kind)
            subprocess.run([cls.flags.make_test_store, kind, cls.stores[kind]], check=True, cwd=folder.name)
        if cls.flags.trainer:
            cls.stores["trainer"] = os.path.join(folder.name, "trainer")
            subprocess.run([cls.flags.trainer, "--store", cls.stores["trainer"], "--quiet", "--validate", "--steps", "5",
                            "--save-every", "1", "--layers", "1", "--heads", "2", "--width", "32", "--context", "16",
                            "--batch", "2", "--threads", "1"], check=True)

    def validator(self, command):
        """The schema with what it refers to in it, so that nothing is looked for elsewhere."""
        schema = copy.deepcopy(self.schemas[command + ".json"])
        schema.setdefault("$defs", {})["shared"] = self.schemas[SHARED]
        return jsonschema.Draft202012Validator(schema)

    def run_tool(self, store, words):
        return subprocess.run([self.flags.checkpoint_inspect, "--store", store, "--json", *words],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def follow(self, store, words):
        """The lines for a step that is committed while it follows."""
        with subprocess.Popen([self.flags.checkpoint_inspect, "--store", store, *words], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as follower:
            try:
                while "following " + store not in (line := follower.stderr.readline()):
                    self.assertNotEqual(line, "", "it ended")
                imported = self.run_tool(store, ["import", self.tensors, "--step", "100"])
                self.assertEqual(imported.returncode, 0, imported.stderr)
                text = follower.stdout.readline()
                follower.send_signal(signal.SIGINT)
                rest, _ = follower.communicate()
                self.assertEqual(follower.returncode, 130)
                return text + rest
            finally:
                follower.kill()

    def print_run(self, command, kind, words):
        """(kind of store, run, document) for each document that it prints."""
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            store = shutil.copytree(self.stores[kind], os.path.join(scratch, "store"))
            out = os.path.join(scratch, "out")
            os.mkdir(out)
            given = [word.format(store=store, out=out, tensors=self.tensors) for word in words]
            if "--follow" in given:
                text = self.follow(store, given)
            else:
                if command in BEFORE:
                    self.run_tool(store, BEFORE[command])
                result = self.run_tool(store, given)
                text = result.stdout
                if text:
                    self.assertIn(result.returncode, TELLING, result.stderr)
        parts = text.splitlines() if command in LINES else [text] if text else []
        return [(kind, " ".join(words), json.loads(part)) for part in parts]

    def documents(self, command):
        """Those of all runs, which are made once."""
        if command not in self.printed:
            runs = [(command, kind, words) for kind in self.stores for words in RUNS[command]]
            with concurrent.futures.ThreadPoolExecutor(max_workers=8) as threads:
                printed = threads.map(lambda run: self.print_run(*run), runs)
                self.printed[command] = [document for documents in printed for document in documents]
        return copy.deepcopy(self.printed[command])

    def test_every_schema_has_runs_and_is_one(self):
        self.assertEqual(set(self.schemas), {SHARED} | {command + ".json" for command in RUNS})
        for name, schema in self.schemas.items():
            jsonschema.Draft202012Validator.check_schema(schema)
            self.assertTrue(schema["$id"].endswith("/" + name), name)

    def test_every_command_has_a_schema_or_prints_no_document(self):
        text = subprocess.run([self.flags.checkpoint_inspect, "--help"], stdout=subprocess.PIPE, text=True,
                              check=True).stdout.split("\n\n\n")[0]
        commands = set(re.findall(r"^  ([a-z][a-z-]*)\b", text, re.MULTILINE))
        self.assertIn("ls", commands)
        self.assertEqual(commands | WITHOUT_DOCUMENT,
                         {words[0] for runs in RUNS.values() for words in runs} | WITHOUT_DOCUMENT)

    def test_every_field_of_a_schema_is_required_and_no_other_is_allowed(self):
        for name, schema in self.schemas.items():
            for part in objects_of(schema):
                with self.subTest(name, fields=list(part["properties"])):
                    self.assertEqual(part["required"], list(part["properties"]))
                    self.assertIs(part["additionalProperties"], False)

    def test_every_document_is_as_its_schema_says(self):
        for command, runs in RUNS.items():
            validator = self.validator(command)
            told = {kind: set() for kind in self.stores}
            for kind, run, document in self.documents(command):
                told[kind].add(run)
                with self.subTest(run, store=kind):
                    errors = [f"{'/'.join(map(str, error.absolute_path))}: {error.message}"
                              for error in validator.iter_errors(document)]
                    self.assertEqual(errors, [])
            # Of a store that lacks what it is about, a run may have nothing to tell; a trainer's has all of it.
            with self.subTest(command):
                all_runs = {" ".join(words) for words in runs}
                self.assertEqual(set.union(*told.values()), all_runs)
                self.assertEqual(told.get("trainer", all_runs), all_runs)

    def test_a_field_that_is_new_missing_or_wrong_is_found(self):
        for command in RUNS:
            validator = self.validator(command)
            seen = set()
            for _, run, document in self.documents(command):
                # One of each kind is enough.
                if frozenset(document) in seen:
                    continue
                seen.add(frozenset(document))
                self.assertTrue(validator.is_valid(document), run)
                for field in document:
                    with self.subTest(run, field=field):
                        self.assertFalse(validator.is_valid({k: v for k, v in document.items() if k != field}))
                        self.assertFalse(validator.is_valid({**document, field: [0.5]}))
                self.assertFalse(validator.is_valid({**document, "new_field": 1}), run)
            self.assertGreater(len(seen), 0, command)

    def test_a_new_field_of_a_step_is_found(self):
        validator = self.validator("ls")
        _, _, document = self.documents("ls")[0]
        self.assertGreater(len(document["steps"]), 0)
        document["steps"][0]["new_field"] = 1
        self.assertFalse(validator.is_valid(document))

    def test_a_request_that_is_handed_over_is_as_the_schema_says(self):
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            store = shutil.copytree(self.stores["sound"], os.path.join(scratch, "store"))
            with open(os.path.join(store, "LOCK"), "a", encoding="utf-8") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                result = self.run_tool(store, ["prune", "--keep-latest", "1", "--apply", "--wait", "0"])
        self.assertEqual(result.returncode, 11, result.stderr)
        document = json.loads(result.stdout)
        self.assertEqual(document["requests"][0]["outcome"], "handed_over")
        self.validator("prune").validate(document)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for flag in ("checkpoint_inspect", "make_test_store", "schemas"):
        parser.add_argument(flag)
    parser.add_argument("--trainer")
    Schema.flags, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
