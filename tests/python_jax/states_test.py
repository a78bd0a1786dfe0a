"""Arrays of JAX in a state of tidemark.Checkpointer itself: every call says what to use instead, and changes nothing."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tidemark
import tidemark.jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from stateful import Stateful
from tidemark.errors import UnsupportedTypeError

Pair = collections.namedtuple("Pair", "left right")


def over_devices():
    mesh = Mesh(np.array(jax.devices()), ("x",))
    return jax.device_put(jnp.arange(8.0), NamedSharding(mesh, PartitionSpec("x")))


ARRAYS = {"single device": lambda: jnp.ones(3), "sharded": over_devices, "bfloat16": lambda: jnp.ones(3, jnp.bfloat16),
          "float8": lambda: jnp.ones(3, jnp.float8_e4m3fn), "scalar": lambda: jnp.float32(3)}
KEYS = {"key": lambda: jax.random.key(1), "keys": lambda: jax.random.split(jax.random.key(1), 4)}
# In what the array lies, and its name there.
PLACES = {"w": lambda array: {"w": array}, "layers.0": lambda array: {"layers": [array, 3]},
          "pair.1": lambda array: {"pair": Pair(1, array)}, "a.b.1": lambda array: {"a": {"b": (None, array)}},
          "with.jax": lambda array: {"with": {"numpy": np.ones(2), "jax": array}}}


@pytest.fixture
def checkpointer(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as opened:
        yield opened


@pytest.mark.parametrize("kind", [*ARRAYS, *KEYS])
@pytest.mark.parametrize("name", PLACES)
def test_a_save_says_what_to_use_instead(checkpointer, kind, name):
    array = (ARRAYS | KEYS)[kind]()
    way_out = "tidemark.jax.save, or give it numpy.asarray" + (
        r"\(jax.random.key_data\(key\)\)" if kind in KEYS else r"\(array\)")
    words = f"'{name}' is {'a key of jax.random' if kind in KEYS else 'an array of JAX'}: save the state with {way_out}"
    for call in (lambda state: checkpointer.save(1, state), lambda state: checkpointer.evaluate(1, state), checkpointer.prepare,
                 tidemark.capture):
        with pytest.raises(UnsupportedTypeError, match=words):
            call(PLACES[name](array))
    assert checkpointer.steps() == []


def test_what_the_message_of_a_save_says_works(checkpointer):
    arrays = {name: make() for name, make in ARRAYS.items()}
    state = {name: np.asarray(array) for name, array in arrays.items()}
    state |= {name: np.asarray(jax.random.key_data(make())) for name, make in KEYS.items()}
    checkpointer.save(1, state)
    restored = {name: np.zeros_like(array) for name, array in state.items()}
    checkpointer.restore(restored)
    for name, array in state.items():
        assert restored[name].dtype == array.dtype and restored[name].tobytes() == array.tobytes()
    tree = {**arrays, **{name: make() for name, make in KEYS.items()}}
    tidemark.jax.save(checkpointer, 2, tree)
    same = tidemark.jax.restore(checkpointer, tree)
    assert same["sharded"].sharding == tree["sharded"].sharding and (same["key"] == tree["key"]).all()


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("make", [*ARRAYS.values(), *KEYS.values(), lambda: jax.ShapeDtypeStruct((3,), jnp.float32)],
                         ids=[*ARRAYS, *KEYS, "abstract"])
def test_a_restore_says_what_to_use_instead_and_changes_nothing(checkpointer, make, name):
    array = make()
    state = {**PLACES[name](array), "numpy": np.zeros(2), "epoch": 0}
    words = f"'{name}' is an array of JAX, into which nothing can be restored. Use restore, resume or load of tidemark.jax"
    with pytest.raises(UnsupportedTypeError, match=words):
        checkpointer.resume(state)  # also in a fresh run, which could not save it
    # Steps that such a state would seem to fit: of tidemark.jax, and one that has a value there.
    if isinstance(array, jax.Array):
        tidemark.jax.save(checkpointer, 1, {**PLACES[name](array), "numpy": np.ones(2), "epoch": 1})
    checkpointer.save(2, {**PLACES[name](5), "numpy": np.ones(2), "epoch": 2})
    for call in (checkpointer.resume, checkpointer.restore, lambda state: checkpointer.restore(state, 2, allow_missing=True),
                 lambda state: checkpointer.load(like=state)):
        with pytest.raises(UnsupportedTypeError, match=words):
            call(state)
    captured = tidemark.capture({"numpy": np.ones(2), "epoch": 1})
    with pytest.raises(UnsupportedTypeError, match=words):
        captured.restore(state, allow_missing=True)
    assert state["epoch"] == 0 and state["numpy"].tolist() == [0, 0]


def test_a_traced_array_is_refused(checkpointer):
    @jax.jit
    def step(w):
        checkpointer.save(1, {"w": w})
        return w

    with pytest.raises(UnsupportedTypeError, match="'w' is an array of JAX"):
        step(jnp.ones(3))


@pytest.mark.parametrize("make", [*ARRAYS.values(), *KEYS.values()], ids=[*ARRAYS, *KEYS])
def test_an_object_whose_state_has_one_is_refused(checkpointer, make):
    with pytest.raises(UnsupportedTypeError, match=r"'object.deep.0' is .* of (JAX|jax.random)"):
        checkpointer.save(1, {"object": Stateful({"deep": [make()]})})


def test_a_class_with_a_codec_is_stored_by_it(checkpointer):
    class Table:
        def __init__(self, array):
            self.array = array

    tidemark.register(Table, lambda table: table.array.tolist(), lambda rows: Table(jnp.asarray(rows)), "Table")
    checkpointer.save(1, {"table": Table(jnp.arange(3))})
    state = {"table": None}
    checkpointer.restore(state)
    assert state["table"].array.tolist() == [0, 1, 2]
