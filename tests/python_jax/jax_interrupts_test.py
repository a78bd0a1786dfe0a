"""Ctrl-C in the middle of the calls of tidemark.jax and tidemark.orbax: a KeyboardInterrupt comes out, what was committed stays,
and the call and the store work afterwards."""

import gc

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tidemark
import tidemark.jax
import tidemark.orbax as ocp
from interruption import interrupted, interrupted_at_drawn_moments

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
STATE = {"w": jnp.arange(100.0), "pair": (jnp.ones(3), 5), "key": jax.random.key(1)}
EMPTY = {"w": jnp.zeros(100), "pair": (jnp.zeros(3), 0), "key": jax.random.key(0)}


def is_state(tree):
    return ((tree["w"] == STATE["w"]).all() and (tree["pair"][0] == 1).all() and tree["pair"][1] == 5
            and np.array_equal(jax.random.key_data(tree["key"]), jax.random.key_data(STATE["key"])))


def committed(store):
    return [info.step for info in tidemark.steps(store) if info.state == "committed"]


def test_no_call_is_left_out():
    assert set(tidemark.jax.__all__) == {"load", "restore", "restore_with_report", "resume", "save"}
    assert MANAGER.keys() == {name for name in vars(ocp.CheckpointManager) if not name.startswith("_")}
    standard = {name for kind in (ocp.StandardCheckpointer, ocp.PyTreeCheckpointer) for name in vars(kind)
                if not name.startswith("_")}
    assert standard == {"check_for_errors", "close", "metadata", "restore", "save", "wait_until_finished"}
    savers = {name for name in ocp.__all__ if hasattr(getattr(ocp, name), "save")}
    assert savers == {"CheckpointManager", "PyTreeCheckpointer", "StandardCheckpointer"}


def test_a_save_of_a_tree_is_whole_or_not_there(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        def after(moment, handle):
            checkpointer.wait_until_committed()
            there = moment in committed(checkpointer.path)
            assert there or handle is None
            assert not there or is_state(tidemark.jax.load(checkpointer.path, moment, EMPTY))

        assert interrupted(lambda moment: tidemark.jax.save(checkpointer, moment, STATE), after) > 10


def test_a_restore_of_a_tree_can_be_repeated(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        tidemark.jax.save(checkpointer, 4, STATE).committed.result(60)
        for restore in (lambda _: tidemark.jax.restore(checkpointer, EMPTY),
                        lambda _: tidemark.jax.restore_with_report(checkpointer, EMPTY)[0],
                        lambda _: tidemark.jax.resume(checkpointer, EMPTY)[1],
                        lambda _: tidemark.jax.load(checkpointer.path, like=EMPTY),
                        lambda _: tidemark.jax.load(checkpointer.path)):
            def after(_, found):
                assert (found is None or is_state(found)) and is_state(restore(0))
                assert not EMPTY["w"].any()

            assert interrupted(restore, after) > 5


# Every call of a manager that has the steps 1 and 2.
MANAGER = {
    "all_steps": lambda it: it.all_steps(),
    "best_step": lambda it: it.best_step(),
    "check_for_errors": lambda it: it.check_for_errors(),
    "close": lambda it: it.close(),
    "delete": lambda it: it.delete(1),
    "directory": lambda it: it.directory,
    "is_saving_in_progress": lambda it: it.is_saving_in_progress(),
    "latest_step": lambda it: it.latest_step(),
    "metadata": lambda it: it.metadata(2),
    "metrics": lambda it: it.metrics(2),
    "reload": lambda it: it.reload(),
    "restore": lambda it: it.restore(2, args=ocp.args.StandardRestore(EMPTY)),
    "save": lambda it: it.save(3, args=ocp.args.StandardSave(STATE), metrics={"score": 1.0}),
    "should_save": lambda it: it.should_save(3),
    "wait_until_finished": lambda it: it.wait_until_finished(),
}


def open_manager(store):
    return ocp.CheckpointManager(store, options=ocp.CheckpointManagerOptions(best_fn=lambda metrics: metrics["score"]))


@pytest.mark.parametrize("name", MANAGER)
def test_a_call_of_the_manager_leaves_its_store_whole(tmp_path, name):
    opened = []

    def open_next():
        store = tmp_path / f"store{len(list(tmp_path.iterdir()))}"
        with open_manager(store) as manager:
            for step in (1, 2):
                manager.save(step, args=ocp.args.StandardSave(STATE), metrics={"score": float(step)})
        opened.append((store, open_manager(store)))

    def after(_, done):
        store, manager = opened.pop()
        manager.close()
        with open_manager(store) as again:  # the store is free
            steps = again.all_steps()
            if name == "delete":
                assert steps in ([2], [1, 2]) and (not done or steps == [2])
            elif name == "save":
                assert steps in ([1, 2], [1, 2, 3]) and (not done or steps == [1, 2, 3])
            else:
                assert steps == [1, 2]
            assert all(is_state(again.restore(step, args=ocp.args.StandardRestore(EMPTY))) for step in steps)
        open_next()

    def call(_):
        MANAGER[name](opened[0][1])
        return True

    open_next()
    long = name in ("delete", "metadata", "metrics", "restore", "save")
    assert interrupted(call, after, stride=7 if long else 1) > 0
    opened.pop()[1].close()


@pytest.mark.parametrize("kind", [ocp.StandardCheckpointer, ocp.PyTreeCheckpointer])
def test_a_checkpointer_of_a_path_saves_and_restores_again(tmp_path, kind):
    opened = []

    def save_and_restore(moment):
        opened.append(kind())
        opened[0].save(tmp_path / f"store{moment}", STATE)
        opened[0].check_for_errors()
        opened[0].wait_until_finished()
        assert is_state(opened[0].restore(tmp_path / f"store{moment}", EMPTY))
        assert opened[0].metadata(tmp_path / f"store{moment}") is not None
        opened[0].close()

    def after(moment):
        while opened:
            opened.pop().close()
        gc.collect()
        with kind() as again:  # the store is free
            again.save(tmp_path / f"store{moment}", STATE, force=True)
            again.wait_until_finished()
            assert is_state(again.restore(tmp_path / f"store{moment}", EMPTY))

    interrupted_at_drawn_moments(save_and_restore, after, 30)


def test_a_manager_whose_construction_is_interrupted_leaves_the_store_free(tmp_path):
    def construct(_):
        with open_manager(tmp_path / "store") as manager:
            return manager.should_save(1)

    def after(_):
        gc.collect()
        open_manager(tmp_path / "store").close()

    interrupted_at_drawn_moments(construct, after, 30)
