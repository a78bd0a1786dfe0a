"""Jobs of several ranks: they save common steps, and restore them with other numbers of ranks."""

import gc
import pathlib
import signal
import threading
import weakref

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


def test_replicas_that_differ_are_not_saved(store):
    with Job(store, 2, replicated=["*"]) as job:
        for told in job.save(1, replicas_of):  # one's own number, too
            assert isinstance(told, errors.AbortedError) and "rank 1 and rank 0 differ" in str(told)
        assert all_ok(job.save(2, lambda rank, world_size: {"model": np.arange(3)})) == [2] * 2


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
        assert report.unexpected == ["seed.1"]


def test_the_value_of_the_lowest_rank_is_read(store):
    with Job(store, 3) as job:
        all_ok(job.save(1, lambda rank, _: {"w": np.zeros(2), "who": f"rank {rank}"} if rank else {"w": np.zeros(2)}))
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


# Failures.


class Unstorable:
    pass


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("break_save, error, text", [
    (lambda state, options: state.update(bad={Unstorable()}), errors.UnsupportedTypeError, "UnsupportedTypeError"),
    (lambda state, options: state.update(bad=tidemark.Box(np.zeros(3), (4,), (2,))), errors.InvalidArgumentError, "'bad'"),
    (lambda state, options: options.update(metrics={"loss": "low"}), TypeError, "TypeError"),
    (lambda state, options: options.update(staging="later"), errors.InvalidArgumentError, "staging is 'later'"),
    (lambda state, options: options.update(user_metadata="no json"), errors.InvalidArgumentError, "user_metadata"),
], ids=["unsupported", "box", "metrics", "staging", "metadata"])
@pytest.mark.parametrize("replicated", [(), ("scale", "epoch")], ids=["", "replicated"])
def test_a_rank_that_cannot_save_aborts_all(store, failing, break_save, error, text, replicated):
    with Job(store, 3, replicated=replicated) as job:
        def save(rank, checkpointer):
            state, options = state_of(rank, 3), {}
            if rank == failing:
                break_save(state, options)
            return checkpointer.save(1, state, **options).committed.result(DEADLINE)

        results = job.each(save)
        for rank, result in enumerate(results):
            assert isinstance(result, error if rank == failing else errors.AbortedError), result
            assert rank == failing or (f"rank {failing}" in str(result) and text in str(result)), result
        assert all_ok(job.save(2, state_of)) == [2, 2, 2]
        for checkpointer in job.checkpointers:
            assert checkpointer.latest_step().step == 2


def test_the_reason_of_a_rank_is_told_of_a_step_that_is_there(store):
    with saved_by(store, 2):
        pass
    with Job(store, 2) as job:
        def save(rank, checkpointer):
            state = state_of(rank, 2) | ({"x": object()} if rank else {})
            return checkpointer.save(1, state, overwrite=True).committed.result(DEADLINE)

        of_0, of_1 = job.each(save)
        assert isinstance(of_1, errors.UnsupportedTypeError)
        assert isinstance(of_0, errors.AbortedError) and "UnsupportedTypeError" in str(of_0)


RESTORES = {
    "restore": lambda c, state: c.restore(state),
    "load": lambda c, state: c.load(like=state),
    "resume": lambda c, state: c.resume(state),
}


@pytest.mark.parametrize("restore", RESTORES.values(), ids=RESTORES)
@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_that_cannot_begin_a_restore_fails_it_on_all(store, failing, restore):
    with saved_by(store, 2):
        pass
    with Job(store, 2) as job:
        def run(rank, checkpointer):
            state = empty_like(state_of(rank, 2))
            if rank == failing:
                state["bad"] = tidemark.Box(np.zeros(3), (4,), (2,))
            return restore(checkpointer, state)

        for result in job.each(run):
            assert isinstance(result, errors.InvalidArgumentError) and "'bad' is a Box" in str(result), result
        all_ok(job.each(lambda rank, checkpointer: checkpointer.restore(empty_like(state_of(rank, 2)))))


