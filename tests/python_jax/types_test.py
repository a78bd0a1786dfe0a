"""Programs that use the integrations of JAX, Orbax and Keras pass mypy --strict with the types of JAX."""

import pathlib

import pytest
from type_checker import PACKAGE, check, check_errors, run

PROGRAMS = sorted((pathlib.Path(__file__).parent / "typed").glob("*.py"))
# What docs/python-jax.md tells a user to set.
SETTINGS = """[mypy-keras.*]
ignore_missing_imports = True
"""
MODULES = [PACKAGE / "jax", PACKAGE / "orbax", PACKAGE / "keras", PACKAGE / "_checkpointer" / "ranks.py"]
# PyTorch is not in this environment, and Keras has no types.
OF_PACKAGE = (SETTINGS + "[mypy-torch.*]\nignore_missing_imports = True\n"
              "[mypy-tidemark.keras.*]\ndisallow_subclassing_any = False\n")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


def test_the_programs_pass(folder):
    assert len(PROGRAMS) == 3
    check(folder, SETTINGS, *PROGRAMS)


def test_wrong_arguments_do_not_pass(folder):
    before = ["import tidemark.jax, tidemark.keras, tidemark.orbax as ocp", "c = tidemark.Checkpointer('s')"]
    check_errors(folder, SETTINGS, before, {
        "tidemark.jax.save(c, '1', {})": "arg-type",
        "tidemark.jax.save(c, 1, {}, metrics={'loss': 'low'})": "dict-item",
        "tidemark.jax.resume(c, {})[0].step": "attr-defined",
        "tidemark.jax.restore_with_report(c, {})[1].info.steps": "attr-defined",
        "tidemark.jax.load('store', step=1.5)": "arg-type",
        "ocp.CheckpointManagerOptions(best_fn=3)": "arg-type",
        "ocp.CheckpointManager('store').save('1')": "arg-type",
        "ocp.CheckpointManager('store').latest_step() + 1": "operator",
        "ocp.args.StandardSave()": "call-arg",
        "tidemark.keras.TidemarkCheckpoint('store', max_to_keep='3')": "arg-type",
        "tidemark.keras.load(None, 'store').steps": "attr-defined"})


def test_the_modules_pass_with_the_types_of_jax(folder):
    check(folder, OF_PACKAGE, *MODULES)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_the_programs_run(program, tmp_path):
    run(program, tmp_path)
