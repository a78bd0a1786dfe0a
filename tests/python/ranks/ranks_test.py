"""Jobs of several ranks: they save common steps, and restore them with other numbers of ranks."""

import pathlib
import time

import numpy as np
import pytest
import tidemark
from rank_jobs import (
    DEADLINE, WHOLE, Job, all_ok, empty_like, is_same, on_each_rank, run_processes, saved_by, state_of)
from tidemark import errors

PROCESS = pathlib.Path(__file__).parent / "rank_process.py"


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


# Saves and restores.


def restored_by(store, world_size, states=state_of, **options):
    """The states that a job of so many ranks restores, and the reports."""
    with Job(store, world_size) as job:
        def restore(rank, checkpointer):
            state = empty_like(states(rank, world_size))
            return state, checkpointer.restore(state, **options)

        return all_ok(job.each(restore))


@pytest.mark.parametrize("world_size", [1, 2, 3, 5])
def test_another_number_of_ranks_restores(store, world_size):
    with saved_by(store, 3):
        pass
    # A job of one process has no other ranks whose entries could be left out.
    restored = restored_by(store, world_size, allow_missing=True, allow_unexpected=world_size == 1)
    for rank, (state, report) in enumerate(restored):
        wanted = state_of(rank, world_size)
        if rank >= 3:
            wanted[f"seed.{rank}"] = None  # no rank has saved it
        assert is_same(state, wanted)
        assert report.step == 1 and report.missing == ([f"seed.{rank}"] if rank >= 3 else [])


def test_a_job_of_one_process_restores_what_ranks_have_saved(store):
    with saved_by(store, 3):
        pass
    state = {"weight": np.zeros_like(WHOLE), "scale": np.zeros(3), "epoch": 0, "seed.0": 0, "seed.1": 0, "seed.2": 0}
    with tidemark.Checkpointer(store) as checkpointer:
        assert checkpointer.resume(state) == 2
    assert state["weight"].tobytes() == WHOLE.tobytes() and state["seed.2"] == 102 and state["epoch"] == 4


def test_ranks_restore_what_one_process_has_saved(store):
    with tidemark.Checkpointer(store) as checkpointer:
        checkpointer.save(6, {"weight": WHOLE, "scale": np.arange(3.0), "epoch": 4}).committed.result(DEADLINE)
    for rank, (state, _) in enumerate(restored_by(store, 3, allow_missing=True)):
        assert state["weight"].array.tobytes() == state_of(rank, 3)["weight"].array.tobytes() and state["epoch"] == 4


def replicas_of(rank, world_size):
    """A state that is the same on all ranks but for a number."""
    return {"model": {name: np.arange(100.0) + len(name) for name in ("a", "bb", "ccc")}, "epoch": 3, f"seed.{rank}": rank}


@pytest.mark.parametrize("staging", ["blocking", "overlapped"])
def test_what_all_ranks_have_is_written_once(store, staging):
    with Job(store, 3, replicated=["model.*", "epoch"], staging=staging) as job:
        assert all_ok(job.save(1, replicas_of)) == [1] * 3
        info = job.checkpointers[1].steps()[0]
        assert info.entry_count == 3 + 1 + 3 and info.logical_bytes == 3 * 800 + 8 + 3 * 8
    for world_size in (1, 2, 4):
        with Job(store, world_size) as job:
            def restore(rank, checkpointer):
                state = {"model": {name: np.zeros(100) for name in ("a", "bb", "ccc")}, "epoch": 0}
                checkpointer.restore(state, allow_unexpected=True)
                return state

            for state in all_ok(job.each(restore)):
                for name, array in replicas_of(0, 1)["model"].items():
                    assert np.array_equal(state["model"][name], array)
                assert state["epoch"] == 3


def test_an_evaluator_sees_what_other_ranks_write(store):
    seen = {}
    with Job(store, 2, replicated=["model.*"]) as job:
        @job.checkpointers[1].evaluator("e")
        def evaluate(snapshot):
            seen.update({name: np.array(snapshot[name]) for name in ("model.a", "model.bb", "model.ccc")})

        assert all_ok(job.save(1, replicas_of)) == [1] * 2
        job.checkpointers[1].wait_until_evaluated(DEADLINE)
        assert job.checkpointers[0].steps()[0].entry_count == 3 + 2 * 2
    for name, array in replicas_of(0, 1)["model"].items():
        assert np.array_equal(seen[f"model.{name}"], array)