@pytest.mark.parametrize("failing", [0, 1])
def test_a_rank_that_cannot_take_a_step_fails_the_restore_on_all(store, failing):
    class Loads:
        def __init__(self, fails=False):
            self.fails = fails

        def state_dict(self):
            return {"n": 1}

        def load_state_dict(self, state):
            if self.fails:
                raise ValueError("no room")

    with saved_by(store, 2, states=lambda rank, n: {"loads": Loads()}):
        pass
    with Job(store, 2) as job:
        results = job.each(lambda rank, checkpointer: checkpointer.restore({"loads": Loads(rank == failing)}))
        assert isinstance(results[failing], ValueError)
        assert isinstance(results[1 - failing], errors.AbortedError) and "ValueError: no room" in str(results[1 - failing])
        all_ok(job.each(lambda rank, checkpointer: checkpointer.restore({"loads": Loads()})))


def test_a_save_that_a_key_interrupts_aborts_all(store):
    class Pressed:
        def state_dict(self):
            raise KeyboardInterrupt

        def load_state_dict(self, state):
            raise AssertionError

    with Job(store, 2) as job:
        of_0, of_1 = job.save(1, lambda rank, n: {**state_of(rank, n), **({"x": Pressed()} if rank else {})})
        assert isinstance(of_1, KeyboardInterrupt)
        assert isinstance(of_0, errors.AbortedError) and "KeyboardInterrupt" in str(of_0)


def test_a_hole_in_a_tensor_is_refused(store):
    with Job(store, 2) as job:
        results = job.save(1, lambda rank, _: {"w": tidemark.Box(np.zeros(2), (6,), (3 * rank,))})
        for result in results:
            assert isinstance(result, errors.AbortedError) and "'w'" in str(result), result


class Gather:
    """The job's all-gather until `raises` is set: then it breaks it for all, and raises that."""

    def __init__(self):
        self.raises, self.returns = None, None

    def of(self, job, rank):
        inner = job.gather.of(rank)

        def all_gather(given):
            if self.raises is not None:
                job.gather.barrier.abort()
                raise self.raises
            gathered = inner(given)
            return gathered if self.returns is None else self.returns(gathered)

        job._gathers[rank] = all_gather


