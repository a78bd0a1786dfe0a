"""restore_args by Orbax's names: the outcomes are Orbax's, or an error that names the leaf."""

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint
import pytest
import tidemark
import tidemark.orbax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from stateful import Stateful
from tidemark.errors import InvalidArgumentError, MismatchError, UnimplementedError

# Orbax's own use of what NumPy and JAX will take away is not ours to fail for.
pytestmark = pytest.mark.filterwarnings("default")
BOTH = pytest.mark.parametrize("ocp", [orbax.checkpoint, tidemark.orbax], ids=["orbax", "tidemark"])


def mesh():
    return Mesh(np.array(jax.devices()), ("x",))


def over(axis):
    return NamedSharding(mesh(), PartitionSpec(axis))


def make_tree(fill=1.0):
    layers = [jnp.full((4, 2), fill, jnp.bfloat16), np.arange(3, dtype=np.int32)]
    return {"w": jnp.arange(8.0) * fill, "layers": layers, "epoch": int(fill)}


def restored(ocp, folder, restore_args, item=None, tree=None, **options):
    checkpointer = ocp.PyTreeCheckpointer()
    if not (folder / "one").exists():
        checkpointer.save(folder / "one", make_tree(2.0) if tree is None else tree)
    with ocp.CheckpointManager(folder / "store") as manager:  # the other way to the same
        if manager.latest_step() is None:
            manager.save(0, args=ocp.args.PyTreeSave(make_tree(2.0) if tree is None else tree))
            manager.wait_until_finished()
        found = manager.restore(0, args=ocp.args.PyTreeRestore(item, restore_args=restore_args, **options))
    other = checkpointer.restore(folder / "one", item=item, restore_args=restore_args, **options)
    assert described(other) == described(found)
    return found


def described(tree):
    """The structure, and of each leaf its class, dtype, sharding and elements."""
    def elements(leaf):
        is_key = isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.asarray(jax.random.key_data(leaf) if is_key else leaf).tolist()

    leaves = [(type(leaf).__name__, str(getattr(leaf, "dtype", "")), str(getattr(leaf, "sharding", "")), elements(leaf))
              for leaf in jax.tree.leaves(tree)]
    return str(jax.tree.structure(tree)), leaves


@BOTH
@pytest.mark.parametrize("with_item", [True, False])
def test_dtypes_shardings_and_types_are_as_asked(ocp, tmp_path, with_item):
    args = {"w": ocp.ArrayRestoreArgs(sharding=over("x"), global_shape=(8,), dtype=jnp.bfloat16),
            "layers": [ocp.ArrayRestoreArgs(mesh=mesh(), mesh_axes=PartitionSpec("x"), dtype=np.dtype("float32")),
                       ocp.RestoreArgs(restore_type=np.ndarray)], "epoch": ocp.RestoreArgs(restore_type=int)}
    found = restored(ocp, tmp_path, args, item=make_tree() if with_item else None)
    assert found["w"].dtype == jnp.bfloat16 and found["w"].sharding == over("x") and found["w"].tolist() == list(range(0, 16, 2))
    first, second = found["layers"]
    assert first.dtype == jnp.float32 and first.sharding == over("x") and first.tolist() == [[2, 2]] * 4
    assert type(second) is np.ndarray and second.tolist() == [0, 1, 2]
    assert found["epoch"] == 2 and type(found["epoch"]) is int


@BOTH
def test_arrays_of_numpy_and_of_jax_become_each_other(ocp, tmp_path):
    args = {"w": ocp.RestoreArgs(restore_type=np.ndarray, dtype=np.float16), "epoch": ocp.RestoreArgs(),
            "layers": [ocp.RestoreArgs(restore_type=np.ndarray), ocp.ArrayRestoreArgs(sharding=over(None))]}
    found = restored(ocp, tmp_path, args)
    assert type(found["w"]) is np.ndarray and found["w"].dtype == np.float16 and found["w"].tolist() == list(range(0, 16, 2))
    assert type(found["layers"][0]) is np.ndarray and found["layers"][0].dtype == jnp.bfloat16
    assert isinstance(found["layers"][1], jax.Array) and found["layers"][1].sharding == over(None) and found["epoch"] == 2


@BOTH
@pytest.mark.parametrize("more", [False, True])
def test_a_part_of_a_tree_is_restored(ocp, tmp_path, more):
    args = {"w": ocp.RestoreArgs(restore_type=np.ndarray), **({"epoch": ocp.RestoreArgs()} if more else {})}
    found = restored(ocp, tmp_path, args, item={"w": np.zeros(8, np.float32)}, partial_restore=True)
    assert list(found) == ["w"] and type(found["w"]) is np.ndarray and found["w"][1] == 2


