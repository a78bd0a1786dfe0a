"""Runs of mypy --strict, for tests of types."""

import os
import pathlib
import re
import subprocess
import sys

import tidemark

PACKAGE = pathlib.Path(tidemark.__file__).parent


def mypy(folder, settings, *arguments):
    """The run, which has ended. `settings`: lines of mypy.ini besides strict. `folder` keeps what mypy has read of libraries for
    other runs with the same settings."""
    (folder / "mypy.ini").write_text(f"[mypy]\nstrict = True\n{settings}")
    return subprocess.run([sys.executable, "-m", "mypy", "--config-file", str(folder / "mypy.ini"), "--cache-dir",
                           str(folder / "cache"), *map(str, arguments)], capture_output=True, text=True, timeout=900,
                          cwd=folder, env={**os.environ, "MYPYPATH": str(PACKAGE.parent)})


def check(folder, settings, *arguments):
    """It finds no error."""
    result = mypy(folder, settings, *arguments)
    assert result.returncode == 0 and "Success" in result.stdout, result.stdout + result.stderr


def check_errors(folder, settings, head, expected):
    """It finds an error in each line of `expected`, {line of a program: its kind}, and no other. `head`: lines before them."""
    (folder / "wrong.py").write_text("\n".join([*head, *expected, ""]))
    result = mypy(folder, settings, "wrong.py")
    found = {int(number): kind for number, kind in re.findall(r"^wrong\.py:(\d+): error: .* \[([a-z-]+)\]$", result.stdout, re.M)}
    lines = dict(enumerate(expected.items(), len(head) + 1))
    assert found == {number: kind for number, (_, kind) in lines.items()}, result.stdout + result.stderr


def run(program, folder):
    """The program, which is given the path of a store, ends well."""
    result = subprocess.run([sys.executable, program, folder / "store"], capture_output=True, text=True, timeout=300, cwd=folder)
    assert result.returncode == 0, result.stdout + result.stderr