def test_texts_of_other_lengths_and_a_box_that_is_all_do_not_differ(store):
    def state(rank, world_size):
        row = tidemark.Box(np.full((1 - rank, 4), 2.0), (1, 4), (rank, 0))  # rank 1 has nothing of it
        return {"w": np.arange(3), "note": "x" * (1 + 1000 * rank), "row": row}

    with Job(store, 2, replicated=["*"]) as job:
        assert all_ok(job.save(1, state)) == [1] * 2
        with tidemark.open(store) as step:
            assert step.get_value("note") == "x" and step.get_tensor("row").tolist() == [[2.0] * 4]


def test_replicas_that_differ_are_not_saved(store):
    with Job(store, 2, replicated=["*"]) as job:
        for told in job.save(1, replicas_of):  # one's own number, too
            assert isinstance(told, errors.AbortedError) and "rank 1 and rank 0 differ" in str(told)
        assert all_ok(job.save(2, lambda rank, world_size: {"model": np.arange(3)})) == [2] * 2


def test_replicas_are_compared(store):
    """Not values, nor what each rank has of its own."""
    states = [{"model": {"w": np.ones(4), "b": np.ones(2), "step": rank}, "mine": np.full(2, rank)} for rank in range(3)]
    with Job(store, 3, replicated=["model.*"]) as job:
        def compare(rank, checkpointer):
            checkpointer.compare_replicas(states[rank])

        all_ok(job.each(compare))
        states[2]["model"]["b"][1] = 1.0000001
        for error in job.each(compare):
            assert isinstance(error, errors.FailedPreconditionError)
            assert "1 of 2 replicated tensors" in str(error) and "model.b" in str(error)
            assert "other bytes on rank 2 than" in str(error)
        states[2]["model"]["b"][1] = 1.0
        states[1]["model"]["other"] = object()
        first, second, third = job.each(compare)
        assert isinstance(second, errors.UnsupportedTypeError) and "model.other" in str(second)
        assert "rank 1: UnsupportedTypeError: " in str(first) and str(first) == str(third)
        del states[1]["model"]["other"]
        assert all_ok(job.save(1, lambda rank, _: states[rank])) == [1] * 3
    with pytest.raises(errors.FailedPreconditionError, match="closed"):
        job.checkpointers[0].compare_replicas(states[0])
    with tidemark.Checkpointer(store) as checkpointer:
        checkpointer.compare_replicas(states[0])  # one process has nothing to compare


def test_replicas_are_compared_as_they_are(store):
    """And not as they would be saved."""
    with Job(store, 2, replicated=["w"], saved_dtypes={"w": "bfloat16"}) as job:
        states = [{"w": np.full(4, value, np.float32)} for value in (1.0, 1.00001)]
        for error in job.each(lambda rank, checkpointer: checkpointer.compare_replicas(states[rank])):
            assert isinstance(error, errors.FailedPreconditionError) and "w" in str(error)
        assert all_ok(job.save(1, lambda rank, _: states[rank])) == [1] * 2


def test_one_rank_is_as_none(store):
    def never(given):
        raise AssertionError("there is no other rank")

    with tidemark.Checkpointer(store, ranks=tidemark.Ranks(0, 1, never), save_interval_seconds=1.0) as checkpointer:
        checkpointer.save(1, {"w": np.arange(4)}).committed.result(DEADLINE)
        assert not checkpointer.should_save(2)
        with pytest.raises(errors.MismatchError) as error:
            checkpointer.restore({"v": np.arange(4)}, allow_missing=True)
        assert error.value.unexpected == ["w"]


