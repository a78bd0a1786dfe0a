"""A rank that is a process, for ranks_test.py: rank_process.py MEETING RANK WORLD_SIZE STORE save|restore"""

import datetime
import sys

import rank_jobs
import tidemark
import torch.distributed


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
        if what == "save":
            print("saved", checkpointer.save(1, state).committed.result(rank_jobs.DEADLINE))
        else:
            found = rank_jobs.empty_like(state)
            print("restored", checkpointer.restore(found).step)
            assert rank_jobs.is_same(found, state)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
