"""The types of the package, and those of a program that uses it, pass mypy --strict."""

import os
import pathlib
import subprocess
import sys

import pytest
import tidemark

PACKAGE = pathlib.Path(tidemark.__file__).parent
PROGRAM = pathlib.Path(__file__).parent / "typed_program.py"


def mypy(folder, *arguments):
    # Frameworks are Any: PyTorch's own types take a minute to read, and most of the others are not here.
    (folder / "mypy.ini").write_text("[mypy]\nstrict = True\nignore_missing_imports = True\n"
                                     "disallow_subclassing_any = False\n[mypy-torch.*]\nfollow_imports = skip\n"
                                     "follow_imports_for_stubs = True\n[mypy-ml_dtypes.*]\nfollow_imports = skip\n")
    return subprocess.run([sys.executable, "-m", "mypy", "--config-file", str(folder / "mypy.ini"), "--cache-dir",
                           str(folder / "cache"), *map(str, arguments)], capture_output=True, text=True, timeout=900,
                          cwd=folder, env={**os.environ, "MYPYPATH": str(PACKAGE.parent)})


@pytest.mark.parametrize("path", [PACKAGE, PROGRAM])
def test_strict_types_pass(tmp_path, path):
    result = mypy(tmp_path, path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Success" in result.stdout


@pytest.mark.parametrize("line,error", [
    ('tidemark.Checkpointer("store", save_interval_step=3)', "save_interval_step"),
    ('tidemark.Checkpointer("store").save("1", {})', "arg-type"),
    ('tidemark.Checkpointer("store").latest_step().steps', "attr-defined"),
    ('tidemark.follow("store", len)', "call-overload"),
])
def test_a_wrong_program_does_not_pass(tmp_path, line, error):
    (tmp_path / "wrong.py").write_text(f"import tidemark\n\n{line}\n")
    result = mypy(tmp_path, "wrong.py")
    assert result.returncode == 1 and error in result.stdout, result.stdout + result.stderr


def test_the_typed_program_runs(tmp_path):
    result = subprocess.run([sys.executable, "-W", "error", str(PROGRAM), str(tmp_path / "store")], capture_output=True,
                            text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "NOT_FOUND" in result.stdout and "validate" in result.stdout