def test_resume_and_the_rules_agree(store):
    with Job(store, 2, save_interval_steps=3) as job:
        assert all_ok(job.each(lambda rank, c: c.resume(empty_like(state_of(rank, 2))))) == [0, 0]
        due = all_ok(job.each(lambda rank, c: [step for step in range(1, 8) if c.should_save(step)]))
        assert due == [[3, 6], [3, 6]]
        for step in (3, 6):
            all_ok(job.save(step, state_of))
        assert all_ok(job.each(lambda rank, c: c.resume(empty_like(state_of(rank, 2))))) == [7, 7]
        assert all_ok(job.each(lambda rank, c: c.discard_after(3))) == [[6], [6]]
        assert all_ok(job.each(lambda rank, c: c.resume(empty_like(state_of(rank, 2))))) == [4, 4]


def test_rank_0_decides_where_a_function_does(store):
    with Job(store, 2, save_when=lambda question: question.step in (2, 5)) as job:
        assert all_ok(job.each(lambda rank, c: [c.should_save(step) for step in range(1, 6)])) == [
            [False, True, False, False, True]] * 2


def test_ranks_with_other_rules_are_refused(store):
    gather = Job(store, 2)
    opened = on_each_rank(2, lambda rank: tidemark.Checkpointer(store, ranks=gather.ranks(rank), save_interval_steps=1 + rank))
    assert all(isinstance(error, errors.Error) for error in opened)
    assert "options that must be the same on all ranks differ" in str(opened[1]) + str(opened[0])


def test_metrics_and_metadata_are_those_of_rank_0(store):
    with Job(store, 2) as job:
        all_ok(job.each(lambda rank, c: c.save(1, state_of(rank, 2), metrics={"loss": float(rank)},
                                               user_metadata=f'{{"rank": {rank}}}').committed.result(DEADLINE)))
    (info,) = tidemark.steps(store)
    assert info.metrics == {"loss": 0.0} and info.user_metadata == '{"rank": 0}' and info.state == "committed"


def test_a_missing_value_is_a_mismatch_and_another_ranks_entries_are_none(store):
    with saved_by(store, 2) as job:
        def restore(rank, checkpointer):
            state = empty_like(state_of(rank, 2))
            if rank == 1:
                state["extra"] = np.zeros(2)
            return checkpointer.restore(state)

        of_0, of_1 = job.each(restore)
        assert isinstance(of_1, errors.MismatchError) and of_1.missing == ["extra"] and of_1.unexpected == []
        assert isinstance(of_0, errors.Error) and "rank 1" in str(of_0)
        report = all_ok(job.each(lambda rank, c: c.restore(empty_like(state_of(rank, 2)))))[0]
        assert report.unexpected == []  # rank 0 has read its own part alone
    with Job(store, 1) as job:
        (report,) = all_ok(job.each(lambda rank, c: c.restore(empty_like(state_of(rank, 1)), allow_unexpected=True)))
        assert report.unexpected == ["seed.1"]


def test_the_value_of_the_lowest_rank_is_read(store):
    def named(rank, _):
        return {"w": np.zeros(2), "who": f"rank {rank}"} if rank else {"w": np.zeros(2)}

    with Job(store, 3) as job:
        all_ok(job.save(1, named))
    # Where the job is started again as it was, it is a rank's own.
    for rank, (state, _) in enumerate(restored_by(store, 3, named)):
        assert state.get("who", "rank 0") == f"rank {rank}"
    state = {"w": np.ones(2), "who": ""}
    with tidemark.Checkpointer(store) as checkpointer:
        checkpointer.restore(state)
    assert state["who"] == "rank 1"


# Reading a store.


def test_a_store_of_ranks_is_read_as_wholes(store):
    with saved_by(store, 3, step=8):
        with tidemark.open(store) as step:
            assert sorted(step.keys()) == ["scale", "weight"] and step.info.step == 8
            assert step.get_tensor("weight").tobytes() == WHOLE.tobytes()
            assert step.get_slice("weight").get_shape() == [12, 5]
            assert step.get_slice("weight")[3:9, 1].tobytes() == WHOLE[3:9, 1].tobytes()
            assert step.get_value("seed.2") == 102
        assert [info.step for info in tidemark.steps(store)] == [8]
        assert tidemark.verify(store).damage == []


