"""What a job of several ranks is told when one of them cannot save or restore, or when the all-gather fails."""

import gc
import signal
import threading
import weakref

import numpy as np
import pytest
import tidemark
from rank_jobs import DEADLINE, Job, all_ok, empty_like, saved_by, state_of
from tidemark import errors


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


class Unstorable:
    pass


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("break_save, error, text", [
    (lambda state, options: state.update(bad={Unstorable()}), errors.UnsupportedTypeError, "UnsupportedTypeError"),
    (lambda state, options: state.update(bad=tidemark.Box(np.zeros(3), (4,), (2,))), errors.InvalidArgumentError, "'bad'"),
    (lambda state, options: options.update(metrics={"loss": "low"}), errors.InvalidArgumentError, "a number"),
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
        assert isinstance(results[1 - failing], errors.AbortedError) and "ValueError('no room')" in str(results[1 - failing])
        all_ok(job.each(lambda rank, checkpointer: checkpointer.restore({"loads": Loads()})))


@pytest.mark.parametrize("told, error, text", [
    (lambda given: None, errors.InvalidArgumentError, "returned None, not a sequence of 2"),
    (lambda given: [given], errors.InvalidArgumentError, "not a sequence of 2"),
    (lambda given: [given, b"something else"], errors.FailedPreconditionError, "rank 1 is in another call"),
    (lambda given: 1 / 0, errors.InternalError, "all_gather raised ZeroDivisionError")])
def test_an_all_gather_that_fails_at_the_end_of_a_restore_is_an_error(store, told, error, text):
    with saved_by(store, 2):
        pass
    job = Job(store, 2)
    inner = job.gather.of(0)
    job._gathers[0] = lambda given: inner(given) and told(given) if given.startswith(b"tidemark: ") else inner(given)
    with job:
        of_0, of_1 = job.each(lambda rank, checkpointer: checkpointer.restore(empty_like(state_of(rank, 2))))
        assert isinstance(of_0, error) and text in str(of_0)
        assert of_1.step == 1


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


def test_ctrl_c_at_the_opening(store, python_handles_ctrl_c):
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
    (tidemark.Ranks(0, 2, None), "ranks.all_gather is None, a NoneType: it must be a function"),
    (tidemark.Ranks(0, 2, lambda given: [given] * 2, vote_timeout=0.0), "vote_timeout"),
    (tidemark.Ranks(0, 2, lambda given: [given] * 2, replicated="model.*"), "one string"),
    (tidemark.Ranks(0, 2, lambda given: [given] * 2, outcome_margin=float("inf")), "outcome_margin"),
])
def test_options_out_of_range_are_refused(store, ranks, text):
    with pytest.raises(errors.InvalidArgumentError, match=text):
        tidemark.Checkpointer(store, ranks=ranks)
