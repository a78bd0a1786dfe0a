"""AsyncTrainer in jobs of several ranks, each a thread: that all of them do the same."""

import threading
import time

import numpy as np
import pytest
import tidemark
from rank_jobs import DEADLINE, ThreadGather, all_ok, on_each_rank
from tidemark import errors
from tidemark._checkpointer import ranks

STEPS = 12


class Rank:
    """A rank of a data-parallel job: an array that is the same on all, and draws of its own."""

    def __init__(self, store, rank, gather, **options):
        self.weights = np.ones(50)
        self.draws = np.random.default_rng(rank)
        self.state = {"weights": self.weights, f"draws.{rank}": self.draws, f"sum.{rank}": 0.0}
        self.rank, self.trained, self.divergences = rank, [], []
        self.factor = lambda step: 1.01
        ranks = tidemark.Ranks(rank, 2, gather.of(rank), vote_timeout=DEADLINE, replicated=("weights",))
        self.trainer = tidemark.AsyncTrainer(store, self.state, self.train, ranks=ranks, on_divergence=self.divergences.append,
                                             **{"preemption": False, **options})

    def train(self, step):
        self.weights *= self.factor(step)
        self.state[f"sum.{self.rank}"] += self.draws.random()
        self.trained.append(step)
        return {"rank": float(self.rank)}


class Job:
    """Two ranks. `of_rank(rank)`: further options of each."""

    def __init__(self, store, of_rank=lambda rank: {}, **options):
        self.gather = ThreadGather(2)
        self.ranks = [Rank(store, rank, self.gather, **options, **of_rank(rank)) for rank in (0, 1)]

    def run(self, steps=STEPS):
        """The reports, or what the ranks raised."""
        return on_each_rank(2, lambda rank: self.ranks[rank].trainer.run(steps))

    def sums(self):
        return [rank.state[f"sum.{rank.rank}"] for rank in self.ranks]


def committed(store):
    return {info.step: info for info in tidemark.steps(store) if info.state == "committed"}


def health(rank, **options):
    return {"health": tidemark.HealthMonitor(entries=["weights"], norm_jump_max=10.0, **options)}


def test_ranks_save_and_resume_together(tmp_path):
    whole = Job(tmp_path / "whole")
    all_ok(whole.run())
    # Rank 1 would save other steps.
    first = Job(tmp_path / "parts", lambda rank: {"save_when": lambda question: question.step % 3 == 2 * (1 - rank)})
    reports = all_ok(first.run(8))
    assert [(report.first, report.next) for report in reports] == [(0, 8)] * 2
    assert sorted(committed(tmp_path / "parts")) == [2, 5, 7] and committed(tmp_path / "parts")[7].metrics == {"rank": 0.0}
    second = Job(tmp_path / "parts")
    assert [report.first for report in all_ok(second.run())] == [8, 8]
    assert second.sums() == whole.sums() and len(set(second.sums())) == 2
    assert all((rank.weights == whole.ranks[0].weights).all() for rank in second.ranks)
    with tidemark.open(tmp_path / "parts") as step:
        assert step.info.step == STEPS - 1 and {"sum.0", "sum.1"} <= set(step.value_keys())


@pytest.mark.parametrize("steps", [STEPS, 1])
def test_a_rank_that_is_told_to_end_ends_all(tmp_path, steps):
    """Rank 1 has a minute left from the beginning, also where the first step is the last one."""
    job = Job(tmp_path / "store", lambda rank: {"preemption": tidemark.PreemptionGuard(
        signals=(), grace=60.0, end=time.time() + (60.0 if rank else 1e9))}, save_interval_steps=5)
    reports = all_ok(job.run(steps))
    assert [rank.trained for rank in job.ranks] == [[0]] * 2
    for report in reports:
        assert report.next == 1 and report.preempted is not None and report.preempted.committed, report
    assert list(committed(tmp_path / "store")) == [0]
    second = Job(tmp_path / "store")
    assert [report.first for report in all_ok(second.run())] == [1, 1]
    whole = Job(tmp_path / "whole")
    all_ok(whole.run())
    assert second.sums() == whole.sums()


def test_rank_0_alone_evaluates(tmp_path):
    job, seen = Job(tmp_path / "store", save_interval_steps=5), []
    for rank in job.ranks:
        @rank.trainer.evaluator("validation", when_lagging="block")
        def evaluate(snapshot, rank=rank.rank):
            seen.append((rank, snapshot.step))
            return {"norm": float(snapshot["weights"].sum())}

    all_ok(job.run())
    assert seen == [(0, 0), (0, 5), (0, 10), (0, 11)]
    assert "validation/norm" in committed(tmp_path / "store")[11].metrics


def test_all_ranks_go_back_when_rank_0_diverges(tmp_path):
    job = Job(tmp_path / "store", health, save_interval_steps=2)
    for rank in job.ranks:
        rank.factor = lambda step, rank=rank: 1000.0 if step >= 6 and not rank.divergences else 1.01
    first, second = all_ok(job.run())
    assert first.rollbacks == second.rollbacks and [step for _, step in first.rollbacks] == [4]
    assert [rank.divergences for rank in job.ranks] == [[first.rollbacks[0][0]]] * 2
    assert job.ranks[0].trained == job.ranks[1].trained and job.ranks[1].weights[0] == pytest.approx(1.01 ** STEPS)
    assert all(info.unhealthy == "" for info in committed(tmp_path / "store").values())


