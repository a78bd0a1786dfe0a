"""Programs that use the integrations of PyTorch's frameworks pass mypy --strict with the types of these frameworks."""

import pathlib

import pytest
from type_checker import PACKAGE, check, check_errors, run

PROGRAMS = sorted((pathlib.Path(__file__).parent / "typed").glob("*.py"))
# What docs/python.md tells a user to set.
SETTINGS = """[mypy-torch.distributed.checkpoint]
implicit_reexport = True
"""
# Libraries without types, and those that are not in this environment.
UNTYPED = ("accelerate", "fsspec", "jax", "keras")
OF_PACKAGE = SETTINGS + "".join(f"[mypy-{library}.*]\nignore_missing_imports = True\n" for library in UNTYPED)
OF_PACKAGE += "[mypy-tidemark.keras.*,tidemark.lightning._step_urls]\ndisallow_subclassing_any = False\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mypy")


def test_the_programs_pass(folder):
    assert len(PROGRAMS) == 3
    check(folder, SETTINGS, *PROGRAMS)


def test_wrong_arguments_do_not_pass(folder):
    check_errors(folder, SETTINGS, [
        "from lightning.pytorch.callbacks import Callback", "from tidemark import dcp, lightning, transformers",
        "from transformers import TrainerCallback", "def loss(module: object) -> float: return 1.0"], {
        "lightning.TidemarkCheckpoint('store', mode='lowest')": "arg-type",
        "lightning.TidemarkCheckpoint('store', save_top_k='3')": "arg-type",
        "lightning.TidemarkCheckpoint('store').best_model_path.step": "attr-defined",
        "lightning.TidemarkCheckpoint('store').resume_path + ''": "operator",
        "lightning.TidemarkCheckpointIO(5)": "arg-type",
        "lightning.ModuleEvaluation(loss, on_backpressure='drop')": "arg-type",
        "wrong: TrainerCallback = lightning.TidemarkCheckpoint('store')": "assignment",
        "right: TrainerCallback = transformers.TidemarkCallback('store', every_steps='5')": "arg-type",
        "other: Callback = transformers.TidemarkCallback('store')": "assignment",
        "transformers.export('store', 'folder', 1.5)": "arg-type",
        "transformers.TidemarkTrainerMixin().train(3)": "arg-type",
        "dcp.Writer('store', '7')": "arg-type",
        "dcp.Reader('store', 7.5)": "arg-type",
        "dcp.SavePlanner(flatten='yes')": "call-arg"})


def test_the_package_passes_with_the_types_of_the_frameworks(folder):
    check(folder, OF_PACKAGE, PACKAGE)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_the_programs_run(program, tmp_path):
    run(program, tmp_path)
