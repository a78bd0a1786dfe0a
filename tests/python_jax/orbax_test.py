"""One program against Orbax's CheckpointManager and against ours: the outcomes are the same. Then where they differ."""

import datetime

import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint
import pytest
import tidemark
import tidemark.orbax
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tidemark.errors import InvalidArgumentError, UnimplementedError

# Orbax's own use of what NumPy and JAX will take away is not ours to fail for.
pytestmark = pytest.mark.filterwarnings("default")

BOTH = pytest.mark.parametrize("ocp", [orbax.checkpoint, tidemark.orbax], ids=["orbax", "tidemark"])


def make_state(fill=0.0):
    params = {"dense": {"kernel": jnp.full((4, 3), fill), "bias": jnp.arange(3, dtype=jnp.bfloat16) + fill},
              "blocks": [jnp.full(2, fill), jnp.full(2, fill + 1)]}
    return {"params": params, "optimizer": optax.adam(0.1).init(params), "step": 7, "key": jax.random.PRNGKey(int(fill))}


def bytes_of(tree):
    return [(np.asarray(leaf).dtype.name, np.asarray(leaf).tobytes()) for leaf in jax.tree.leaves(tree)]


def manager(ocp, folder, **options):
    return ocp.CheckpointManager(folder / "store", options=ocp.CheckpointManagerOptions(**options))


def outcome(call):
    try:
        return call()
    except Exception as error:  # noqa: BLE001: the class is the outcome
        # Ours are RuntimeError besides.
        return [kind for kind in (FileNotFoundError, ValueError, KeyError, Exception) if isinstance(error, kind)][0]


@BOTH
def test_a_state_comes_back_as_the_abstract_tree_says(ocp, tmp_path):
    state = make_state(3.0)
    with manager(ocp, tmp_path) as saver:
        assert saver.save(0, args=ocp.args.StandardSave(state)) is True
        saver.wait_until_finished()
        restored = saver.restore(0, args=ocp.args.StandardRestore(make_state()))
        assert jax.tree.structure(restored) == jax.tree.structure(state)
        assert bytes_of(restored) == bytes_of(state)
    mesh = Mesh(np.array(jax.devices()), ("x",))
    sharding = NamedSharding(mesh, PartitionSpec("x"))
    with manager(ocp, tmp_path) as reader:
        like = make_state()
        like["params"]["dense"]["kernel"] = jax.ShapeDtypeStruct((4, 3), jnp.float32, sharding=sharding)
        restored = reader.restore(None, args=ocp.args.StandardRestore(like))
        assert restored["params"]["dense"]["kernel"].sharding == sharding
        assert bytes_of(restored) == bytes_of(state)


@BOTH
def test_without_a_tree_dicts_and_lists_come_back(ocp, tmp_path):
    with manager(ocp, tmp_path) as saver:
        saver.save(0, args=ocp.args.StandardSave(make_state(2.0)))
        saver.wait_until_finished()
        restored = saver.restore(0)
    assert sorted(restored) == ["key", "optimizer", "params", "step"]
    assert restored["step"] == 7 and isinstance(restored["params"]["blocks"], list)
    assert sorted(restored["optimizer"][0]) == ["count", "mu", "nu"]
    assert bytes_of(restored["params"]) == bytes_of(make_state(2.0)["params"])


@BOTH
def test_named_items_come_back(ocp, tmp_path):
    with ocp.CheckpointManager(tmp_path / "store", item_names=("state", "config", "key")) as saver:
        saver.save(5, args=ocp.args.Composite(
            state=ocp.args.StandardSave({"w": jnp.ones(3)}), config=ocp.args.JsonSave({"layers": [1, 2], "name": "x"}),
            key=ocp.args.JaxRandomKeySave(jax.random.key(4))))
        saver.wait_until_finished()
        restored = saver.restore(5, args=ocp.args.Composite(
            state=ocp.args.StandardRestore({"w": jnp.zeros(3)}), config=ocp.args.JsonRestore(),
            key=ocp.args.JaxRandomKeyRestore()))
        assert restored.state["w"].tolist() == [1, 1, 1] and restored["config"] == {"layers": [1, 2], "name": "x"}
        assert jax.random.key_data(restored.key).tolist() == jax.random.key_data(jax.random.key(4)).tolist()
        part = saver.restore(5, args=ocp.args.Composite(config=ocp.args.JsonRestore()))
        assert part.config["name"] == "x" and "state" not in part


# Each is a program: it gets a manager's module and a folder, and returns what happened.


def save_all(saver, ocp, steps, **options):
    return [saver.save(step, args=ocp.args.StandardSave({"n": jnp.full(2, step)}), **options) for step in steps]


def steps_after(ocp, folder, steps, **options):
    with manager(ocp, folder, **options) as saver:
        saved = save_all(saver, ocp, steps)
        saver.wait_until_finished()
        asked = [saver.should_save(step) for step in range(12)]
        seen = list(saver.all_steps()), saver.latest_step(), saver.best_step()
    with manager(ocp, folder, **options) as again:
        return saved, asked, seen, list(again.all_steps()), again.latest_step()


