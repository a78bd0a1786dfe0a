"""Ways back: steps that are discarded, and a copy of the state in memory."""

import pathlib
import resource
import signal

import numpy as np
import pytest
import tidemark
from tidemark import errors


def state_of(step):
    return {"w": np.full(1000, step), "epoch": step, "nested": {"a": np.zeros((2, 3)).T + step, "names": ["x"] * step},
            "generator": np.random.default_rng(step)}


def test_a_run_goes_on_from_an_older_step(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        for step in range(5):
            checkpointer.save(step, state_of(step))
        state = state_of(9)
        checkpointer.restore(state, 2)
        assert checkpointer.discard_after(2, "it went astray") == [4, 3]
        assert checkpointer.latest_step().step == 2 and checkpointer.should_save(3)
        records = {info.step: (info.state, info.reason) for info in checkpointer.steps()}
        assert records[4][0] == "deleted" and "it went astray" in records[4][1]
        assert checkpointer.discard_after(2) == []
        assert checkpointer.resume(state) == 3
        checkpointer.save(3, state)
        assert checkpointer.resume(state) == 4


@pytest.mark.parametrize("restored", ["same", "other"])
def test_the_last_save_of_a_run_that_went_back_replaces_its_unhealthy_step(tmp_path, restored):
    state = {"w": np.zeros(1000), "epoch": 0}
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.evaluator("e", lambda snapshot: tidemark.Verdict({}, "astray" if snapshot["w"][0] == 70 else ""),
                               when_lagging="block")
        for step, weight in ((6, 6), (7, 70)):
            state["w"][:] = weight
            checkpointer.save(step, state)
        checkpointer.wait_until_evaluated(60)
        with pytest.raises(tidemark.NotFoundError):
            checkpointer.restore(state, 5)
        with pytest.raises(tidemark.MismatchError, match="more"):
            checkpointer.restore({**state, "more": np.zeros(3)})
        filled = state if restored == "same" else {"w": np.zeros(1000), "epoch": 0}
        assert checkpointer.resume(filled, healthy_only=True) == 7 and filled["w"][0] == 6
        state["w"] += 1
        with tidemark.PreemptionGuard() as guard:
            signal.raise_signal(signal.SIGTERM)
            assert guard.preempted and guard.save_and_close(checkpointer, 7, state).committed
    with tidemark.open(tmp_path / "store", 7) as step:
        # A state that was restored beside the training says nothing about that: the verdict stays.
        assert step.get_tensor("w")[0] == (7 if restored == "same" else 70)


def test_what_holds_a_later_step_is_named_and_nothing_is_discarded(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        for step in range(1, 4):
            checkpointer.save(step, state_of(step)).committed.result(60)
        checkpointer.tag(2, "good")
        with pytest.raises(errors.FailedPreconditionError, match="2"):
            checkpointer.discard_after(1)
        with pytest.raises(errors.FailedPreconditionError):
            checkpointer.discard_after(0)
        assert [info.state for info in checkpointer.steps()] == ["committed"] * 3


def test_the_future_of_a_step_is_found_by_its_number(tmp_path):
    with tidemark.Checkpointer(tmp_path / "store") as checkpointer:
        checkpointer.save(1, state_of(1))
        assert checkpointer.committed(1).result(60) == 1 and checkpointer.committed(1).done()
        with pytest.raises(tidemark.NotFoundError):
            checkpointer.committed(2).result(60)


def test_a_captured_state_comes_back(tmp_path):
    state = state_of(3)
    drawn = np.random.default_rng(3).integers(1000, size=5).tolist()
    snapshot = tidemark.capture(state)
    assert snapshot.step == 0 and snapshot["w"][0] == 3 and not snapshot["w"].flags.writeable
    weights = state["w"]
    weights[:] = 8
    state["epoch"], state["nested"]["names"] = 8, []
    state["nested"]["a"][:] = 8
    state["generator"].integers(1000, size=99)
    snapshot.restore(state)
    assert state["w"] is weights and (weights == 3).all() and (state["nested"]["a"] == 3).all()
    assert state["epoch"] == 3 and state["nested"]["names"] == ["x"] * 3
    assert state["generator"].integers(1000, size=5).tolist() == drawn


def test_a_part_of_a_captured_state_comes_back():
    snapshot = tidemark.capture({"model": {"a": np.ones(3), "b": np.ones(3)}, "epoch": 1})
    state = {"model": {"a": np.zeros(3), "b": np.zeros(3)}, "epoch": 0}
    snapshot.restore(state, only=["model.a"])
    assert (state["model"]["a"].tolist(), state["model"]["b"].tolist(), state["epoch"]) == ([1] * 3, [0] * 3, 0)
    other = {"net": {"a": np.zeros(3), "b": np.zeros(3)}}
    snapshot.restore(other, renames=[("model", "net")])
    assert other["net"]["b"].tolist() == [1] * 3
    with pytest.raises(tidemark.MismatchError, match="net.b") as caught:
        snapshot.restore({"model": {"a": np.zeros(4)}, "net": {"b": np.zeros(3)}})
    assert (caught.value.missing, caught.value.reshaped) == (["net.b"], ["model.a"])
    with pytest.raises(errors.InvalidArgumentError, match="nothing"):
        snapshot.restore(state, only=["nothing"])


def test_what_cannot_be_captured_is_named():
    with pytest.raises(tidemark.UnsupportedTypeError, match="'it'"):
        tidemark.capture({"it": object()})


def test_a_capture_without_memory_is_refused():
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    state = {"w": np.zeros(1 << 27)}  # 1 GiB, never touched
    status = pathlib.Path("/proc/self/status").read_text().splitlines()
    in_use = int(next(line for line in status if line.startswith("VmSize")).split()[1]) << 10
    resource.setrlimit(resource.RLIMIT_AS, (in_use + (256 << 20), hard))
    try:
        with pytest.raises(errors.ResourceExhaustedError):
            tidemark.capture(state)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