def test_an_error_before_a_rollback_is_one_of_all_ranks(tmp_path):
    job, gate = Job(tmp_path / "store", health, close_timeout=1.0), threading.Event()
    for rank in job.ranks:
        rank.factor = lambda step: 1000.0 if step >= 6 else 1.01
        rank.trainer.evaluator("slow")(lambda snapshot: gate.wait(600) and None)
    try:
        first, second = job.run(10**6)
        assert isinstance(first, errors.DeadlineExceededError) and "slow" in str(first)
        assert isinstance(second, errors.AbortedError) and "rank 0 could not wait for the evaluations" in str(second)
    finally:
        gate.set()


@pytest.mark.parametrize("of_rank", [health, lambda rank: {}])
def test_an_error_at_the_end_is_one_of_all_ranks(tmp_path, monkeypatch, of_rank):
    job = Job(tmp_path / "store", of_rank)

    def fail(*_):
        raise errors.DeadlineExceededError("a save hangs")

    monkeypatch.setattr(job.ranks[1].trainer, "_wait_for_the_end", fail)
    first, second = job.run()
    assert isinstance(first, errors.AbortedError) and "rank 1 could not end the run: DeadlineExceededError" in str(first)
    assert isinstance(second, errors.DeadlineExceededError)


def test_a_rank_that_has_failed_ends_the_others(tmp_path):
    job = Job(tmp_path / "store", save_interval_steps=10)

    def fail(step):
        if step == 3:
            job.gather.barrier.abort()  # as the death of its process does
            raise RuntimeError("there is no data")
        return 1.01

    job.ranks[1].factor = fail
    first, second = job.run(50)
    # It may still be asking after step 2.
    assert isinstance(second, RuntimeError) and job.ranks[0].trained in ([0, 1, 2], [0, 1, 2, 3])
    assert isinstance(first, errors.InternalError) and "BrokenBarrierError" in str(first)


def test_a_rank_that_cannot_be_set_up_ends_all(tmp_path):
    def setup(checkpointer):
        raise RuntimeError("there is no average")

    job = Job(tmp_path / "store", lambda rank: {"setup": setup} if rank else {})
    first, second = job.run()
    assert isinstance(second, RuntimeError)
    assert isinstance(first, errors.AbortedError) and "rank 1 could not set up the run: RuntimeError: there is" in str(first)


def test_a_monitor_that_fails_is_an_error_of_all_ranks(tmp_path):
    class Failing(tidemark.HealthMonitor):
        calls = 0

        def take_divergence(self):
            self.calls += 1
            if self.calls > 3:
                raise RuntimeError("there is no monitor")
            return super().take_divergence()

    job = Job(tmp_path / "store", lambda rank: {"health": Failing()})
    first, second = job.run()
    assert isinstance(first, RuntimeError)
    assert isinstance(second, errors.AbortedError)
    assert "rank 0 could not look for a divergence: RuntimeError: there is no monitor" in str(second)


def test_what_cannot_be_kept_in_step_is_refused(tmp_path):
    ranks = tidemark.Ranks(0, 2, list)
    with pytest.raises(errors.InvalidArgumentError, match="no when_full='skip': with ranks"):
        tidemark.AsyncTrainer(tmp_path, {}, print, ranks=ranks, when_full="skip")
    with pytest.raises(errors.InvalidArgumentError, match="ranks.all_gather is None, a NoneType"):
        tidemark.AsyncTrainer(tmp_path, {}, print, ranks=tidemark.Ranks(0, 2, None))


def test_what_rank_0_decides_is_an_error_if_it_is_not_told():
    def raising(given):
        raise ValueError("the network is gone")

    for all_gather, error, message in (
            (lambda given: [b"", given], errors.FailedPreconditionError, "rank 0 is in another call .* is to choose the step"),
            (lambda given: [given], errors.InvalidArgumentError, "not a sequence of 2 byte strings"),
            (raising, errors.InternalError, "all_gather raised ValueError: the network is gone")):
        with pytest.raises(error, match=message):
            ranks.of_rank_0(tidemark.Ranks(1, 2, all_gather), lambda: pytest.fail("rank 1 decides nothing"))
    with pytest.raises(errors.FailedPreconditionError, match="rank 1 is in another call .* rank 0 is to choose the step"):
        ranks.of_rank_0(tidemark.Ranks(0, 2, lambda given: [given, b""]), lambda: "latest")
    with pytest.raises(errors.FailedPreconditionError, match="rank 1 is in another call .* whether to end"):
        ranks.least_time_left(tidemark.Ranks(0, 2, lambda given: [given, b""]), 1.0)
    with pytest.raises(errors.FailedPreconditionError, match="rank 0 is in another call .* all ranks end the run"):
        with ranks.together(tidemark.Ranks(1, 2, lambda given: [b"", given]), "end the run"):
            pass