def steps_by_metric(ocp, folder, scores, **options):
    with manager(ocp, folder, best_fn=lambda metrics: metrics["score"], **options) as saver:
        for step, score in enumerate(scores):
            saver.save(step, args=ocp.args.StandardSave({"n": jnp.ones(1)}),
                       metrics=None if score is None else {"score": score, "other": 1.5})
            saver.wait_until_finished()
        return list(saver.all_steps()), saver.best_step(), saver.latest_step(), saver.metrics(saver.best_step())


def step_errors(ocp, folder):
    with manager(ocp, folder) as saver:
        empty = [outcome(lambda: saver.restore(None)), outcome(lambda: saver.delete(3)),
                 saver.latest_step(), list(saver.all_steps()), saver.best_step()]
        save_all(saver, ocp, [4])
        saver.wait_until_finished()
        absent = [outcome(lambda: saver.restore(3, args=ocp.args.StandardRestore({"n": jnp.zeros(2)})))]
        again = [save_all(saver, ocp, [4]), save_all(saver, ocp, [3]), outcome(lambda: save_all(saver, ocp, [4], force=True)),
                 save_all(saver, ocp, [2], force=True)]
        saver.wait_until_finished()
        wrong = [outcome(lambda: saver.save(9)), outcome(lambda: saver.save(9, args={"n": 1})),
                 outcome(lambda: saver.save(9, args=ocp.args.Composite(a=ocp.args.JsonSave({}))))]
        misfit = [outcome(lambda: saver.restore(4, args=ocp.args.StandardRestore(like)))
                  for like in ({"n": jnp.zeros(3)}, {"m": jnp.zeros(2)}, {"n": jnp.zeros(2), "m": jnp.zeros(2)})]
        save_all(saver, ocp, [6])
        saver.wait_until_finished()
        saver.delete(4)
        return empty, absent, again, wrong, misfit, list(saver.all_steps()), saver.is_saving_in_progress()


