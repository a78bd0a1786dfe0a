#!/usr/bin/env python3
"""Writes the files beside it, as PyTorch 1.13.1 of Debian 12 (python3-torch) does.

  /usr/bin/python3 make_torch_files.py FOLDER
"""

import argparse
import collections
import pathlib
import sys

import torch


def nested():
    weight = torch.arange(6, dtype=torch.float32).reshape(2, 3)
    model = collections.OrderedDict(
        weight=weight,
        turned=weight.t(),
        tied=weight,
        part=weight[1, 1:],
        brain=torch.tensor([1.0, -2.0, 0.5], dtype=torch.bfloat16),
        half=torch.tensor([[1.5]], dtype=torch.float16),
        flags=torch.tensor([True, False]),
        counts=torch.tensor([1, -1], dtype=torch.int64),
        phases=torch.tensor([1 + 2j], dtype=torch.complex64),
        image=torch.arange(16, dtype=torch.uint8).reshape(1, 2, 2, 4).to(memory_format=torch.channels_last),
        empty=torch.empty(0, 5),
        scalar=torch.tensor(2.5, dtype=torch.float64),
        parameter=torch.nn.Parameter(torch.tensor([7.0])),
    )
    return {
        "model": model,
        "optimizer": {"state": {0: {"exp_avg": torch.ones(2)}}, "groups": [{"lr": 0.1, "params": [0, 1], "fused": None}]},
        "epoch": 3,
        "name": "a \u00fc",
        "done": True,
        "loss": float("nan"),
        "arguments": argparse.Namespace(depth=2),
        "bytes": b"raw",
    }


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.save(nested(), folder / "nested.pt")
    torch.save({"w": torch.ones(2)}, folder / "legacy.pt", _use_new_zipfile_serialization=False)


main()
