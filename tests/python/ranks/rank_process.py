"""A rank that is a process, for ranks_test.py: rank_process.py MEETING RANK WORLD_SIZE STORE save|restore|train"""

import datetime
import os
import pathlib
import signal
import sys

import tidemark
import torch.distributed

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import rank_jobs  # noqa: E402


def main(meeting, rank, world_size, store, what):
    rank, world_size = int(rank), int(world_size)
    torch.distributed.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size,
                                         timeout=datetime.timedelta(seconds=rank_jobs.DEADLINE))
    ranks = tidemark.Ranks.of_torch()
    assert (ranks.rank, ranks.world_size) == (rank, world_size)
    # Of each length, and none of it text.
    assert ranks.all_gather(bytes(range(rank))) == [bytes(range(other)) for other in range(world_size)]
    assert ranks.all_gather(b"") == [b""] * world_size
    state = rank_jobs.state_of(rank, world_size)
    with tidemark.Checkpointer(store, ranks=ranks) as checkpointer:
        if what == "train":
            train(checkpointer, rank, state)
        elif what == "save":
            print("saved", checkpointer.save(1, state).committed.result(rank_jobs.DEADLINE))
        else:
            found = rank_jobs.empty_like(state)
            print("restored", checkpointer.restore(found).step)
            assert rank_jobs.is_same(found, state)
    torch.distributed.destroy_process_group()


def train(checkpointer, rank, state):
    """Until rank 1 gets a SIGTERM, which it does after step 5. The other ranks may be a step further by then."""
    with tidemark.PreemptionGuard(grace=rank_jobs.DEADLINE) as guard:
        for step in range(1000):
            if guard.preempted_on_any_rank(checkpointer):
                report = guard.save_and_close(checkpointer, step, state)
                assert report.committed and report.close is None, report
                print("ended after", step)
                return
            if rank == 1 and step == 5:
                os.kill(os.getpid(), signal.SIGTERM)
    raise AssertionError("no rank saw the SIGTERM")


if __name__ == "__main__":
    main(*sys.argv[1:])
