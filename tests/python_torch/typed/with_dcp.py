"""A user's program for tidemark.dcp that mypy --strict accepts; types_test.py has it checked, and runs it."""

from __future__ import annotations

import sys

import tidemark
import torch
import torch.distributed.checkpoint as dcp
from tidemark.dcp import LoadPlanner, Reader, SavePlanner, Writer


def train(store: str) -> int:
    state: dict[str, object] = {"w": torch.ones(4), "epoch": 3}
    dcp.save(state, storage_writer=Writer(store, step=7), planner=SavePlanner(), no_dist=True)
    with tidemark.Checkpointer(store) as checkpointer:
        dcp.save(state, storage_writer=Writer(checkpointer, step=8), planner=SavePlanner(flatten_state_dict=True), no_dist=True)
    loaded: dict[str, object] = {"w": torch.zeros(4), "epoch": 0}
    dcp.load(loaded, storage_reader=Reader(store, "latest"), planner=LoadPlanner(), no_dist=True)
    return loaded["epoch"] if isinstance(loaded["epoch"], int) else 0


if __name__ == "__main__":
    sys.exit(0 if train(sys.argv[1]) == 3 else 1)
