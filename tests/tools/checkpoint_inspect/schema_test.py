#!/usr/bin/env python3
"""Holds what checkpoint-inspect --json prints against the schemas in docs/schemas: each field that is printed is in
them, and each that is in them is printed.

  schema_test.py CHECKPOINT_INSPECT MAKE_TEST_STORE SCHEMAS [--trainer CHAR_LM] [unittest arguments]
"""

import argparse
import copy
import json
import os
import subprocess
import sys
import tempfile
import unittest

import jsonschema  # Debian: python3-jsonschema

SHARED = "definitions.json"

# The runs of a command whose documents its schema describes. A new schema is a file of the command's name and a line
# here. {store} stands for each of the stores in turn.
RUNS = {
    "doctor": [["doctor", "{store}", "--seconds", "0", "--bytes", "1MiB"], ["doctor", "/proc"]],
    "history": [["history"], ["history", "loss"]],
    "ls": [["ls"], ["ls", "--all"]],
    "repair": [["repair"]],
    "show": [["show", "2"], ["show", "latest"]],
    "verify": [["verify"], ["verify", "2"]],
}

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


class Schema(unittest.TestCase):
    flags = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="tidemark-schema-")
        cls.addClassCleanup(folder.cleanup)
        cls.schemas = {}
        for name in sorted(os.listdir(cls.flags.schemas)):
            with open(os.path.join(cls.flags.schemas, name), encoding="utf-8") as file:
                cls.schemas[name] = json.load(file)
        cls.stores = {}
        for kind in ("sound", "mixed", "rebuilt"):
            cls.stores[kind] = os.path.join(folder.name, kind)
            subprocess.run([cls.flags.make_test_store, kind, cls.stores[kind]], check=True, cwd=folder.name)
        if cls.flags.trainer:
            cls.stores["trainer"] = os.path.join(folder.name, "trainer")
            subprocess.run([cls.flags.trainer, "--store", cls.stores["trainer"], "--quiet", "--steps", "5",
                            "--save-every", "2", "--layers", "1", "--heads", "2", "--width", "32", "--context", "16",
                            "--batch", "2", "--threads", "1"], check=True)

    def validator(self, command):
        """The schema with what it refers to in it, so that nothing is looked for elsewhere."""
        schema = copy.deepcopy(self.schemas[command + ".json"])
        schema.setdefault("$defs", {})["shared"] = self.schemas[SHARED]
        return jsonschema.Draft202012Validator(schema)

    def documents(self, command):
        for kind, store in self.stores.items():
            for words in RUNS[command]:
                words = [word.format(store=store) for word in words]
                result = subprocess.run([self.flags.checkpoint_inspect, "--store", store, "--json", *words],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                if result.stdout:
                    self.assertIn(result.returncode, TELLING, result.stderr)
                    yield f"{kind}: {' '.join(words)}", json.loads(result.stdout)

    def test_every_schema_has_runs_and_is_one(self):
        self.assertEqual(set(self.schemas), {SHARED} | {command + ".json" for command in RUNS})
        for name, schema in self.schemas.items():
            jsonschema.Draft202012Validator.check_schema(schema)
            self.assertTrue(schema["$id"].endswith("/" + name), name)

    def test_every_field_of_a_schema_is_required_and_no_other_is_allowed(self):
        for name, schema in self.schemas.items():
            for part in objects_of(schema):
                with self.subTest(name, fields=list(part["properties"])):
                    self.assertEqual(part["required"], list(part["properties"]))
                    self.assertIs(part["additionalProperties"], False)

    def test_every_document_is_as_its_schema_says(self):
        for command in RUNS:
            validator = self.validator(command)
            count = 0
            for run, document in self.documents(command):
                count += 1
                with self.subTest(run):
                    errors = [f"{'/'.join(map(str, error.absolute_path))}: {error.message}"
                              for error in validator.iter_errors(document)]
                    self.assertEqual(errors, [])
            # At most one run of a command may have nothing to say, and only in the store that lacks it.
            self.assertGreaterEqual(count, len(self.stores), command)

    def test_a_field_that_is_new_missing_or_wrong_is_found(self):
        for command in RUNS:
            validator = self.validator(command)
            _, document = next(self.documents(command))
            self.assertTrue(validator.is_valid(document), command)
            for field in document:
                with self.subTest(command, field=field):
                    self.assertFalse(validator.is_valid({k: v for k, v in document.items() if k != field}))
                    self.assertFalse(validator.is_valid({**document, field: 0.5}))
            self.assertFalse(validator.is_valid({**document, "new_field": 1}), command)

    def test_a_new_field_of_a_step_is_found(self):
        validator = self.validator("ls")
        _, document = next(self.documents("ls"))
        self.assertGreater(len(document["steps"]), 0)
        document["steps"][0]["new_field"] = 1
        self.assertFalse(validator.is_valid(document))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for flag in ("checkpoint_inspect", "make_test_store", "schemas"):
        parser.add_argument(flag)
    parser.add_argument("--trainer")
    Schema.flags, rest = parser.parse_known_args()
    unittest.main(argv=sys.argv[:1] + rest)