@BOTH
def test_what_orbax_makes_of_a_target_is_taken(ocp, tmp_path):
    """orbax.checkpoint.checkpoint_utils has the classes of Orbax."""
    target = jax.tree.map(lambda leaf: jax.device_put(leaf, over("x")) if leaf.shape == (8,) else leaf,
                          {name: leaf for name, leaf in make_tree().items() if name == "w"})
    target |= {"epoch": 0, "key": jax.random.key(0)}
    tree = {"w": jnp.arange(8.0) * 2, "epoch": 2, "key": jax.random.key(5)}
    args = orbax.checkpoint.checkpoint_utils.construct_restore_args(target)
    found = restored(ocp, tmp_path, args, item=target, tree=tree)
    assert found["w"].sharding == over("x") and found["w"].tolist() == tree["w"].tolist() and found["epoch"] == 2
    assert (found["key"] == tree["key"]).all() and found["key"].dtype == tree["key"].dtype


@BOTH
def test_one_array_is_restored_as_asked(ocp, tmp_path):
    with ocp.CheckpointManager(tmp_path / "store") as manager:
        manager.save(0, args=ocp.args.ArraySave(jnp.arange(8.0)))
        manager.wait_until_finished()
        found = manager.restore(0, args=ocp.args.ArrayRestore(restore_args=ocp.ArrayRestoreArgs(
            sharding=over("x"), dtype=jnp.bfloat16)))
    assert found.dtype == jnp.bfloat16 and found.sharding == over("x") and found.tolist() == list(range(8))


@BOTH
def test_another_global_shape_is_an_error(ocp, tmp_path):
    args = {"w": ocp.ArrayRestoreArgs(sharding=over(None), global_shape=(9,)), "epoch": ocp.RestoreArgs(),
            "layers": [ocp.RestoreArgs(), ocp.RestoreArgs()]}
    with pytest.raises(ValueError):
        restored(ocp, tmp_path, args)


# Ours alone.


def of(**changed):
    ocp = tidemark.orbax
    args = {"w": ocp.RestoreArgs(), "layers": [ocp.RestoreArgs(), ocp.RestoreArgs()], "epoch": ocp.RestoreArgs()}
    return {**args, **changed}


@pytest.mark.parametrize(("changed", "words", "how"), [
    ({"w": tidemark.orbax.ArrayRestoreArgs(global_shape=(9,))}, r"'w' has the shape \[8\], and global_shape is \[9\]",
     "reshaped"),
    ({"w": tidemark.orbax.ArrayRestoreArgs(shape=(4, 2))}, r"'w' has the shape \[8\], and global_shape is \[4, 2\]", "reshaped"),
    ({"w": tidemark.orbax.RestoreArgs(dtype=np.int32)}, "'w': dtype: checkpoint has float32, state has int32", "retyped"),
    ({"w": tidemark.orbax.RestoreArgs(restore_type=int)}, "'w' was saved as an array, and restore_type is int", "retyped"),
    ({"epoch": tidemark.orbax.RestoreArgs(restore_type=str)}, "'epoch' was saved as int, and restore_type is str", "retyped"),
    ({"epoch": tidemark.orbax.ArrayRestoreArgs()}, "'epoch' was saved as int, and restore_type is Array", "retyped")])
def test_what_does_not_fit_is_a_mismatch(tmp_path, changed, words, how):
    with pytest.raises(MismatchError, match=words) as raised:
        restored(tidemark.orbax, tmp_path, of(**changed))
    assert getattr(raised.value, how) == list(changed)


def test_integers_are_not_converted(tmp_path):
    layers = [tidemark.orbax.RestoreArgs(), tidemark.orbax.RestoreArgs(dtype=np.float32)]
    with pytest.raises(MismatchError, match=r"'layers.1': dtype: checkpoint has int32, state has float32"):
        restored(tidemark.orbax, tmp_path, of(layers=layers))


def test_the_shape_and_the_dtype_of_the_item_count_where_the_args_have_none(tmp_path):
    item = make_tree()
    for wrong, words in ((jnp.zeros(9), r"'w': shape: checkpoint has \[8\], state has \[9\]"),
                         (jnp.zeros(8, jnp.bfloat16), "dtype: checkpoint has float32, state has bfloat16(\n.*)*dtype converts")):
        with pytest.raises(MismatchError, match=words):
            restored(tidemark.orbax, tmp_path, of(), item={**item, "w": wrong})
    found = restored(tidemark.orbax, tmp_path, of(w=tidemark.orbax.RestoreArgs(dtype=jnp.float16)),
                     item={**item, "w": jax.ShapeDtypeStruct((8,), jnp.bfloat16, sharding=over("x"))})
    assert found["w"].dtype == jnp.float16 and found["w"].sharding == over("x")
    with pytest.raises(MismatchError, match=r"missing in the checkpoint: 'more' float32 \[1\]"):
        restored(tidemark.orbax, tmp_path, of(more=tidemark.orbax.RestoreArgs()), item={**item, "more": jnp.ones(1)})


