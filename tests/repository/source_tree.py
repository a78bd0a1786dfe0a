"""The project's own files, for the tests of this folder. Paths are relative to the root, with forward slashes."""

import os
import shutil
import tempfile

FOLDERS = ["include", "storage", "snapshot", "eval", "python", "tools", "examples", "tests", "fuzz", "bench"]


def files(root, *endings):
    """Paths of the files below FOLDERS whose names end in one of `endings`, sorted."""
    found = []
    for top in FOLDERS:
        for folder, subfolders, names in os.walk(os.path.join(root, top)):
            subfolders[:] = [name for name in subfolders if not name.startswith((".", "__"))]
            for name in names:
                if name.endswith(endings):
                    found.append(os.path.relpath(os.path.join(folder, name), root).replace(os.sep, "/"))
    return sorted(found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


class MadeUpTree:
    """A temporary tree with the given {path: text}, to see that a rule finds its violation."""

    def __init__(self, contents):
        self.contents = contents

    def __enter__(self):
        self.root = tempfile.mkdtemp(prefix="tidemark-tree-")
        for path, text in self.contents.items():
            full = os.path.join(self.root, path)
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "w", encoding="utf-8") as file:
                file.write(text)
        return self.root

    def __exit__(self, *exception):
        shutil.rmtree(self.root)
