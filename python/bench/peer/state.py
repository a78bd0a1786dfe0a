"""The state that all peers save: what a transformer's training has left, in a file that every environment reads.

  python -m peer.state FOLDER SIZE_MB DTYPE STEPS

trains it in the environment with torch. `index.json` lists the arrays, and `arrays` has their bytes one behind the other.
"""

import dataclasses
import json
import math
import os
import pathlib
import sys
import sysconfig

import numpy as np

CHAR_LM = pathlib.Path(__file__).parents[3] / "examples" / "python" / "char_lm.py"
TEXT_BYTES = 4 << 20
BATCH, CONTEXT, BLOCKS_MIN, WIDTH_MAX = 2, 64, 6, 768
# Which parts of the training a state has, with their dtypes. "mixed" is what training in mixed precision keeps.
PARTS = {
    "mixed": {"weights": "bfloat16", "master": "float32", "exp_avg": "float32", "exp_avg_sq": "float32"},
    "fp32": {"weights": "float32", "exp_avg": "float32", "exp_avg_sq": "float32"},
    "bf16": {"weights": "bfloat16", "exp_avg": "bfloat16", "exp_avg_sq": "bfloat16"},
}
ELEMENT_BYTES = {"bfloat16": 2, "float32": 4}
LOWEST_BIT = {"bfloat16": np.uint16(1), "float32": np.uint32(1)}


@dataclasses.dataclass(frozen=True)
class Array:
    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int

    @property
    def nbytes(self):
        return ELEMENT_BYTES[self.dtype] * math.prod(self.shape)


def arrays_of(folder, bytes_max=None):
    """In their order; the first ones that fill `bytes_max`, if that is given."""
    index = json.loads(pathlib.Path(folder, "index.json").read_text(encoding="utf-8"))
    arrays = [Array(name, dtype, tuple(shape), offset) for name, dtype, shape, offset in index["arrays"]]
    if bytes_max is None:
        return arrays
    return [array for array in arrays if array.offset + array.nbytes <= bytes_max] or arrays[:1]


def changed(raw, dtype):
    """Every element with its lowest bit inverted: what another step of training stands for here. Twice gives `raw` again."""
    return (raw.view(LOWEST_BIT[dtype].dtype) ^ LOWEST_BIT[dtype]).view(np.uint8)


def differences(folder, arrays, restored, was_changed):
    """Names of the arrays whose bytes are not those of the state. `restored`: a function of a name, gives uint8 of NumPy."""
    stored = np.memmap(os.path.join(folder, "arrays"), np.uint8, "r")
    found = []
    for array in arrays:
        expected = stored[array.offset : array.offset + array.nbytes]
        raw = restored(array.name)
        if raw.size != array.nbytes or not np.array_equal(raw, changed(expected, array.dtype) if was_changed else expected):
            found.append(array.name)
    return found


def text():
    """Python's own standard library, as far as it is needed."""
    parts, size = [], 0
    for path in sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py")):
        parts.append(path.read_bytes())
        size += len(parts[-1])
        if size >= TEXT_BYTES:
            break
    return np.frombuffer(b"".join(parts), np.uint8)


def train(folder, size_mb, dtype, steps):
    import importlib.util

    import torch

    spec = importlib.util.spec_from_file_location("char_lm", CHAR_LM)
    char_lm = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(char_lm)
    parts = PARTS[dtype]
    parameters = size_mb * 1_000_000 / sum(ELEMENT_BYTES[part] for part in parts.values())
    width = min(max(int(math.sqrt(parameters / 12 / BLOCKS_MIN)) // 64 * 64, 64), WIDTH_MAX)
    blocks = max(round(parameters / 12 / width**2), 1)
    torch.set_num_threads(1)  # the order of sums, and so the last bits
    torch.manual_seed(1)
    words = torch.from_numpy(text().astype(np.int64))
    model = char_lm.CharTransformer(256, CONTEXT, width, width // 64, blocks, dropout=0.0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)
    losses = []
    for step in range(steps):
        loss = char_lm.loss_of(model, words, torch.randint(len(words) - CONTEXT, (BATCH,)), CONTEXT)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        print(f"step {step}: loss {losses[-1]:.3f}", flush=True)
    sources = {"weights": lambda name, parameter: parameter, "master": lambda name, parameter: parameter,
               "exp_avg": lambda name, parameter: optimizer.state[parameter]["exp_avg"],
               "exp_avg_sq": lambda name, parameter: optimizer.state[parameter]["exp_avg_sq"]}
    arrays, offset = [], 0
    with open(os.path.join(folder, "arrays"), "wb") as file:
        for name, parameter in model.named_parameters():  # all parts of a layer are neighbours, so that a beginning has all
            for part, part_dtype in parts.items():
                tensor = sources[part](name, parameter).detach().to(getattr(torch, part_dtype)).contiguous()
                file.write(tensor.view(-1).view(torch.uint8).numpy())
                arrays.append((f"{part}.{name}", part_dtype, list(tensor.shape), offset))
                offset += tensor.numel() * tensor.element_size()
    described = {"dtype": dtype, "bytes": offset, "arrays": len(arrays),
                 "parameters": sum(parameter.numel() for parameter in model.parameters()), "width": width,
                 "blocks": blocks, "steps": steps, "first_loss": losses[0], "last_loss": losses[-1]}
    pathlib.Path(folder, "index.json").write_text(json.dumps({"described": described, "arrays": arrays}), encoding="utf-8")


if __name__ == "__main__":
    train(sys.argv[1], float(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