def test_keys_of_jax_random_stay_keys(tmp_path):
    ocp, tree = tidemark.orbax, {"keys": jax.random.split(jax.random.key(3), 4)}
    for args in (ocp.RestoreArgs(), ocp.ArrayRestoreArgs(global_shape=(4,), sharding=over("x")),
                 ocp.ArrayRestoreArgs(global_shape=(4, 2), dtype=np.uint32)):
        found = restored(ocp, tmp_path, {"keys": args}, tree=tree)["keys"]
        assert (found == tree["keys"]).all() and (args != ocp.ArrayRestoreArgs(sharding=over("x")) or found.sharding == over("x"))
    for args in (ocp.RestoreArgs(restore_type=np.ndarray), ocp.RestoreArgs(dtype=np.float32)):
        with pytest.raises(MismatchError, match="'keys' has keys of jax.random"):
            restored(ocp, tmp_path, {"keys": args}, tree=tree)


def test_what_has_no_counterpart_is_refused(tmp_path):
    ocp = tidemark.orbax
    with pytest.raises(UnimplementedError, match="ArrayRestoreArgs.strict has no counterpart.*neither pads nor truncates"):
        ocp.ArrayRestoreArgs(strict=False)
    with pytest.raises(InvalidArgumentError, match=r"the shape \(1,\) and the global_shape \(2,\)"):
        ocp.ArrayRestoreArgs(shape=(1,), global_shape=(2,))
    assert ocp.ArrayRestoreArgs(shape=(1,)).global_shape == ocp.ArrayRestoreArgs(global_shape=(1,)).shape == (1,)
    with pytest.raises(InvalidArgumentError, match="one of mesh and mesh_axes"):
        ocp.ArrayRestoreArgs(mesh=mesh())
    for args, words in ((orbax.checkpoint.ArrayRestoreArgs(strict=False), r"'w': ArrayRestoreArgs.strict has no counterpart"),
                        (orbax.checkpoint.type_handlers.SingleReplicaArrayRestoreArgs(single_replica_sharding=over("x")),
                         "single_replica_sharding has no counterpart"),
                        (ocp.ArrayRestoreArgs(sharding="cpu:0"), "'w': a str as sharding has no counterpart")):
        with pytest.raises(UnimplementedError, match=words):
            restored(ocp, tmp_path, of(w=args))
    for args, words in ((np.float32, "the restore_args of 'w' are a type: expected an ArrayRestoreArgs"),
                        (ocp.ArrayRestoreArgs(restore_type=np.ndarray, sharding=over("x")), "'w' has a sharding, and is")):
        with pytest.raises(InvalidArgumentError, match=words):
            restored(ocp, tmp_path, of(w=args))
    without = of()
    del without["w"]
    with pytest.raises(InvalidArgumentError, match="are with more"):
        restored(ocp, tmp_path, of(more=ocp.RestoreArgs()), item={"w": np.zeros(8, np.float32)}, partial_restore=True)
    for args, words in ((without, "are without w"), (of(more=ocp.RestoreArgs()), "are with more"),
                        ({"w": ocp.RestoreArgs()}, "without epoch, without layers.0, without layers.1")):
        with pytest.raises(InvalidArgumentError, match=f"must have the leaves of the item, and .*{words.removeprefix('are ')}"):
            restored(ocp, tmp_path, args)


def test_an_object_with_state_and_a_tree_of_something_else_are_refused(tmp_path):
    ocp = tidemark.orbax
    for item in (None, {"object": Stateful({"a": 0})}):
        with pytest.raises(InvalidArgumentError, match="'object' is an object with state, which only a Checkpointer restores"):
            restored(ocp, tmp_path, {"object": ocp.RestoreArgs()}, item=item, tree={"object": Stateful({"a": 1})})
    with tidemark.Checkpointer(tmp_path / "one") as checkpointer:
        checkpointer.save(1, {"w": np.ones(2)}, user_metadata={"orbax": {"items": {"": "tree"}}})
    with pytest.raises(InvalidArgumentError, match="step 1 was not saved by tidemark.jax"):
        ocp.PyTreeCheckpointer().restore(tmp_path / "one", restore_args={"w": ocp.RestoreArgs()})