def test_an_evaluator_sees_the_entries_of_its_rank(store):
    seen = {}

    def of(rank):
        def evaluate(snapshot):
            seen[rank] = snapshot["weight"].tobytes(), sorted(snapshot)
            return {"rank": float(rank)}

        return evaluate

    with Job(store, 2) as job:
        all_ok(job.each(lambda rank, c: c.evaluator(f"e{rank}", of(rank))))
        all_ok(job.save(1, state_of))
        all_ok(job.each(lambda rank, c: c.wait_until_evaluated(DEADLINE)))
    for rank in (0, 1):
        state = state_of(rank, 2)
        assert seen[rank] == (state["weight"].array.tobytes(), sorted(state))
    assert {"e0/rank": 0.0, "e1/rank": 1.0}.items() <= tidemark.steps(store)[0].metrics.items()


def test_what_only_one_process_or_rank_0_can_do(store):
    with saved_by(store, 2) as job:
        first, second = job.checkpointers
        for checkpointer in (first, second):
            with pytest.raises(errors.UnimplementedError, match="companions"):
                checkpointer.add_average("ema")
        for refused in (lambda: second.delete(1), second.tidy, second.retention_plan):
            with pytest.raises(errors.FailedPreconditionError, match="only rank 0"):
                refused()
        second.tag(1, "kept")
        assert [decision.step for decision in first.retention_plan()] == [1]


# The end of a job.


def test_all_ranks_end_with_the_one_that_is_told_to(store):
    with Job(store, 3) as job:
        # Rank 1 has a minute left, and rank 2 an hour.
        guards = [tidemark.PreemptionGuard(signals=(), grace=7200.0, end=time.time() + left)
                  for left in (1e9, 60.0, 3600.0)]
        assert [guard.preempted for guard in guards] == [False, True, True]

        def end(rank, checkpointer):
            asked = guards[rank].preempted_on_any_rank(checkpointer)
            return asked, guards[rank].preempted, guards[rank].seconds_left(), guards[rank].save_and_close(
                checkpointer, 7, state_of(rank, 3))

        for asked, preempted, left, report in all_ok(job.each(end)):
            assert asked and preempted and report.committed, report
            assert 0.0 < left <= 60.0
    with tidemark.open(store) as step:
        assert step.info.step == 7 and step.get_tensor("weight").tobytes() == WHOLE.tobytes()


def test_nobody_ends_where_nobody_is_told_to(store):
    with Job(store, 2) as job:
        guards = [tidemark.PreemptionGuard(signals=()) for _ in range(2)]
        assert job.each(lambda rank, checkpointer: guards[rank].preempted_on_any_rank(checkpointer)) == [False, False]
        assert [guard.seconds_left() for guard in guards] == [float("inf")] * 2
    assert [guard.preempted for guard in guards] == [False, False]


def test_a_rank_that_does_not_come_to_the_end_is_given_up(store):
    with Job(store, 2) as job:
        guard = tidemark.PreemptionGuard(signals=(), grace=10.0, end=time.time() + 10.0)
        report = guard.save_and_close(job.checkpointers[0], 7, state_of(0, 2))
        assert isinstance(report.save, errors.AbortedError) and "no vote of rank 1" in str(report.save)


def test_one_process_asks_nobody_whether_it_ends(store):
    with tidemark.Checkpointer(store) as checkpointer:
        assert not tidemark.PreemptionGuard(signals=()).preempted_on_any_rank(checkpointer)
        guard = tidemark.PreemptionGuard(signals=(), grace=60.0, end=time.time() + 60.0)
        assert guard.preempted_on_any_rank(checkpointer) and guard.seconds_left() <= 60.0
    assert tidemark.PreemptionGuard(signals=(), grace=60.0, end=time.time()).preempted_on_any_rank(checkpointer)


# Processes.


def test_processes_save_and_restore_over_gloo(tmp_path):
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this PyTorch has no Gloo")
    assert run_processes(PROCESS, tmp_path, 3, "save") == ["saved 1\n"] * 3
    assert run_processes(PROCESS, tmp_path, 2, "restore") == ["restored 1\n"] * 2
    with tidemark.open(tmp_path / "store") as step:
        assert step.get_tensor("weight").tobytes() == WHOLE.tobytes()
    # Rank 1 gets a SIGTERM after step 5.
    assert run_processes(PROCESS, tmp_path, 3, "train") == ["ended after 6\n"] * 3
    with tidemark.open(tmp_path / "store") as step:
        assert step.info.step == 6