CALLS = {
    "restore": lambda rank, c: c.restore(empty_like(state_of(rank, 2))),
    "load": lambda rank, c: c.load(like=empty_like(state_of(rank, 2))),
    "resume": lambda rank, c: c.resume(empty_like(state_of(rank, 2))),
    "discard_after": lambda rank, c: c.discard_after(1),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("rank", [0, 1])
def test_an_all_gather_that_raises_is_an_error_of_all(store, call, rank):
    gather, job = Gather(), Job(store, 2)
    gather.of(job, rank)
    with job:
        all_ok(job.save(1, state_of))
        gather.raises = OSError("the network is down")
        results = job.each(CALLS[call])
        assert isinstance(results[rank], errors.InternalError)
        assert "all_gather raised OSError: the network is down" in str(results[rank])
        assert isinstance(results[1 - rank], errors.InternalError) and "BrokenBarrierError" in str(results[1 - rank])
        # Saves go by files.
        assert all_ok(job.save(2, state_of)) == [2, 2]


def test_an_all_gather_that_raises_at_the_opening(store):
    gather, job = Gather(), Job(store, 2)
    gather.of(job, 1)
    gather.raises = KeyError("rank 0")
    of_0, of_1 = job.open()
    assert isinstance(of_1, errors.InternalError) and "all_gather raised KeyError: 'rank 0'" in str(of_1)
    assert isinstance(of_0, errors.InternalError)
    with tidemark.Checkpointer(store) as checkpointer:  # nothing holds it
        assert checkpointer.steps() == []


@pytest.mark.parametrize("returns, text", [
    (lambda gathered: None, "all_gather returned a value of type NoneType, not a sequence of 2 byte strings"),
    (lambda gathered: gathered[:1], "all_gather returned a list of 1, not a sequence of 2 byte strings"),
    (lambda gathered: [*gathered, b""], "all_gather returned a list of 3"),
    (lambda gathered: [gathered[0], "text"], "all_gather returned a value of type str for rank 1, not bytes"),
    (lambda gathered: b"ab", "all_gather returned a value of type int for rank 0, not bytes"),
    (lambda gathered: 7, "all_gather returned a value of type int, not a sequence"),
])
def test_what_an_all_gather_must_not_return(store, returns, text):
    gather, job = Gather(), Job(store, 2)
    gather.of(job, 1)
    with job:
        all_ok(job.save(1, state_of))
        gather.returns = lambda gathered: (job.gather.barrier.abort(), returns(gathered))[1]
        of_1 = job.each(CALLS["restore"])[1]
        assert isinstance(of_1, errors.InvalidArgumentError) and text in str(of_1), of_1


def test_an_all_gather_may_return_any_sequence_of_bytes(store):
    gather, job = Gather(), Job(store, 2)
    gather.of(job, 0)
    gather.returns = lambda gathered: (bytearray(gathered[0]), memoryview(gathered[1]))
    with job:
        all_ok(job.save(1, state_of))
        assert all_ok(job.each(CALLS["resume"])) == [2, 2]


@pytest.mark.parametrize("call", [*CALLS, "should_save"])
def test_ctrl_c_comes_out_of_the_call(store, call):
    gather, job = Gather(), Job(store, 2, save_interval_seconds=1e9)
    gather.of(job, 1)
    with job:
        all_ok(job.save(1, state_of))
        gather.raises = KeyboardInterrupt()
        of_0, of_1 = job.each(CALLS.get(call, lambda rank, c: c.should_save(5)))
        assert type(of_1) is KeyboardInterrupt
        assert of_0 is False if call == "should_save" else isinstance(of_0, errors.InternalError)
        # It is raised once.
        later = job.each(CALLS["resume"])[1]
        assert isinstance(later, errors.InternalError) and "KeyboardInterrupt" in str(later)


def test_ctrl_c_at_the_opening(store):
    gather, job = Gather(), Job(store, 2)
    gather.of(job, 1)
    original = job._gathers[1]

    def pressed(given):  # on the main thread, as it comes from the keyboard
        job.gather.barrier.abort()
        signal.raise_signal(signal.SIGINT)
        return original(given)

    job._gathers[1] = pressed
    assert threading.current_thread() is threading.main_thread()
    of_0, of_1 = job.open()
    assert type(of_1) is KeyboardInterrupt and isinstance(of_0, errors.InternalError)


def test_the_all_gather_is_forgotten_at_close(store):
    gather, job = Gather(), Job(store, 2)
    gather.of(job, 1)
    with job:
        function = weakref.ref(job._gathers[1])
        del job._gathers[1]
        assert all_ok(job.each(CALLS["resume"])) == [0, 0] and function() is not None
    gc.collect()
    assert function() is None and len(job.checkpointers) == 2


@pytest.mark.parametrize("ranks, text", [
    (tidemark.Ranks(2, 2, lambda given: [given] * 2), "ranks.rank is 2"),
    (tidemark.Ranks(-1, 2, lambda given: [given] * 2), "ranks.rank is -1"),
    (tidemark.Ranks(1, 1, lambda given: [given]), "ranks.rank is 1"),
    (tidemark.Ranks(0, 0, lambda given: []), "world_size"),
    (tidemark.Ranks(0, 2, None), "all_gather is a NoneType"),
    (tidemark.Ranks(0, 2, lambda given: [given] * 2, vote_timeout=0.0), "vote_timeout"),
    (tidemark.Ranks(0, 2, lambda given: [given] * 2, replicated="model.*"), "one string"),
    (tidemark.Ranks(0, 2, lambda given: [given] * 2, outcome_margin=float("inf")), "outcome_margin"),
])
def test_options_out_of_range_are_refused(store, ranks, text):
    with pytest.raises(errors.InvalidArgumentError, match=text):
        tidemark.Checkpointer(store, ranks=ranks)


# Processes.


def test_processes_save_and_restore_over_gloo(tmp_path):
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available() or not torch.distributed.is_gloo_available():
        pytest.skip("this PyTorch has no Gloo")
    assert run_processes(PROCESS, tmp_path, 3, "save") == ["saved 1\n"] * 3
    assert run_processes(PROCESS, tmp_path, 2, "restore") == ["restored 1\n"] * 2
    with tidemark.open(tmp_path / "store") as step:
        assert step.get_tensor("weight").tobytes() == WHOLE.tobytes()
