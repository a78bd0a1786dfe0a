#!/usr/bin/env python3
"""Measures what a delta against an earlier step would save: the bits of each tensor, exclusive-or with those of the earlier
step, compressed as Tidemark compresses the tensors themselves.

  deltas.py [--dir FOLDER] [--base STEP] [--distances STEPS ...] [--dtypes NAME ...] [--json FILE]

Trains the example's transformer on the sources of Python's own library, and compares steps that lie so far apart.
`make bench-deltas` runs it; docs/performance.md has the method and the result.
"""

import argparse
import json
import pathlib
import sys
import sysconfig
import tempfile

import tidemark
import torch

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "python"))
from char_lm import CharTransformer, learning_rate, loss_of  # noqa: E402

PARTS = ("weights", "exp_avg", "exp_avg_sq", "all")
CONTEXT, BATCH = 64, 8
BITS = {torch.float32: torch.int32, torch.bfloat16: torch.int16}


def library_text(bytes_max=4 << 20):
    """The first megabytes of the sources that Python ships, as int64 [bytes], and the number of different bytes."""
    content = b""
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")):
        content += path.read_bytes()
    content = content[:bytes_max]
    numbers = {byte: number for number, byte in enumerate(sorted(set(content)))}
    return torch.tensor([numbers[byte] for byte in content]), len(numbers)


def tensors_of(model, optimizer):
    """A copy of what a checkpoint has, by part."""
    parameters = dict(model.named_parameters())
    parts = {"weights": {name: p.detach().clone() for name, p in parameters.items()}}
    for field in ("exp_avg", "exp_avg_sq"):
        parts[field] = {name: optimizer.state[p][field].clone() for name, p in parameters.items()}
    return parts


def train(dtype, stops, width):
    """Yields (step, tensors) for each step of `stops`, after it was trained."""
    torch.manual_seed(1)
    text, vocabulary = library_text()
    model = CharTransformer(vocabulary, CONTEXT, width, heads=width // 32, layers=4, dropout=0.1).to(dtype)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    last = max(stops)
    for step in range(1, last + 1):
        optimizer.param_groups[0]["lr"] = learning_rate(step, last)
        loss = loss_of(model, text, torch.randint(len(text) - CONTEXT, (BATCH,)), CONTEXT)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in stops:
            print(f"{dtype}, step {step}: loss {loss.item():.3f}", file=sys.stderr)
            yield step, tensors_of(model, optimizer)


def stored_bytes(folder, parts):
    """The size of a shard with these tensors, by part; everything compressed."""
    sizes = {}
    everything = {part: tensors for part, tensors in parts.items()}
    for part in PARTS:
        with tempfile.TemporaryDirectory(dir=folder) as store:
            with tidemark.Checkpointer(store, compression="space", reuse=False) as checkpointer:
                checkpointer.save(0, everything if part == "all" else {part: parts[part]})
            with tidemark.open(store) as reader:
                sizes[part] = reader.info.stored_bytes
    return sizes


def difference(tensors, base):
    return {part: {name: (tensor.view(BITS[tensor.dtype]) ^ base[part][name].view(BITS[tensor.dtype])).view(tensor.dtype)
                   for name, tensor in by_name.items()} for part, by_name in tensors.items()}


def measure(folder, dtype, base, distances, width):
    stops = {base, *(base + distance for distance in distances)}
    before, rows = None, []
    for step, tensors in train(dtype, stops, width):
        if step == base:
            before = tensors
            continue
        whole, delta = stored_bytes(folder, tensors), stored_bytes(folder, difference(tensors, before))
        logical = {part: sum(t.nbytes for t in by_name.values()) for part, by_name in tensors.items()}
        logical["all"] = sum(logical.values())
        rows.append({"dtype": str(dtype).removeprefix("torch."), "distance": step - base, "logical_bytes": logical,
                     "space_bytes": whole, "delta_bytes": delta,
                     "gain": {part: whole[part] / delta[part] for part in PARTS}})
    return rows


def main():
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--dir", default=".", help="folder for the stores, which are removed")
    parser.add_argument("--base", type=int, default=2000, help="the earlier step")
    parser.add_argument("--distances", type=int, nargs="+", default=[1, 10, 100, 1000], help="steps behind it")
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"], choices=["float32", "bfloat16"])
    parser.add_argument("--width", type=int, default=192, help="of the model, a multiple of 32")
    parser.add_argument("--json", help="write the figures to this file, too")
    flags = parser.parse_args()
    if flags.base < 1 or min(flags.distances) < 1:
        parser.error("--base and --distances must be 1 or more")
    torch.set_num_threads(1)
    rows = []
    for dtype in flags.dtypes:
        rows += measure(flags.dir, getattr(torch, dtype), flags.base, flags.distances, flags.width)
    print("| dtype | steps apart | weights | exp_avg | exp_avg_sq | all | all, stored ÷ bytes: whole, delta |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        share = [row[kind]["all"] / row["logical_bytes"]["all"] for kind in ("space_bytes", "delta_bytes")]
        gains = " | ".join(f"{row['gain'][part]:.2f}" for part in PARTS)
        print(f"| {row['dtype']} | {row['distance']} | {gains} | {share[0]:.3f}, {share[1]:.3f} |")
    if flags.json:
        pathlib.Path(flags.json).write_text(json.dumps(rows, indent=1) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
