"""tidemark.jax.load into a tree that is not the one that was saved."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tidemark
import tidemark.jax
from tidemark.errors import InvalidArgumentError


def saved_tree():
    return {"params": {"a": jnp.ones(2), "b": jnp.full(3, 1 / 3, jnp.float32)}, "ema": {"a": jnp.full(2, 5.0)}, "epoch": 3,
            "key": jax.random.key(7)}


@pytest.fixture
def checkpointer(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as made:
        tidemark.jax.save(made, 1, saved_tree()).committed.result(60)
        yield made


def make_like():
    return {"params": {"a": jnp.zeros(2), "b": jnp.zeros(3)}, "ema": {"a": jnp.zeros(2)}, "epoch": 0, "key": jax.random.key(0)}


def plain(tree):
    return jax.tree_util.tree_map(lambda leaf: jax.random.key_data(leaf).tolist() if hasattr(leaf, "dtype") and jnp.issubdtype(
        leaf.dtype, jax.dtypes.prng_key) else np.asarray(leaf).astype(np.float64).tolist(), tree)


def without(tree, *names):
    return {name: item for name, item in tree.items() if name not in names}


# (the tree, the options): each is to give what `restore` gives, or its error.
CASES = {
    "all": (make_like(), {}),
    "a part": (make_like(), {"only": ["params.*"]}),
    "one array": (make_like(), {"only": ["params.a", "epoch"]}),
    "a key": (make_like(), {"only": ["key"]}),
    "a part of a smaller tree": (without(make_like(), "ema", "epoch"), {"only": ["params.?"]}),
    "a pattern that matches nothing": (make_like(), {"only": ["params.*", "paramss.*"]}),
    "other names": ({**without(make_like(), "params"), "net": make_like()["params"]}, {"renames": [("params", "net")]}),
    "an average": (make_like(), {"only": ["params.a"], "renames": [("ema", "params")]}),
    "a name that is taken": (without(make_like(), "ema"), {"renames": [("ema", "params")]}),
    "a name that is taken is skipped": (without(make_like(), "ema"), {"renames": [("ema", "params")], "allow_unexpected": True}),
    "a name that two get": (make_like(), {"renames": [("params.a", "x"), ("ema.a", "x")], "allow_missing": True}),
    "a rename of nothing": (make_like(), {"renames": [("paramss", "net")]}),
    "more": ({**make_like(), "new": jnp.full(2, 9.0)}, {}),
    "more is missing": ({**make_like(), "new": jnp.full(2, 9.0), "other": 4}, {"allow_missing": True}),
    "less": (without(make_like(), "ema"), {}),
    "less is unexpected": (without(make_like(), "ema"), {"allow_unexpected": True}),
    "another dtype": ({**make_like(), "ema": {"a": jnp.zeros(2, jnp.bfloat16)}}, {}),
    "another dtype is converted": ({**make_like(), "params": {"a": jnp.zeros(2, jnp.float16), "b": jnp.zeros(3, jnp.bfloat16)}},
                                   {"convert_dtypes": True}),
    "an integer is not converted": ({**make_like(), "params": {"a": jnp.zeros(2, jnp.int32), "b": jnp.zeros(3)}},
                                    {"convert_dtypes": True}),
    "a converted part with another name": ({"net": {"b": jnp.zeros(3, jnp.bfloat16)}, "epoch": 0},
                                           {"only": ["net.*"], "renames": [("params", "net")], "convert_dtypes": True}),
    "another shape": ({**make_like(), "ema": {"a": jnp.zeros(3)}}, {"convert_dtypes": True}),
    "another kind": ({**make_like(), "ema": {"a": 3}}, {"renames": [("epoch", "epoch")]}),
}


def outcome(call):
    try:
        return plain(call())
    except InvalidArgumentError as error:  # also a MismatchError
        lines = {line.replace("has float32 [2], state has int", "has tensor, state has a value")
                 for line in str(error).splitlines() if line.startswith("  ")}
        return sorted(lines), *(getattr(error, names, []) for names in ("missing", "reshaped", "retyped"))


@pytest.mark.parametrize("case", CASES)
def test_a_load_gives_what_a_restore_gives(checkpointer, case):
    like, options = CASES[case]
    expected = outcome(lambda: tidemark.jax.restore(checkpointer, like, **options))
    assert outcome(lambda: tidemark.jax.load(checkpointer.path, like=like, **options)) == expected


def test_what_is_left_out_is_that_of_like(checkpointer):
    like = make_like()
    loaded = tidemark.jax.load(checkpointer.path, like=like, only=["params.a"])
    assert loaded["params"]["a"].tolist() == [1, 1] and loaded["params"]["b"] is like["params"]["b"]
    abstract = jax.eval_shape(make_like)
    assert tidemark.jax.load(checkpointer.path, like=abstract, only=["params.*"])["key"] is abstract["key"]


def test_a_key_is_chosen_by_its_name(checkpointer):
    for tree in (tidemark.jax.restore(checkpointer, make_like(), only=["key"]),
                 tidemark.jax.load(checkpointer.path, like=make_like(), only=["key"])):
        assert (jax.random.key_data(tree["key"]) == jax.random.key_data(jax.random.key(7))).all() and tree["epoch"] == 0


def test_a_progress_of_a_part_is_of_its_bytes(checkpointer):
    told = []
    tidemark.jax.load(checkpointer.path, like={"net": {"a": jnp.zeros(2)}}, only=["net.*"], renames=[("params", "net")],
                      progress=told.append)
    assert (told[-1].bytes_done, told[-1].bytes_total) == (8, 8)


@pytest.mark.parametrize("options", [{"only": ["a"]}, {"renames": [("a", "b")]}, {"allow_missing": True},
                                     {"allow_unexpected": True}, {"convert_dtypes": True}])
def test_options_without_a_tree_are_refused(checkpointer, options):
    with pytest.raises(InvalidArgumentError, match=f"^{next(iter(options))} needs `like`"):
        tidemark.jax.load(checkpointer.path, **options)


@pytest.mark.parametrize("options", [{"only": "a"}, {"renames": ["a"]}, {"convert_dtypes": 1}])
def test_an_option_of_another_type_is_refused(checkpointer, options):
    with pytest.raises(InvalidArgumentError, match=next(iter(options))):
        tidemark.jax.load(checkpointer.path, like=make_like(), **options)
