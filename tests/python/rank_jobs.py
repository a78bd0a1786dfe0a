"""Jobs of several ranks. Each is a thread of this process with a checkpointer of its own on one store, or a process. Every
wait has a deadline."""

import contextlib
import os
import subprocess
import sys
import threading

import numpy as np
import tidemark

DEADLINE = 120.0  # seconds


class ThreadGather:
    """An all-gather of threads. If one of them raises, or does not come, it fails for all."""

    def __init__(self, world_size, timeout=DEADLINE):
        self._timeout = timeout
        self._given = [b""] * world_size
        self.barrier = threading.Barrier(world_size)

    def of(self, rank):
        def all_gather(given):
            assert type(given) is bytes
            self._given[rank] = given
            self.barrier.wait(self._timeout)
            gathered = list(self._given)
            self.barrier.wait(self._timeout)
            return gathered

        return all_gather


def on_each_rank(world_size, function):
    """What `function(rank)` returns, or raises, on a thread for each rank; the last rank's on this one."""
    results = [None] * world_size

    def run(rank):
        try:
            results[rank] = function(rank)
        except BaseException as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(world_size - 1)]
    for thread in threads:
        thread.start()
    run(world_size - 1)
    for thread in threads:
        thread.join(DEADLINE)
        assert not thread.is_alive(), f"a rank hangs; the others: {results}"
    return results


def all_ok(results):
    """The results, if none is an exception."""
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results


class Job:
    """The checkpointers of a job. `gathers`: {rank: a function in place of its all-gather}; `replicated` as Ranks has it;
    `options` are those of all."""

    def __init__(self, store, world_size, gathers=None, replicated=(), **options):
        self.world_size = world_size
        self.gather = ThreadGather(world_size)
        self._gathers = {rank: self.gather.of(rank) for rank in range(world_size)} | (gathers or {})
        self._store, self._replicated, self._options = store, replicated, options
        self.checkpointers = []

    def ranks(self, rank):
        return tidemark.Ranks(rank, self.world_size, self._gathers[rank], vote_timeout=60.0, outcome_margin=30.0,
                              replicated=self._replicated)

    def open(self):
        return on_each_rank(self.world_size, lambda rank: tidemark.Checkpointer(self._store, ranks=self.ranks(rank),
                                                                                **self._options))

    def __enter__(self):
        self.checkpointers = all_ok(self.open())
        return self

    def __exit__(self, kind, error, trace):
        self.gather.barrier.abort()
        results = self.each(lambda rank, checkpointer: checkpointer.close(DEADLINE))
        if error is None:
            all_ok(results)

    def each(self, function):
        return on_each_rank(self.world_size, lambda rank: function(rank, self.checkpointers[rank]))

    def save(self, step, state_of, **options):
        """What each rank is told of the save."""
        def save(rank, checkpointer):
            return checkpointer.save(step, state_of(rank, self.world_size), **options).committed.result(DEADLINE)

        return self.each(save)


def rows_of(rank, world_size, rows):
    """Begin and end of the rows that a rank holds."""
    return rows * rank // world_size, rows * (rank + 1) // world_size


WHOLE = np.random.default_rng(7).integers(0, 2**63, (12, 5), np.uint64).view(np.float64)  # NaNs among them


def state_of(rank, world_size, whole=WHOLE):
    """A state of the rank: its rows of a tensor, the same tensor on all, and values."""
    begin, end = rows_of(rank, world_size, len(whole))
    return {"weight": tidemark.Box(whole[begin:end].copy(), whole.shape, (begin, 0)), "scale": np.arange(3.0),
            "epoch": 4, f"seed.{rank}": 100 + rank}


def empty_like(state):
    """The state before a restore."""
    out = {}
    for name, leaf in state.items():
        if isinstance(leaf, tidemark.Box):
            out[name] = tidemark.Box(np.full_like(leaf.array, -1), leaf.shape, leaf.offset)
        else:
            out[name] = np.full_like(leaf, -1) if isinstance(leaf, np.ndarray) else None
    return out


def is_same(state, other):
    """Bit for bit."""
    def content(leaf):
        array = leaf.array if isinstance(leaf, tidemark.Box) else leaf
        return (array.dtype, array.shape, array.tobytes()) if isinstance(array, np.ndarray) else leaf

    return state.keys() == other.keys() and all(content(state[name]) == content(other[name]) for name in state)


def run_processes(script, folder, world_size, *arguments):
    """The output of processes of a job, which are given the URL of a file to meet at, their rank, `world_size`, the path of a
    store, and the arguments. Gloo's connections are local ones."""
    meeting = folder / f"meeting-{world_size}-{'-'.join(arguments)}"
    processes = [subprocess.Popen([sys.executable, "-W", "error::ResourceWarning", str(script), f"file://{meeting}", str(rank),
                                   str(world_size), str(folder / "store"), *arguments], text=True, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"})
                 for rank in range(world_size)]
    try:
        results = [process.communicate(timeout=DEADLINE) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    for process, (_, log) in zip(processes, results):
        assert process.returncode == 0, "\n".join(log for _, log in results)
    return [text for text, _ in results]


@contextlib.contextmanager
def saved_by(store, world_size, step=1, states=state_of):
    """A job that has saved a step."""
    with Job(store, world_size) as job:
        assert all_ok(job.save(step, states)) == [step] * world_size
        yield job
