#!/usr/bin/env python3
"""Which module of the Python package may import which. All arrows point down, those inside of functions too.

  python_layering_test.py ROOT [unittest arguments]
"""

import ast
import os
import sys
import unittest

import source_tree

PACKAGE = "python/tidemark/"
# From the bottom to the top. A room imports itself, the rooms below it, and BASE; a module of BASE imports BASE alone. All
# other modules and folders, the integrations among them, may import anything.
ROOMS = ["_state", "_checkpointer", "_store", "_preemption"]
BASE = ["errors", "_native", "_arguments", "_choices", "_messages"]


def imported(path, text):
    """(line, dotted name below the package) of each module of the package that this one imports."""
    package = path[len(PACKAGE):].split("/")[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.level > 0:
            base = package[:len(package) - (node.level - 1)] + (node.module.split(".") if node.module else [])
            for name in node.names:
                yield node.lineno, ".".join([*base, name.name])
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "tidemark":
            for name in node.names:
                yield node.lineno, ".".join([*node.module.split(".")[1:], name.name])
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.name.split(".")[0] == "tidemark":
                    yield node.lineno, name.name[len("tidemark."):]


def may_import(room, name):
    top = name.split(".")[0]
    if room in ROOMS:
        return top in BASE or top in ROOMS[:ROOMS.index(room) + 1]
    return room not in BASE or top in BASE


def violations(root):
    found = []
    for path in source_tree.files(root, ".py"):
        if not path.startswith(PACKAGE):
            continue
        room = path[len(PACKAGE):].split("/")[0].removesuffix(".py")
        for line, name in imported(path, source_tree.read(root, path)):
            if not may_import(room, name):
                found.append(f"{path}:{line}: imports {name or 'the package'}, an arrow up")
    return found


class PythonLayering(unittest.TestCase):
    root = None

    def test_every_import_of_the_package_points_down(self):
        for room in ROOMS:
            self.assertTrue(os.path.isdir(os.path.join(self.root, PACKAGE, room)), f"{self.root} has no {room}")
        self.assertEqual(violations(self.root), [])

    def assert_found(self, path, line, count):
        with source_tree.MadeUpTree({PACKAGE + path: f"import os\n{line}\n"}) as root:
            found = violations(root)
            self.assertEqual(len(found), count, f"{path}: {line}")
            self.assertTrue(all(one.startswith(f"{PACKAGE}{path}:2: ") for one in found), found)

    def test_arrows_down_are_allowed(self):
        self.assert_found("_store/reader.py", "from .._state import arrays, codec", 0)
        self.assert_found("_store/reader.py", "from .._state.tree import Tree", 0)
        self.assert_found("_checkpointer/futures.py", "from .observer import logger", 0)
        self.assert_found("_state/arrays.py", "from ..errors import Error", 0)
        self.assert_found("_state/arrays.py", "from .. import _native", 0)
        self.assert_found("keras/_variables.py", "from ..jax import made", 0)
        self.assert_found("orbax/_manager.py", "from .._evaluation import Evaluation", 0)

    def test_arrows_up_are_refused(self):
        self.assert_found("_state/arrays.py", "from .._checkpointer.futures import Future", 1)
        self.assert_found("_state/arrays.py", "from .. import jax, errors", 1)
        self.assert_found("_state/arrays.py", "def f():  from .. import jax", 1)
        self.assert_found("_checkpointer/ranks.py", "import tidemark._store.reader", 1)
        self.assert_found("_store/reader.py", "from tidemark import Checkpointer", 1)
        self.assert_found("_store/reader.py", "from tidemark import lightning", 1)
        self.assert_found("_arguments.py", "from ._state.tree import Tree", 1)
        self.assert_found("errors.py", "from . import keras", 1)


if __name__ == "__main__":
    PythonLayering.root = sys.argv.pop(1)
    unittest.main()
