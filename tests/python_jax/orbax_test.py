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


def one_path(ocp, folder):
    """What StandardCheckpointer does."""
    state, path, seen = make_state(2.0), folder / "one", []
    with ocp.StandardCheckpointer() as checkpointer:
        seen.append(outcome(lambda: checkpointer.restore(path, make_state())))
        checkpointer.save(path, state)
        checkpointer.save(folder / "other", {"n": jnp.ones(2)})
        seen.append(bytes_of(checkpointer.restore(path, make_state())) == bytes_of(state))
        seen.append(sorted(checkpointer.restore(folder / "other")))
        seen.append(outcome(lambda: checkpointer.save(path, make_state(3.0))))
        checkpointer.save(path, make_state(3.0), force=True)
        checkpointer.wait_until_finished()
        like = {**make_state(), "params": jax.eval_shape(lambda: make_state()["params"])}
        seen.append(bytes_of(checkpointer.restore(path, like)) == bytes_of(make_state(3.0)))
        seen.append(outcome(lambda: checkpointer.restore(folder / "other", {"n": jnp.ones(3)})))
        checkpointer.save(path, make_state(4.0), force=True)  # closing waits for it
    return seen, bytes_of(ocp.StandardCheckpointer().restore(path, make_state())) == bytes_of(make_state(4.0))


def one_path_of_a_pytree(ocp, folder):
    checkpointer = ocp.PyTreeCheckpointer()
    checkpointer.save(folder / "one", {"a": jnp.arange(3), "b": 2})
    seen = [bytes_of(checkpointer.restore(folder / "one", item={"a": jnp.zeros(3, jnp.int32), "b": 0})),
            sorted(checkpointer.restore(folder / "one")), outcome(lambda: checkpointer.save(folder / "one", {"a": 1}))]
    checkpointer.save(folder / "one", {"a": jnp.ones(1)}, force=True)
    seen.append(sorted(checkpointer.restore(folder / "one")))
    checkpointer.close()
    return seen


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
    "standard_checkpointer": one_path,
    "pytree_checkpointer": one_path_of_a_pytree,
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
        with pytest.raises(tidemark.MismatchError, match=r"unexpected in the checkpoint: 'a' float32 \[1\]"):
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
    with pytest.raises(tidemark.errors.FailedPreconditionError, match="closed"), saver:
        pass


def test_an_exception_that_leaves_the_context_is_not_replaced_by_a_failed_save(tmp_path, caplog):
    ocp = tidemark.orbax
    saver = manager(ocp, tmp_path)
    saver.close()
    saver._checkpointer = tidemark.Checkpointer(tmp_path / "store", save_timeout=1e-9)
    with pytest.raises(ValueError, match="of the training"), saver:
        saver.save(0, args=ocp.args.StandardSave({"a": jnp.ones(1000)}))
        raise ValueError("of the training")
    assert "closing after ValueError('of the training')" in caplog.text and "step 0" in caplog.text
    manager(ocp, tmp_path).close()  # the store is free


def test_a_checkpoint_at_a_path_is_a_store_with_one_step(tmp_path):
    ocp = tidemark.orbax
    with ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "one", {"n": jnp.arange(2)}, custom_metadata={"lr": 0.1})
        checkpointer.wait_until_finished()
        with ocp.CheckpointManager(tmp_path / "one") as saver:
            assert saver.all_steps() == [0] and saver.restore(0)["n"].tolist() == [0, 1]
            assert saver.metadata(0).custom_metadata == {"lr": 0.1}
            saver.save(7, args=ocp.args.StandardSave({"n": jnp.ones(2)}))
        checkpointer.save(tmp_path / "one", {"n": jnp.zeros(2)}, force=True)  # in the place of the latest step
        assert checkpointer.restore(tmp_path / "one")["n"].tolist() == [0, 0]
    assert [info.step for info in tidemark.steps(tmp_path / "one")] == [0, 7]
    with tidemark.Checkpointer(tmp_path / "plain") as plain:
        plain.save(0, {"n": 1})
    with pytest.raises(InvalidArgumentError, match="plain was not saved by tidemark.orbax: use tidemark.jax.load"):
        ocp.StandardCheckpointer().restore(tmp_path / "plain")


