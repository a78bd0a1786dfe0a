"""Runs of examples/python in processes of their own, for tests in all folders: pyproject.toml puts this one on the path."""

import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples" / "python"


def start(example, folder, name, *options, python=sys.executable, stderr=subprocess.STDOUT, env=None):
    """The process of a run whose store is `folder`/`name`, and its log of losses beside that."""
    return subprocess.Popen([str(python), str(EXAMPLES / example), "--store", str(folder / name), "--loss-log",
                             str(folder / f"{name}.losses"), *options], stdout=subprocess.PIPE, stderr=stderr, text=True,
                            env=env)


def losses(folder, name):
    """[(step, loss as text)] of all runs of that name so far, in the order in which they were trained."""
    path = folder / f"{name}.losses"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    # The last line of a killed run may be cut.
    entries = [line.split() for line in lines if line.endswith("\n")]
    return [(int(step), loss) for step, loss in entries]
