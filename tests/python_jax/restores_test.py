"""The options of restores by tidemark.jax, tidemark.orbax and tidemark.keras: progress, and where arrays come to lie."""

import io

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
import tidemark
import tidemark.jax
import tidemark.keras
import tidemark.orbax as ocp
from tidemark.errors import InternalError, InvalidArgumentError

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

TREE = {"a": jnp.ones(1000), "b": {"c": jnp.ones(3000, jnp.bfloat16), "key": jax.random.key(1)}, "epoch": 3}
BYTES = 4000 + 6000 + 8


def check(told, total, step=0):
    """From the first array to the last, never back."""
    done = [progress.bytes_done for progress in told]
    assert len(told) >= 2 and done == sorted(set(done)) and done[0] > 0
    assert told[-1] == tidemark.RestoreProgress(step, total, total) and {progress.bytes_total for progress in told} == {total}


@pytest.fixture
def store(tmp_path):
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "store", TREE)
    return tmp_path / "store"


def with_manager(restore):
    def run(store, progress):
        with ocp.CheckpointManager(store) as manager:
            return restore(manager, progress)
    return run


# What reads, and how many bytes.
DOORS = {
    "load": (lambda store, progress: tidemark.jax.load(store, progress=progress), BYTES),
    "load like": (lambda store, progress: tidemark.jax.load(store, like=TREE, progress=progress), BYTES),
    "load a part": (lambda store, progress: tidemark.jax.load(
        store, like={"b": {"c": TREE["b"]["c"], "key": TREE["b"]["key"]}}, allow_unexpected=True, progress=progress), 6008),
    "standard": (lambda store, progress: ocp.StandardCheckpointer().restore(store, TREE, progress=progress), BYTES),
    "pytree": (lambda store, progress: ocp.PyTreeCheckpointer().restore(store, progress=progress), BYTES),
    "manager": (with_manager(lambda manager, progress: manager.restore(0, progress=progress)), BYTES),
    "manager like": (with_manager(lambda manager, progress: manager.restore(
        0, args=ocp.args.StandardRestore(TREE), progress=progress)), BYTES),
}


@pytest.mark.parametrize("door", DOORS)
def test_a_function_is_told_how_far_a_restore_is(store, door):
    restore, total = DOORS[door]
    told = []
    restored = restore(store, told.append)
    check(told, total)
    assert restored["b"]["c"].sum() == 3000


@pytest.mark.parametrize("door", DOORS)
def test_what_the_function_raises_ends_the_restore(store, door):
    def stop(progress):
        raise ValueError("enough")

    restore, _ = DOORS[door]
    with pytest.raises(InternalError, match="progress raised at step 0: ValueError: enough"):
        restore(store, stop)
    with pytest.raises(InvalidArgumentError, match="progress is 3, not a bool or a function"):
        restore(store, 3)
    restore(store, True)  # stderr is no terminal


def test_items_count_together(tmp_path):
    told = []
    with ocp.CheckpointManager(tmp_path / "store", item_names=("one", "two", "array", "config")) as manager:
        manager.save(4, args=ocp.args.Composite(
            one=ocp.args.StandardSave({"w": jnp.ones(100)}), two=ocp.args.StandardSave({"w": jnp.ones(200)}),
            array=ocp.args.ArraySave(jnp.ones(50)), config=ocp.args.JsonSave({"layers": 2})))
        manager.restore(4, progress=told.append)
        check(told, 400 + 800 + 200, step=4)
        told.clear()
        manager.restore(4, args=ocp.args.Composite(two=ocp.args.StandardRestore(), array=ocp.args.ArrayRestore()),
                        progress=told.append)
        check(told, 800 + 200, step=4)
        told.clear()
        manager.restore(4, args=ocp.args.Composite(config=ocp.args.JsonRestore()), progress=told.append)
        assert told == [tidemark.RestoreProgress(4, 0, 0)]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_shows_a_line_that_ends_after_an_error_too(store, monkeypatch):
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    tidemark.jax.load(store, progress=True)
    assert terminal.getvalue().startswith("\rrestoring step 0 [") and terminal.getvalue().count("\n") == 1
    assert "100 %" in terminal.getvalue().split("\r")[-1]
    monkeypatch.setattr("sys.stderr", terminal := Terminal())
    monkeypatch.setattr("jax.device_put", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        tidemark.jax.load(store, progress=True)
    assert "100 %" not in terminal.getvalue() and terminal.getvalue().count("\n") == 1


def make_model():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(1)])
    model.compile("adam", "mse")
    return model


def fit(store, **options):
    x = np.ones((8, 4), np.float32)
    make_model().fit(x, x[:, :1], epochs=1, verbose=0, callbacks=[tidemark.keras.TidemarkCheckpoint(store, **options)])


def test_keras_tells_a_function_and_shows_a_line_if_it_is_verbose(tmp_path, monkeypatch):
    fit(tmp_path / "store")
    told = []
    fit(tmp_path / "store", restore=True, progress=told.append)
    check(told, told[-1].bytes_total)
    model, told = make_model(), []
    tidemark.keras.load(model, tmp_path / "store", weights_only=True, progress=told.append)
    check(told, sum(weight.nbytes for weight in model.get_weights()))

    def line(**options):
        monkeypatch.setattr("sys.stderr", terminal := Terminal())
        fit(tmp_path / "store", restore=True, **options)
        return "restoring step" in terminal.getvalue()

    assert [line(verbose=1), line(), line(progress=True), line(verbose=1, progress=False)] == [True, False, True, False]
    with pytest.raises(InvalidArgumentError, match="progress is 3, not a bool or a function"):
        fit(tmp_path / "store", progress=3)


def places(model):
    return [weight.value.sharding for weight in model.weights]


@pytest.mark.skipif(keras.backend.backend() != "jax", reason="JAX alone has several devices here")
@pytest.mark.parametrize("load", [
    lambda model, store: tidemark.keras.load(model, store, weights_only=True),
    lambda model, store: model.fit(np.ones((8, 4)), np.ones((8, 1)), epochs=1, verbose=0,
                                   callbacks=[tidemark.keras.TidemarkCheckpoint(store, restore=True)])], ids=["load", "restore"])
def test_keras_restores_to_the_devices_that_it_has_chosen(tmp_path, load):
    fit(tmp_path / "store")
    with jax.default_device(jax.devices()[1]):
        model = make_model()
        before = places(model)
        load(model, tmp_path / "store")
    assert places(model) == before and {device for place in before for device in place.device_set} == {jax.devices()[1]}
    devices = [f"cpu:{i}" for i in range(4)]
    keras.distribution.set_distribution(keras.distribution.DataParallel(devices=devices))
    try:
        model = make_model()
        before = places(model)
        load(model, tmp_path / "store")
        assert places(model) == before and all(len(place.device_set) == 4 for place in before)
    finally:
        keras.distribution.set_distribution(None)


def test_without_a_tree_arrays_are_on_the_default_device(store):
    with jax.default_device(jax.devices()[2]):
        loaded = tidemark.jax.load(store)
        restored = ocp.StandardCheckpointer().restore(store)
    for tree in (loaded, restored):
        assert {device for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array) for device in leaf.devices()} == {
            jax.devices()[2]}