def test_a_checkpointer_that_fails_holds_no_store(tmp_path, monkeypatch):
    ocp = tidemark.orbax
    checkpointer = ocp.StandardCheckpointer()
    for make, name in ((lambda: checkpointer.save(tmp_path / "one", {}, save_args={}), r"StandardSave\.save_args"),
                       (lambda: checkpointer.restore(tmp_path / "one", {}, strict=False), r"StandardRestore\.strict"),
                       (lambda: ocp.PyTreeCheckpointer().restore(tmp_path / "one", transforms={}), "transforms")):
        with pytest.raises(UnimplementedError, match=name):
            make()
    assert not (tmp_path / "one").exists()
    with pytest.raises(tidemark.UnsupportedTypeError):
        checkpointer.save(tmp_path / "one", {"n": object()})
    checkpointer.save(tmp_path / "one", {"n": 1})  # the failed save has left no step and released the store
    (tmp_path / "file").write_text("")
    with pytest.raises(tidemark.errors.Error):
        checkpointer.save(tmp_path / "file", {"n": 1})
    assert checkpointer.restore(tmp_path / "one") == {"n": 1}

    def fail(self, *arguments, **options):
        raise tidemark.errors.ResourceExhaustedError("the disk is full")

    checkpointer.save(tmp_path / "two", {"n": 1})
    close = tidemark.Checkpointer.close
    monkeypatch.setattr(tidemark.Checkpointer, "close", lambda self, *_, **__: (close(self), fail(self)))
    with pytest.raises(tidemark.errors.ResourceExhaustedError, match="the disk is full"):
        checkpointer.wait_until_finished()
    checkpointer.close()  # it has been raised


@BOTH
def test_a_pytree_checkpointer_takes_orbaxs_arguments(ocp, tmp_path):
    checkpointer = ocp.PyTreeCheckpointer(use_ocdbt=True)
    checkpointer.save(tmp_path / "one", {"n": jnp.arange(2)}, custom_metadata={"lr": 0.1})
    assert checkpointer.metadata(tmp_path / "one").custom_metadata == {"lr": 0.1}
    checkpointer.save(tmp_path / "one", args=ocp.args.PyTreeSave({"n": jnp.arange(3)}), force=True)
    assert checkpointer.restore(tmp_path / "one", args=ocp.args.PyTreeRestore())["n"].tolist() == [0, 1, 2]
    with ocp.StandardCheckpointer() as standard:
        standard.save(tmp_path / "two", {"n": jnp.arange(2)}, custom_metadata={"lr": 0.2})
        standard.wait_until_finished()
        standard.check_for_errors()
        assert standard.metadata(tmp_path / "two").custom_metadata == {"lr": 0.2}


