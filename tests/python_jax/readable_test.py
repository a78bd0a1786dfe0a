"""A checkpoint of each integration is read by tidemark.open, by checkpoint-inspect and by the C++ library."""

import jax
import jax.numpy as jnp
import keras
import keras_test
import numpy as np
import programs
import pytest
import tidemark
import tidemark.jax
import tidemark.keras
import tidemark.orbax

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")


def make_tree():
    return {"params": {"w": jnp.arange(6, dtype=jnp.bfloat16).reshape(3, 2), "f8": jnp.ones(4, jnp.float8_e4m3fn)},
            "pair": (jnp.ones(3), [jnp.arange(2)]), "key": jax.random.key(5), "epoch": 3, "none": None}


def arrays(tree):
    return {"params.w": np.asarray(tree["params"]["w"]), "params.f8": np.asarray(tree["params"]["f8"]),
            "pair.0": np.asarray(tree["pair"][0]), "pair.1.0": np.asarray(tree["pair"][1][0]),
            "key": np.asarray(jax.random.key_data(tree["key"]))}


def pytree(store):
    tree = make_tree()
    with tidemark.Checkpointer(store) as checkpointer:
        tidemark.jax.save(checkpointer, 7, tree)
    return arrays(tree), {"epoch": 3, "key.prng_impl": "threefry2x32"}


def orbax_manager(store):
    tree = make_tree()
    with tidemark.orbax.CheckpointManager(store) as manager:
        manager.save(7, args=tidemark.orbax.args.Composite(state=tidemark.orbax.args.StandardSave(tree),
                                                           config=tidemark.orbax.args.JsonSave({"layers": [1, 2]})))
    return {f"state.{name}": array for name, array in arrays(tree).items()}, {"state.epoch": 3, "config": {"layers": [1, 2]}}


def orbax_standard(store):
    tree = make_tree()
    with tidemark.orbax.StandardCheckpointer() as checkpointer:
        checkpointer.save(store, tree)
    return arrays(tree), {"epoch": 3}


def keras_callback(store):
    keras.utils.clear_session()
    model = keras_test.make_model()
    keras_test.fit(model, [tidemark.keras.TidemarkCheckpoint(store)])
    return {f"{part}.{variable.path.replace('/', '.')}": np.asarray(keras.ops.convert_to_numpy(variable.value))
            for part, owner in (("model", model), ("optimizer", model.optimizer)) for variable in owner.variables}, {}


# Each with the entries that are states of objects.
INTEGRATIONS = {pytree: [], orbax_manager: [], orbax_standard: [], keras_callback: ["rng"]}


@pytest.fixture(scope="module", params=INTEGRATIONS, ids=lambda integration: integration.__name__)
def written(request, tmp_path_factory):
    """(store, its tensors without those of objects, some of its values, names of objects)"""
    store = tmp_path_factory.mktemp(request.param.__name__) / "store"
    return store, *request.param(store), INTEGRATIONS[request.param]


def test_open_reads_every_entry(written):
    store, tensors, values, objects = written
    programs.check_tensors(store, tensors, objects)
    with tidemark.open(store) as step:
        read = {name: step.get_value(name) for name in step.value_keys()}
        assert all(read[name] == value for name, value in values.items())


def test_checkpoint_inspect_reads_every_entry(written):
    programs.check_inspected(written[0])


def test_the_library_reads_what_open_reads(written, tmp_path):
    programs.check_compared(written[0], tmp_path / "copy", objects=written[3])
