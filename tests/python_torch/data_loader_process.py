"""Reads two epochs by torchdata's StatefulDataLoader, and saves after each batch. Prints each batch when it has been read.

  data_loader_process.py STORE KIND WORKERS [KILL_AFTER]

KIND: "shuffled", a dataset with indices in random order; "stream", one without, whose workers have states. Resumes from the
latest step. After so many batches the process kills itself, in the middle of its saves.
"""

import json
import os
import random
import signal
import sys
import warnings

import tidemark
import torch

EPOCHS, SAMPLES, BATCH = 2, 40, 4


class Shuffled(torch.utils.data.Dataset):
    def __len__(self):
        return SAMPLES

    def __getitem__(self, index):
        return index


class Stream(torch.utils.data.IterableDataset):
    """Each worker has its own numbers, some of them skipped at random. Its state has a tuple of 625 numbers, and a text."""

    def __init__(self):
        self.generator = None
        self.next = 0
        self.resumes = False  # the next epoch is one that another run has begun, and may have ended

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        number = 0 if worker is None else worker.id
        if self.generator is None:
            self.generator = random.Random(number)
        self.next = self.next if self.resumes else 0
        self.resumes = False
        while self.next < SAMPLES:
            self.next += self.generator.randrange(1, 3)
            yield 1000 * number + self.next

    def state_dict(self):
        return {"next": self.next, "random": self.generator.getstate() if self.generator else None, "kind": "stream"}

    def load_state_dict(self, state):
        self.next, self.resumes = state["next"], True
        if state["random"] is not None:
            self.generator = random.Random()
            self.generator.setstate(state["random"])


def make_loader(kind, workers):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torchdata calls what this PyTorch has deprecated
        from torchdata.stateful_dataloader import StatefulDataLoader
    if kind == "stream":
        return StatefulDataLoader(Stream(), batch_size=BATCH, num_workers=workers)
    return StatefulDataLoader(Shuffled(), batch_size=BATCH, shuffle=True, num_workers=workers)


def train(store, kind, workers, kill_after):
    torch.manual_seed(5 if not os.path.exists(store) else 6)  # a run that resumes has the order from the checkpoint
    with tidemark.Checkpointer(store) as checkpointer:
        state = {"loader": make_loader(kind, workers), "epoch": 0, "batches": 0}
        checkpointer.resume(state)
        before = None
        print(json.dumps({"resumed": state["batches"]}), flush=True)
        while state["epoch"] < EPOCHS:
            for batch in state["loader"]:
                print(json.dumps([state["epoch"], batch.tolist()]), flush=True)
                state["batches"] += 1
                if before is not None:
                    before.committed.result()
                before = checkpointer.save(state["batches"], state)
                if state["batches"] == kill_after:
                    os.kill(os.getpid(), signal.SIGKILL)
            state["epoch"] += 1


if __name__ == "__main__":
    store, kind, workers, *kill = sys.argv[1:]
    train(store, kind, int(workers), int(kill[0]) if kill else -1)
