"""Pytrees of JAX: every kind of leaf and container comes back, with its sharding, and nothing stale is saved."""

import collections
import dataclasses
import subprocess
import sys

import flax.struct
import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import optax
import pytest
import tidemark
import tidemark.jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tidemark.errors import DataLossError, InvalidArgumentError, UnimplementedError


@pytest.fixture
def checkpointer(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as opened:
        yield opened


def names(checkpointer, step="latest"):
    checkpointer.wait_until_committed()
    with tidemark.open(checkpointer.path, step) as opened:
        return sorted(opened.keys())


def assert_same(first, second):
    """The same structure, types, dtypes and bytes."""
    assert jax.tree_util.tree_structure(first) == jax.tree_util.tree_structure(second)
    for one, other in zip(jax.tree_util.tree_leaves(first), jax.tree_util.tree_leaves(second), strict=True):
        assert type(one) is type(other)
        if isinstance(one, (jax.Array, np.ndarray)):
            assert one.dtype == other.dtype and one.shape == other.shape
            if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
                one, other = jax.random.key_data(one), jax.random.key_data(other)
            assert np.asarray(one).tobytes() == np.asarray(other).tobytes()
        else:
            assert one == other


Pair = collections.namedtuple("Pair", "left right")


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class Block:
    kernel: jax.Array
    scale: float


@jax.tree_util.register_pytree_node_class
class Ring:
    def __init__(self, items):
        self.items = items

    def tree_flatten(self):
        return self.items, len(self.items)

    @classmethod
    def tree_unflatten(cls, _, items):
        return cls(list(items))

    def __eq__(self, other):
        return self.items == other.items


@flax.struct.dataclass
class Train:
    params: dict
    step: int
    name: str = flax.struct.field(pytree_node=False, default="run")


def make_tree(fill):
    return {"dict": {"a": jnp.full((2, 3), fill), "empty": {}},
            "list": [jnp.full(2, fill), None, (), np.full(3, fill)], "pair": Pair(jnp.int32(fill), fill),
            "block": Block(jnp.full((1,), fill, jnp.bfloat16), float(fill)), "ring": Ring([jnp.full(1, fill), fill]),
            "train": Train({"w": jnp.full(4, fill)}, fill), "text": f"text{fill}"}


def test_importing_tidemark_does_not_import_jax():
    code = "import sys, tidemark; sys.exit(any(name in sys.modules for name in ('jax', 'keras', 'orbax', 'numpy')))"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_fresh_run_resumes_at_zero_with_the_tree_it_has(checkpointer):
    tree = {"w": jnp.ones(2)}
    assert tidemark.jax.resume(checkpointer, tree) == (0, tree)


def test_every_container_and_leaf_comes_back_as_a_new_tree(checkpointer):
    tree = make_tree(7)
    tidemark.jax.save(checkpointer, 5, tree)
    like = make_tree(1)
    step, restored = tidemark.jax.resume(checkpointer, like)
    assert step == 6
    assert_same(restored, tree)
    assert_same(like, make_tree(1))


def test_entries_are_named_by_key_paths(checkpointer):
    tidemark.jax.save(checkpointer, 1, make_tree(1))
    assert names(checkpointer) == ["block.kernel", "dict.a", "list.0", "list.3", "pair.left", "ring.0", "train.params.w"]
    with tidemark.open(checkpointer.path) as step:
        assert step.get_value("pair.right") == 1 and step.get_value("ring.1") == 1 and step.get_value("train.step") == 1


def test_a_tree_is_loaded_without_like_beside_the_checkpointer(checkpointer):
    tree = make_tree(2)
    tidemark.jax.save(checkpointer, 1, tree).committed.result()
    loaded = tidemark.jax.load(checkpointer.path)
    assert loaded["list"][1] is None and loaded["list"][2] == () and loaded["dict"]["empty"] == {}
    assert sorted(loaded["pair"]) == ["left", "right"] and loaded["train"]["step"] == 2 and loaded["text"] == "text2"
    assert isinstance(loaded["list"][0], jax.Array) and isinstance(loaded["list"][3], np.ndarray)
    assert loaded["block"]["kernel"].dtype == jnp.bfloat16
    assert_same(tidemark.jax.load(checkpointer.path, 1, like=make_tree(0)), tree)


@pytest.mark.parametrize("dtype", [jnp.bool_, jnp.uint8, jnp.int32, jnp.float16, jnp.bfloat16, jnp.float32, jnp.complex64,
                                   jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.float8_e4m3fnuz, jnp.int4])
@pytest.mark.parametrize("shape", [(), (0, 2), (3, 5)])
def test_every_dtype_and_shape_comes_back_by_an_abstract_tree(checkpointer, dtype, shape):
    tree = {"a": (jnp.arange(int(np.prod(shape))) % 7).reshape(shape).astype(dtype)}
    tidemark.jax.save(checkpointer, 1, tree)
    abstract = jax.eval_shape(lambda: tree)
    assert_same(tidemark.jax.restore(checkpointer, abstract), tree)
    checkpointer.wait_until_committed()
    with tidemark.open(checkpointer.path, framework="jax") as step:
        assert_same({"a": step.get_tensor("a")}, tree)


def test_what_tidemark_has_no_dtype_for_is_refused_by_name(checkpointer):
    with pytest.raises(tidemark.Error, match="float4_e2m1fn"):
        tidemark.jax.save(checkpointer, 1, {"quantised": jnp.zeros(3, jnp.float4_e2m1fn)})


def test_transposed_arrays_are_saved_as_they_read(checkpointer):
    tree = {"t": jnp.arange(12.0).reshape(3, 4).T, "n": np.arange(12.0).reshape(3, 4).T}
    tidemark.jax.save(checkpointer, 1, tree)
    assert_same(tidemark.jax.restore(checkpointer, tree), tree)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_keys_go_on_where_they_were(checkpointer, impl):
    tree = {"one": jax.random.key(3, impl=impl), "many": jax.random.split(jax.random.key(4, impl=impl), (2, 3)),
            "old": jax.random.PRNGKey(5)}
    tidemark.jax.save(checkpointer, 1, tree)
    for like in (jax.tree.map(lambda leaf: leaf, tree), jax.eval_shape(lambda: tree)):
        restored = tidemark.jax.restore(checkpointer, like)
        assert_same(restored, tree)
        assert jax.random.normal(restored["one"]) == jax.random.normal(tree["one"])
    checkpointer.wait_until_committed()
    assert_same(tidemark.jax.load(checkpointer.path), tree)


def test_a_key_of_another_algorithm_is_a_mismatch(checkpointer):
    tidemark.jax.save(checkpointer, 1, {"key": jax.random.key(0, impl="rbg")})
    with pytest.raises(tidemark.MismatchError, match="'key' rbg") as caught:
        tidemark.jax.restore(checkpointer, {"key": jax.random.key(0, impl="unsafe_rbg")})
    assert caught.value.retyped == ["key"]


def mesh():
    return Mesh(np.array(jax.devices()).reshape(2, 2), ("x", "y"))


@pytest.mark.parametrize("saved", [PartitionSpec(), PartitionSpec("x"), PartitionSpec("x", "y"), PartitionSpec(("y", "x"))])
@pytest.mark.parametrize("wanted", [PartitionSpec(), PartitionSpec("y"), PartitionSpec(None, ("x", "y"))])
def test_an_array_gets_the_sharding_of_like(checkpointer, saved, wanted):
    whole = np.arange(64, dtype=np.float32).reshape(8, 8)
    tidemark.jax.save(checkpointer, 1, {"w": jax.device_put(whole, NamedSharding(mesh(), saved))})
    sharding = NamedSharding(mesh(), wanted)
    for like in (jax.ShapeDtypeStruct((8, 8), jnp.float32, sharding=sharding), jax.device_put(whole * 0, sharding)):
        restored = tidemark.jax.restore(checkpointer, {"w": like})["w"]
        assert restored.sharding == sharding
        np.testing.assert_array_equal(restored, whole)


def test_sharded_keys_come_back(checkpointer):
    sharding = NamedSharding(mesh(), PartitionSpec("x"))
    keys = jax.device_put(jax.random.split(jax.random.key(0), 4), sharding)
    tidemark.jax.save(checkpointer, 1, {"keys": keys})
    restored = tidemark.jax.restore(checkpointer, {"keys": keys})
    assert restored["keys"].sharding == sharding
    assert_same(restored, {"keys": keys})


def test_an_uncommitted_array_stays_uncommitted_and_a_weak_type_weak(checkpointer):
    tree = {"plain": jnp.ones(3), "weak": jnp.asarray(2.0), "there": jax.device_put(jnp.ones(3), jax.devices()[2])}
    tidemark.jax.save(checkpointer, 1, tree)
    restored = tidemark.jax.restore(checkpointer, tree)
    assert not restored["plain"].committed and restored["weak"].weak_type and not restored["weak"].committed
    assert restored["there"].devices() == {jax.devices()[2]}


def test_arrays_may_be_donated_when_save_returns(tmp_path):
    increase = jax.jit(lambda tree: jax.tree.map(lambda x: x + 1, tree), donate_argnums=0)
    with tidemark.Checkpointer(tmp_path / "store", staging="overlapped") as checkpointer:
        tree = {"w": jnp.zeros((256, 1024)), "b": jnp.zeros(7)}
        for step in range(5):
            save = tidemark.jax.save(checkpointer, step, tree)
            assert save.staged.done()
            tree = increase(tree)
        checkpointer.wait_until_committed()
        for step in range(5):
            restored = tidemark.jax.restore(checkpointer, tree, step)
            assert {float(restored["w"].min()), float(restored["w"].max()), float(restored["b"][0])} == {step}


def test_saving_leaves_no_host_copy_with_the_arrays(checkpointer):
    increase = jax.jit(lambda x: x + 1, donate_argnums=0)
    for array in (jnp.zeros((64, 64)), jax.device_put(jnp.zeros((64, 64)), NamedSharding(mesh(), PartitionSpec("x")))):
        array = increase(array)
        addresses = [shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards]
        tidemark.jax.save(checkpointer, array.ndim + len(addresses), {"w": array})
        assert array._npy_value is None
        # A view of NumPy that was still there would make JAX copy the array instead of using it again.
        array = increase(array)
        assert [shard.data.unsafe_buffer_pointer() for shard in array.addressable_shards] == addresses


def test_deleted_traced_and_abstract_arrays_are_refused_by_name(checkpointer):
    gone = jnp.ones(3)
    jax.jit(lambda x: x + 1, donate_argnums=0)(gone)
    with pytest.raises(InvalidArgumentError, match=r"'params\.w' has been deleted: it was donated"):
        tidemark.jax.save(checkpointer, 1, {"params": {"w": gone}})
    with pytest.raises(InvalidArgumentError, match="'w' is traced"):
        jax.jit(lambda x: tidemark.jax.save(checkpointer, 1, {"w": x}))(jnp.ones(2))
    with pytest.raises(InvalidArgumentError, match="'w' is a jax.ShapeDtypeStruct"):
        tidemark.jax.save(checkpointer, 1, {"w": jax.ShapeDtypeStruct((2,), jnp.float32)})
    assert checkpointer.steps() == []
    # As a pattern a deleted array will do.
    tidemark.jax.save(checkpointer, 1, {"w": jnp.ones(3)})
    assert tidemark.jax.restore(checkpointer, {"w": gone})["w"].tolist() == [1, 1, 1]


def test_trees_without_names_are_refused(checkpointer):
    with pytest.raises(InvalidArgumentError, match="single leaf"):
        tidemark.jax.save(checkpointer, 1, jnp.ones(2))
    with pytest.raises(InvalidArgumentError, match=r"two leaves of the tree have the name 'a\.b'"):
        tidemark.jax.save(checkpointer, 1, {"a": {"b": 1}, "a.b": 2})
    with pytest.raises(InvalidArgumentError, match="cannot be flattened"):
        tidemark.jax.save(checkpointer, 1, {"x": {1: 2, "a": 3}})
    with pytest.raises(tidemark.UnsupportedTypeError, match="the key"):
        tidemark.jax.save(checkpointer, 1, {"x": {(1, 2): 3}})
    with pytest.raises(tidemark.UnsupportedTypeError, match=r"'x\.0' is a .*object.*tidemark\.register"):
        tidemark.jax.save(checkpointer, 1, {"x": [object()]})
    with pytest.raises(tidemark.UnsupportedTypeError, match=r"'w' is an array of JAX.*tidemark\.jax\.save"):
        checkpointer.save(1, {"w": jnp.ones(2)})


def test_another_tree_is_a_mismatch_with_names(checkpointer):
    tidemark.jax.save(checkpointer, 1, {"a": jnp.ones(2), "b": jnp.ones(3), "c": jnp.ones(1), "e": 1}).committed.result()
    like = {"a": jnp.ones(4), "b": jnp.ones(3, jnp.bfloat16), "d": jnp.ones(1), "e": 1}
    with pytest.raises(tidemark.MismatchError) as caught:
        tidemark.jax.restore(checkpointer, like)
    assert (caught.value.reshaped, caught.value.retyped, caught.value.missing, caught.value.unexpected) == (
        ["a"], ["b"], ["d"], ["c"])
    with pytest.raises(tidemark.MismatchError) as caught:
        tidemark.jax.load(checkpointer.path, like=like)
    assert (caught.value.reshaped, caught.value.retyped, caught.value.missing, caught.value.unexpected) == (
        ["a"], ["b"], ["d"], ["c"])
    *lines, way_out = str(caught.value).splitlines()
    assert lines == ["step 1 does not fit the tree, 4 differences:",
                     "  'a': shape: checkpoint has [2], state has [4]",
                     "  'b': dtype: checkpoint has float32, state has bfloat16",
                     "  missing in the checkpoint: 'd' float32 [1]",
                     "  unexpected in the checkpoint: 'c' float32 [1]"]
    assert "allow_unexpected=True skips unexpected ones" in way_out and "convert_dtypes=True" in way_out
    with pytest.raises(tidemark.MismatchError, match="'a': kind: checkpoint has float32 .2., state has int") as caught:
        tidemark.jax.load(checkpointer.path, like={"a": 1}, allow_unexpected=True)
    assert caught.value.retyped == ["a"]
    part = tidemark.jax.load(checkpointer.path, like={"a": jnp.zeros(2)}, allow_unexpected=True)
    assert part["a"].tolist() == [1, 1]


def test_parts_are_restored_and_the_rest_is_as_in_like(checkpointer):
    tidemark.jax.save(checkpointer, 1, {"params": {"a": jnp.ones(2), "b": jnp.ones(2)}, "epoch": 3})
    like = {"params": {"a": jnp.zeros(2), "b": jnp.zeros(2)}, "epoch": 0}
    restored = tidemark.jax.restore(checkpointer, like, only=["params.a"])
    assert (restored["params"]["a"][0], restored["params"]["b"][0], restored["epoch"]) == (1, 0, 0)
    more = {"net": {"a": jnp.zeros(2), "b": jnp.zeros(2)}, "epoch": 0, "new": jnp.full(1, 7.0)}
    restored, report = tidemark.jax.restore_with_report(checkpointer, more, renames=[("params", "net")], allow_missing=True)
    assert (restored["net"]["b"][0], restored["epoch"], restored["new"][0], report.missing) == (1, 3, 7, ["new"])


def test_64_bit_arrays_are_never_narrowed_silently(checkpointer):
    tidemark.jax.save(checkpointer, 1, {"w": np.ones(2)}).committed.result()
    with pytest.raises(UnimplementedError, match="'w' has the dtype float64: jax.config.update"):
        tidemark.jax.restore(checkpointer, {"w": jax.ShapeDtypeStruct((2,), np.float64)})
    with tidemark.open(checkpointer.path, framework="jax") as step, pytest.raises(UnimplementedError, match="float64"):
        step.get_tensor("w")
    assert tidemark.jax.restore(checkpointer, {"w": np.zeros(2)})["w"].tolist() == [1, 1]
    with jax.enable_x64(True):
        restored = tidemark.jax.restore(checkpointer, {"w": jax.ShapeDtypeStruct((2,), np.float64)})
        assert restored["w"].dtype == np.float64


def test_slices_are_arrays_of_jax(checkpointer):
    whole = jnp.arange(24, dtype=jnp.bfloat16).reshape(6, 4)
    tidemark.jax.save(checkpointer, 1, {"w": whole}).committed.result()
    with tidemark.open(checkpointer.path, framework="jax") as step:
        part = step.get_slice("w")
        for key in (slice(1, 3), slice(None, None, -2), 5, (slice(2, 4), 1), Ellipsis):
            assert isinstance(part[key], jax.Array)
            np.testing.assert_array_equal(part[key].astype(jnp.float32), whole[key].astype(jnp.float32))


def test_an_optimizer_of_optax_goes_on_bit_for_bit(checkpointer):
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(optax.cosine_decay_schedule(0.1, 100)))

    @jax.jit
    def train(params, state, key):
        gradients = jax.grad(lambda p: jnp.sum((jax.random.normal(key, (5, 3)) @ p["w"] + p["b"]) ** 2))(params)
        updates, state = optimizer.update(gradients, state, params)
        return optax.apply_updates(params, updates), state, jax.random.split(key)[0]

    params = {"w": jnp.ones((3, 2)), "b": jnp.zeros(2)}
    tree = (params, optimizer.init(params), jax.random.key(0))
    for _ in range(3):
        tree = train(*tree)
    tidemark.jax.save(checkpointer, 3, {"params": tree[0], "optimizer": tree[1], "key": tree[2]})
    expected = tree
    for _ in range(4):
        expected = train(*expected)
    fresh = {"params": params, "optimizer": optimizer.init(params), "key": jax.random.key(9)}
    step, restored = tidemark.jax.resume(checkpointer, fresh)
    assert step == 4
    again = (restored["params"], restored["optimizer"], restored["key"])
    for _ in range(4):
        again = train(*again)
    assert_same(again, expected)
    assert "optimizer.1.0.mu.w" in names(checkpointer)


