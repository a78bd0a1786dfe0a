"""Steps that an earlier version of the package wrote are restored."""

import pathlib
import shutil

import pytest

torch = pytest.importorskip("torch")

import golden_states  # noqa: E402
import numpy as np  # noqa: E402
import tidemark  # noqa: E402

GOLDEN = pathlib.Path(__file__).parent / "golden" / "store-1"
OPTIMIZERS = [golden_states.nested, golden_states.at_top, golden_states.free]
OPTIONS = ("lr", "betas", "eps", "weight_decay", "momentum")


@pytest.fixture
def checkpointer(tmp_path):
    shutil.copytree(GOLDEN, tmp_path / "store")
    with tidemark.Checkpointer(tmp_path / "store", create=False) as opened:
        yield opened


def step_of(make):
    return golden_states.STATES.index(make)


def tensors(state):
    """Those of the modules and of the optimizer, and the options that its groups have in every PyTorch."""
    optimizer = state["optimizer"]
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return [[parameter.tolist() for parameter in parameters],
            [{name: item.tolist() for name, item in optimizer.state[parameter].items()} for parameter in parameters],
            [{name: group.get(name) for name in OPTIONS} for group in optimizer.param_groups]]


@pytest.mark.parametrize("make", OPTIMIZERS)
def test_modules_and_optimizers_come_back(checkpointer, make):
    state = make(3)
    expected = tensors(make(1))
    assert tensors(state) != expected
    checkpointer.restore(state, step_of(make))
    assert tensors(state) == expected


def test_the_golden_optimizers_have_the_entries_of_their_version(checkpointer):
    entries = {}
    for make in OPTIMIZERS:
        with tidemark.open(checkpointer.path, step_of(make)) as step:
            entries[make] = {name for name in step.keys() if name.startswith("optimizer.")}
    assert entries == {
        golden_states.nested: {f"optimizer.state.{i}.{name}" for i in range(4) for name in ("step", "exp_avg", "exp_avg_sq")},
        golden_states.at_top: {f"optimizer.{name}.{of}" for name in ("weight", "bias") for of in ("exp_avg", "exp_avg_sq")},
        golden_states.free: {"optimizer.state.0.momentum_buffer"}}


def test_generators_go_on(checkpointer):
    drawn = golden_states.draws(golden_states.generators(1))
    state = golden_states.generators(3)
    checkpointer.restore(state, step_of(golden_states.generators))
    assert golden_states.draws(state) == drawn


def test_values_come_back_with_their_types(checkpointer):
    state = golden_states.values(0)
    checkpointer.restore(state, step_of(golden_states.values))
    for name, value in golden_states.VALUES.items():
        assert (type(state[name]), repr(state[name])) == (type(value), repr(value)), name
    array, number, inner = state["beside"]
    assert (array.tolist(), number, inner["w"].tolist()) == ([1, 1], 1, [[1, 1], [1, 1]])
    assert array.dtype == np.int64 and inner["w"].dtype == np.float32