PROGRAMS = {
    "defaults": lambda ocp, folder: steps_after(ocp, folder, range(5)),
    "max_to_keep": lambda ocp, folder: steps_after(ocp, folder, range(6), max_to_keep=2),
    "interval": lambda ocp, folder: steps_after(ocp, folder, range(1, 9), save_interval_steps=3, max_to_keep=2),
    "on_steps": lambda ocp, folder: steps_after(ocp, folder, range(9), save_interval_steps=4, save_on_steps=[3, 6]),
    "keep_period": lambda ocp, folder: steps_after(ocp, folder, range(9), max_to_keep=1, keep_period=4),
    "time_interval": lambda ocp, folder: steps_after(ocp, folder, range(4), max_to_keep=1,
                                                     keep_time_interval=datetime.timedelta(hours=1)),
    "should_save_fn": lambda ocp, folder: steps_after(ocp, folder, range(8),
                                                      should_save_fn=lambda step, last: step % 2 == 1 or step == 4),
    "synchronous": lambda ocp, folder: steps_after(ocp, folder, range(3), enable_async_checkpointing=False),
    "best_max": lambda ocp, folder: steps_by_metric(ocp, folder, [1.0, 5.0, 2.0, 3.0, 4.0], max_to_keep=2),
    "best_min": lambda ocp, folder: steps_by_metric(ocp, folder, [3.0, 5.0, 2.0, 1.0], max_to_keep=2, best_mode="min"),
    "best_ties": lambda ocp, folder: steps_by_metric(ocp, folder, [2.0, 2.0, 1.0, 2.0]),
    "best_keeps_all": lambda ocp, folder: steps_by_metric(ocp, folder, [2.0, 3.0, 1.0]),
    "without_metrics": lambda ocp, folder: steps_by_metric(ocp, folder, [None, 2.0, 3.0, 4.0], max_to_keep=1),
    "without_metrics_dropped": lambda ocp, folder: steps_by_metric(
        ocp, folder, [None, 2.0, 3.0, 4.0], max_to_keep=1, keep_checkpoints_without_metrics=False),
    "errors": step_errors,
    "best_mode": lambda ocp, folder: outcome(lambda: ocp.CheckpointManagerOptions(best_mode="most")),
    "negative": lambda ocp, folder: outcome(lambda: ocp.CheckpointManagerOptions(max_to_keep=-1)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_outcome_is_orbaxs(name, tmp_path):
    theirs = PROGRAMS[name](orbax.checkpoint, tmp_path / "theirs")
    ours = PROGRAMS[name](tidemark.orbax, tmp_path / "ours")
    assert ours == theirs


# Ours alone.


def test_the_newest_step_is_kept_even_if_it_is_not_among_the_best(tmp_path):
    with manager(tidemark.orbax, tmp_path) as saver:
        save_all(saver, tidemark.orbax, [1])
        with pytest.raises(tidemark.errors.FailedPreconditionError, match="step 1 is not deleted: latest"):
            saver.delete(1)
    scores = [1.0, 5.0, 4.0, 0.0]
    assert steps_by_metric(orbax.checkpoint, tmp_path / "theirs", scores, max_to_keep=1)[0] == [1]
    assert steps_by_metric(tidemark.orbax, tmp_path / "ours", scores, max_to_keep=1)[0] == [1, 3]


def test_what_has_no_counterpart_is_an_error_that_names_it(tmp_path):
    ocp = tidemark.orbax
    for name in ("step_prefix", "step_name_format", "read_only", "async_options", "multiprocessing_options",
                 "save_decision_policy", "preservation_policy", "todelete_subdir", "prevent_write_metrics"):
        with pytest.raises(UnimplementedError, match=rf"CheckpointManagerOptions\.{name} has no counterpart"):
            ocp.CheckpointManagerOptions(**{name: True})
    for name in ("checkpointers", "metadata", "item_handlers", "logger", "handler_registry"):
        with pytest.raises(UnimplementedError, match=rf"CheckpointManager\({name}="):
            ocp.CheckpointManager(tmp_path / "store", **{name: object()})
    for make, name in ((lambda: ocp.args.StandardSave({}, save_args={}), r"StandardSave\.save_args"),
                       (lambda: ocp.args.StandardRestore({}, strict=False), r"StandardRestore\.strict"),
                       (lambda: ocp.args.PyTreeRestore({}, transforms={}), r"PyTreeRestore\.transforms")):
        with pytest.raises(UnimplementedError, match=name):
            make()
    for options in ({"max_to_keep": 0}, {"save_interval_steps": 0}):
        with pytest.raises(InvalidArgumentError):
            ocp.CheckpointManagerOptions(**options)
    assert not hasattr(ocp.args, "ProtoSave")
    with manager(ocp, tmp_path) as saver:
        with pytest.raises(UnimplementedError, match="use args="):
            saver.save(0, {"n": 1})
        with pytest.raises(UnimplementedError, match="use args="):
            saver.restore(0, {"n": 1})
        with pytest.raises(InvalidArgumentError, match="says nothing to save"):
            saver.save(0, args=ocp.args.StandardRestore({}))
        with pytest.raises(InvalidArgumentError, match="the metric 'a/b' is a str"):
            saver.save(0, args=ocp.args.StandardSave({"n": 1}), metrics={"a": {"b": "c"}})
        assert saver.all_steps() == []


def test_an_item_is_restored_as_what_it_was_saved_as(tmp_path):
    ocp = tidemark.orbax
    with manager(ocp, tmp_path) as saver:
        saver.save(0, args=ocp.args.ArraySave(jnp.arange(3)))
        assert saver.restore(0).tolist() == [0, 1, 2]
        assert saver.restore(0, args=ocp.args.ArrayRestore(np.zeros(3, np.int32))).tolist() == [0, 1, 2]
        with pytest.raises(InvalidArgumentError, match="saved as array, so StandardRestore cannot"):
            saver.restore(0, args=ocp.args.StandardRestore({"n": 1}))
        saver.save(1, args=ocp.args.PyTreeSave({"a": jnp.ones(1), "b": 2}))
        assert saver.restore(1, args=ocp.args.PyTreeRestore({"b": 0}, partial_restore=True)) == {"b": 2}
        with pytest.raises(tidemark.MismatchError, match=r"unexpected \['a'\]"):
            saver.restore(1, args=ocp.args.PyTreeRestore({"b": 0}))
        with pytest.raises(tidemark.MismatchError):
            saver.restore(1, args=ocp.args.PyTreeRestore({"a": jnp.ones(1, jnp.bfloat16), "b": 0}))
    with tidemark.Checkpointer(tmp_path / "plain") as checkpointer:
        checkpointer.save(0, {"n": 1})
    with manager(ocp, tmp_path) as saver, pytest.raises(InvalidArgumentError, match="not saved by tidemark.orbax"):
        saver.restore(0, directory=tmp_path / "plain")


def test_metadata_and_metrics_of_a_step(tmp_path):
    ocp = tidemark.orbax
    with manager(ocp, tmp_path) as saver:
        saver.save(0, args=ocp.args.StandardSave({"n": 1}), metrics={"loss": jnp.float32(0.5), "deep": {"a": 1}},
                   custom_metadata={"lr": 0.1})
        assert saver.metrics(0) == {"loss": 0.5, "deep": {"a": 1}}
        known = saver.metadata(0)
        assert (known.item_metadata, known.custom_metadata, known.created > 0) == (["default"], {"lr": 0.1}, True)
        with pytest.raises(FileNotFoundError):
            saver.metadata(1)
    with tidemark.open(tmp_path / "store", "best:loss") as step:
        assert step.info.metrics == {"loss": 0.5, "deep/a": 1.0} and step.get_value("n") == 1


def test_a_failed_save_is_raised_by_the_next_calls(tmp_path):
    ocp = tidemark.orbax
    saver = manager(ocp, tmp_path)
    save_all(saver, ocp, [0])
    saver.wait_until_finished()
    with pytest.raises(tidemark.UnsupportedTypeError):
        saver.save(1, args=ocp.args.StandardSave({"n": object()}))
    assert saver.all_steps() == [0]
    saver.close()
    with pytest.raises(tidemark.errors.FailedPreconditionError):
        save_all(saver, ocp, [1])
