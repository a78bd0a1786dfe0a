"""What tidemark.orbax records of steps: metrics, metadata of the user's, pins; and what it asks of the store for it."""

import jax.numpy as jnp
import numpy as np
import pytest
import tidemark
import tidemark.orbax as ocp
from tidemark.errors import InvalidArgumentError


def manager(folder, **options):
    return ocp.CheckpointManager(folder / "store", options=ocp.CheckpointManagerOptions(**options))


def save_all(saver, steps, **options):
    for step in steps:
        saver.save(step, args=ocp.args.StandardSave({"n": jnp.full(2, step)}), **options)


def test_a_step_that_cannot_be_deleted_keeps_its_pin_and_tags(tmp_path):
    with manager(tmp_path, max_to_keep=1, best_fn=lambda metrics: metrics["score"]) as saver:
        save_all(saver, [1], metrics={"score": 1.0})
        save_all(saver, [2])  # without metrics: pinned
        saver.wait_until_finished()
        saver._checkpointer.tag(2, "paper")
        with pytest.raises(tidemark.errors.FailedPreconditionError, match="step 2 is not deleted: latest"):
            saver.delete(2)
        info = saver._checkpointer.latest_step()
        assert (info.pinned, info.pin_note, info.tags) == (True, "saved without metrics", ["paper"])
        save_all(saver, [3], metrics={"score": 3.0})
        saver.wait_until_finished()
        assert saver.all_steps() == [2, 3]
        saver.delete(2)
        assert saver.all_steps() == [3]


def test_a_metric_that_is_no_finite_number_is_saved_and_never_the_best(tmp_path):
    with manager(tmp_path, best_fn=lambda metrics: metrics["a"]) as saver:
        for step, score in enumerate((float("nan"), 5.0, jnp.float32("-inf"), 5.0, 4.0)):
            save_all(saver, [step], metrics={"a": score, "deep": {"b": float("inf")}})
        assert saver.best_step() == 3
        assert str(saver.metrics(0)) == str(saver.metadata(0).metrics) == "{'a': nan, 'deep': {'b': inf}}"
        assert saver.metrics(2)["a"] == float("-inf")
    with manager(tmp_path / "none", best_fn=lambda metrics: "x" if metrics["a"] == 1 else metrics["a"]) as saver:
        save_all(saver, [0], metrics={"a": float("nan")})
        assert saver.best_step() is None
        with pytest.raises(InvalidArgumentError, match=r"what best_fn returned is 'x', a str: it must be a number"):
            save_all(saver, [1], metrics={"a": 1.0})


def test_what_is_no_json_is_named(tmp_path):
    save = ocp.args.StandardSave({"n": 1})
    with manager(tmp_path) as saver:
        saver.save(0, args=save, custom_metadata={1: (2, 3)})  # which is JSON for json.dumps
        assert saver.metadata(0).custom_metadata == {"1": [2, 3]}
        for metadata, named in (({"a": {"b": object()}}, r"custom_metadata\['a'\]\['b'\] is <object"),
                                ({"a": float("nan")}, r"\['custom_metadata'\]\['a'\] is nan, a float")):
            with pytest.raises(InvalidArgumentError, match=named):
                saver.save(1, args=save, custom_metadata=metadata)
            with pytest.raises(InvalidArgumentError, match=named), ocp.StandardCheckpointer() as checkpointer:
                checkpointer.save(tmp_path / "one", {"n": 1}, custom_metadata=metadata)
        assert saver.all_steps() == [0]
    with manager(tmp_path / "json") as saver:
        with pytest.raises(InvalidArgumentError, match=r"the item 'default'\['a'\] is .*, a float32: it must be what JSON can"):
            saver.save(0, args=ocp.args.JsonSave({"a": np.float32(1)}))


def test_a_question_about_a_step_does_not_read_the_history(tmp_path, monkeypatch):
    with manager(tmp_path, save_interval_steps=2) as saver:
        assert saver.latest_step() is None
        monkeypatch.setattr(tidemark.Checkpointer, "steps", lambda self: pytest.fail("the history was read"))
        save_all(saver, [2, 4])
        assert (saver.latest_step(), saver.should_save(4), saver.should_save(5), saver.should_save(6)) == (4, False, False, True)
        with pytest.raises(ocp.StepAlreadyExistsError, match="step 2"):
            save_all(saver, [2], force=True)
        saver.wait_until_finished()
        assert (saver.latest_step(), saver.best_step()) == (4, 4)
