"""The types of the package, and those of a program that uses it, pass mypy --strict."""

import pathlib
import subprocess
import sys

import pytest
from type_checker import PACKAGE, mypy

PROGRAM = pathlib.Path(__file__).parent / "typed_program.py"


# Frameworks are Any here: most of them are not installed. The tests of the integrations have them with their types.
SETTINGS = """ignore_missing_imports = True
disallow_subclassing_any = False
[mypy-torch.*]
follow_imports = skip
follow_imports_for_stubs = True
[mypy-ml_dtypes.*]
follow_imports = skip
[mypy-tidemark.*]
ignore_missing_imports = False
"""


@pytest.mark.parametrize("path", [PACKAGE, PROGRAM])
def test_strict_types_pass(tmp_path, path):
    result = mypy(tmp_path, SETTINGS, path)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Success" in result.stdout


@pytest.mark.parametrize("line,error", [
    ('tidemark.Checkpointer("store", save_interval_step=3)', "save_interval_step"),
    ('tidemark.Checkpointer("store").save("1", {})', "arg-type"),
    ('tidemark.Checkpointer("store").latest_step().steps', "attr-defined"),
    ('tidemark.follow("store", len)', "call-overload"),
    ('tidemark.Checkpointer("store").save(1, {}).committed.result().bit', "attr-defined"),
    ("async def f(save: tidemark.SaveHandle) -> str:\n    return await save.committed", "return-value"),
])
def test_a_wrong_program_does_not_pass(tmp_path, line, error):
    (tmp_path / "wrong.py").write_text(f"import tidemark\n\n{line}\n")
    result = mypy(tmp_path, SETTINGS, "wrong.py")
    assert result.returncode == 1 and error in result.stdout, result.stdout + result.stderr


def test_the_typed_program_runs(tmp_path):
    result = subprocess.run([sys.executable, "-W", "error", str(PROGRAM), str(tmp_path / "store")], capture_output=True,
                            text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "NOT_FOUND" in result.stdout and "validate" in result.stdout