def test_objects_with_state_are_leaves_and_restored_in_place(checkpointer):
    generator = np.random.default_rng(1)
    tidemark.jax.save(checkpointer, 1, {"w": jnp.ones(1), "numpy": generator}).committed.result()
    drawn = generator.random()
    tree = {"w": jnp.zeros(1), "numpy": np.random.default_rng(2)}
    restored = tidemark.jax.restore(checkpointer, tree)
    assert restored["numpy"] is tree["numpy"] and restored["numpy"].random() == drawn
    for like in (None, tree):
        with pytest.raises(InvalidArgumentError, match="'numpy' is an object with state"):
            tidemark.jax.load(checkpointer.path, like=like)


def test_other_doors_read_a_tree_and_a_tree_reads_theirs(checkpointer):
    tidemark.jax.save(checkpointer, 1, {"w": jnp.arange(3, dtype=jnp.bfloat16), "epoch": 4})
    state = {"w": np.zeros(3, ml_dtypes.bfloat16), "epoch": 0}
    checkpointer.restore(state)
    assert state["w"].tolist() == [0, 1, 2] and state["epoch"] == 4
    checkpointer.save(2, {"w": np.ones(3, np.float32), "epoch": 5}).committed.result()
    restored = tidemark.jax.restore(checkpointer, {"w": jnp.zeros(3), "epoch": 0})
    assert restored["w"].tolist() == [1, 1, 1] and restored["epoch"] == 5
    with pytest.raises(InvalidArgumentError, match="was not saved by tidemark.jax"):
        tidemark.jax.load(checkpointer.path)


@pytest.mark.parametrize("skeleton", [3, [], ["dict"], ["dict", 3], ["dict", [["a"]]], ["list", None], ["leaf"], [["dict"]]])
def test_a_damaged_structure_is_data_loss(checkpointer, skeleton):
    checkpointer.save(1, {"$tidemark.tree": skeleton}).committed.result()
    with pytest.raises(DataLossError, match="stored structure of the tree"):
        tidemark.jax.load(checkpointer.path)


def test_what_is_no_checkpointer_is_named(tmp_path):
    for call in (lambda path: tidemark.jax.save(path, 1, {"w": jnp.ones(1)}), lambda path: tidemark.jax.resume(path, {}),
                 lambda path: tidemark.jax.restore(path, {})):
        with pytest.raises(InvalidArgumentError, match="checkpointer is 'run/ckpt', a str: it must be a tidemark.Checkpointer"):
            call("run/ckpt")
