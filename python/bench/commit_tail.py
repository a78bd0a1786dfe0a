#!/usr/bin/env python3
"""Measures the end of a save of several ranks against DCP's: from when the last rank has its bytes on the disk until every
rank knows that the step is committed.

  commit_tail.py [--dir FOLDER] [--ranks N] [--pairs N] [--tensors N] [--size MIB] [--json FILE]

`make bench-commit-tail` runs it; docs/performance.md has the method. The processes talk over Gloo on this machine.
"""

import argparse
import json
import os
import pathlib
import shutil
import sys
import tempfile
import time

import tidemark
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as processes
from measure import Measurement, Row, table
from torch.distributed.tensor import DTensor, Shard, init_device_mesh

ROW = Row("commit_tail_vs_dcp", "from the last rank's last byte on the disk to committed on all ranks ÷ the same with DCP", 0.1)


class TimedWriter(dcp.FileSystemWriter):
    """Remembers when the rank's bytes were synced."""

    def write_data(self, plan, planner):
        written = super().write_data(plan, planner)
        written.wait()
        self.synced = time.time()
        return written


def on_all_ranks(value):
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def dcp_tail(folder, state):
    """Seconds. Called by all ranks; the result is the same on all."""
    writer = TimedWriter(folder, single_file_per_rank=True, thread_count=1)
    dcp.save(state, storage_writer=writer)
    synced, known = zip(*on_all_ranks((writer.synced, time.time())))
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder)
    return max(known) - max(synced)


def our_tail(checkpointer, store, step, state):
    """The same. A rank states its vote once its shard is synced, in a file of its own."""
    checkpointer.save(step, state).committed.result()
    known = on_all_ranks(time.time())
    voted = [vote.stat().st_mtime for vote in pathlib.Path(store).glob("ranks/*/vote-*")]
    voted = on_all_ranks(max(voted))  # before any rank votes again
    return max(known) - max(voted)


def run_rank(rank, options, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=options.ranks)
    mesh = init_device_mesh("cpu", (options.ranks,))
    columns = (options.size << 20) // 4 // options.tensors // options.ranks
    state = {f"layers.{i}.weight": DTensor.from_local(torch.randn(1, columns), mesh, [Shard(0)]) for i in range(options.tensors)}
    store = os.path.join(folder, "store")
    measured = Measurement([], [])
    with tidemark.Checkpointer(store, ranks=tidemark.Ranks.of_torch(), reuse=False) as checkpointer:
        for pair in range(-1, options.pairs):  # the first of each warms up
            dist.barrier()
            sides = [lambda: measured.numerators.append(our_tail(checkpointer, store, pair + 1, state)),
                     lambda: measured.denominators.append(dcp_tail(os.path.join(folder, f"dcp-{pair}"), state))]
            for side in sides if pair % 2 == 0 else sides[::-1]:
                side()
    if rank == 0:
        report = {"row": ROW.name, "ours_s": measured.numerators[1:], "dcp_s": measured.denominators[1:], "ranks": options.ranks,
                  "cpus": os.cpu_count()}
        with open(os.path.join(folder, "report.json"), "w", encoding="utf-8") as file:
            json.dump(report, file)
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description="The end of a save of several ranks, against DCP's.")
    parser.add_argument("--dir", default=".", help="where the files go; removed at the end")
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--tensors", type=int, default=100, help="number of tensors; each rank has one row of each")
    parser.add_argument("--size", type=int, default=64, metavar="MIB", help="bytes of all tensors together")
    parser.add_argument("--json", metavar="FILE", help="writes all figures there")
    options = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="tidemark-bench-", dir=os.path.abspath(options.dir))
    try:
        processes.spawn(run_rank, (options, folder), nprocs=options.ranks)
        report = pathlib.Path(folder, "report.json").read_text(encoding="utf-8")
    finally:
        shutil.rmtree(folder)
    if options.json:
        pathlib.Path(options.json).write_text(report, encoding="utf-8")
    figures = json.loads(report)
    print(f"{options.ranks} processes on {os.cpu_count()} CPUs, PyTorch {torch.__version__}, {options.pairs} pairs\n")
    print(table([(ROW, Measurement(figures["ours_s"], figures["dcp_s"]))]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