def test_an_argument_of_a_checkpointer_without_a_counterpart_is_named(tmp_path):
    ocp = tidemark.orbax
    for name in ("async_options", "multiprocessing_options", "file_options", "atomicity_options", "checkpoint_metadata_store",
                 "temporary_path_class"):
        ocp.StandardCheckpointer(**{name: None})
        with pytest.raises(UnimplementedError, match=rf"StandardCheckpointer\({name}="):
            ocp.StandardCheckpointer(**{name: object()})
    with pytest.raises(UnimplementedError, match=r"PyTreeCheckpointer\(primary_host="):
        ocp.PyTreeCheckpointer(1)
    checkpointer = ocp.PyTreeCheckpointer()
    with pytest.raises(UnimplementedError, match=r"PyTreeCheckpointer\.save\(save_context="):
        checkpointer.save(tmp_path / "one", {"n": 1}, save_context=object())
    for arguments in ({}, {"item": {"n": 1}, "args": ocp.args.PyTreeSave({"n": 1})}):
        with pytest.raises(InvalidArgumentError, match="give either item or args"):
            checkpointer.save(tmp_path / "one", **arguments)
    with pytest.raises(UnimplementedError, match=r"PyTreeRestore\.transforms"):
        checkpointer.restore(tmp_path / "one", transforms={})
    with ocp.StandardCheckpointer() as standard, pytest.raises(InvalidArgumentError):
        standard.save(tmp_path / "one", jnp.ones(3))  # a single leaf
    with ocp.CheckpointManager(tmp_path / "named") as saver:
        saver.save(0, args=ocp.args.Composite(a=ocp.args.StandardSave({"n": 1})))
    with pytest.raises(tidemark.NotFoundError, match="has no item"):
        ocp.StandardCheckpointer().restore(tmp_path / "named")
    with pytest.raises(FileNotFoundError):
        ocp.StandardCheckpointer().metadata(tmp_path / "none")


def test_a_failed_save_of_a_checkpointer_is_raised_by_check_for_errors(tmp_path, monkeypatch):
    opened = tidemark.Checkpointer
    monkeypatch.setattr("tidemark.orbax._checkpointers.Checkpointer", lambda path: opened(path, save_timeout=1e-9))
    checkpointer = tidemark.orbax.StandardCheckpointer()
    checkpointer.check_for_errors()  # there is no save
    checkpointer.save(tmp_path / "one", {"a": jnp.ones(1000)})
    with pytest.raises(tidemark.errors.DeadlineExceededError):
        for _ in range(10**6):
            checkpointer.check_for_errors()
    checkpointer.close()  # it has been raised


def test_an_exception_is_not_replaced_by_the_failed_save_of_a_checkpointer(tmp_path, caplog, monkeypatch):
    ocp = tidemark.orbax
    one, opened = {"a": jnp.ones(1000)}, tidemark.Checkpointer
    monkeypatch.setattr("tidemark.orbax._checkpointers.Checkpointer", lambda path: opened(path, save_timeout=1e-9))
    with pytest.raises(ValueError, match="of the training"), ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(tmp_path / "one", one)
        raise ValueError("of the training")
    assert "closing after ValueError('of the training')" in caplog.text and "step 0" in caplog.text
    opened(tmp_path / "one").close()  # it is free

    class Failing(opened):
        def save(self, *arguments, **options):
            super().save(*arguments, **options)
            raise ValueError("after the save")

    monkeypatch.setattr("tidemark.orbax._checkpointers.Checkpointer", lambda path: Failing(path, save_timeout=1e-9))
    with pytest.raises(ValueError, match="after the save"):
        checkpointer.save(tmp_path / "one", one)
    opened(tmp_path / "one").close()


def test_a_wait_that_is_interrupted_can_be_repeated_and_raises_the_failure(tmp_path, monkeypatch):
    checkpointer = tidemark.orbax.StandardCheckpointer()
    opened, waits = tidemark.Checkpointer, []
    monkeypatch.setattr("tidemark.orbax._checkpointers.Checkpointer", lambda path: opened(path, save_timeout=1e-9))

    def close(self, *arguments, **options):
        waits.append(self)
        if len(waits) <= 2:  # Ctrl-C ends the wait, and the second try at once, too
            raise KeyboardInterrupt
        return whole(self, *arguments, **options)

    checkpointer.save(tmp_path / "one", {"a": jnp.ones(1000)})
    whole = opened.close
    monkeypatch.setattr(opened, "close", close)
    with pytest.raises(KeyboardInterrupt):
        checkpointer.wait_until_finished()
    with pytest.raises(tidemark.errors.DeadlineExceededError):
        checkpointer.wait_until_finished()
    assert len(waits) == 3
    checkpointer.close()  # it has been raised
