"""Saves, restores and reads a step with whatever else this process has imported, and prints "restored".

  save_and_restore.py FOLDER NAME...   imports each NAME in turn; `tidemark` is one of them
"""

import importlib
import pathlib
import sys

import numpy as np


def use(name):
    """Runs a calculation of the framework on several threads, with some of its libraries' own memory."""
    ones = np.ones((300, 300), np.float32)
    if name == "jax":
        import jax
        return float(jax.jit(lambda x: (x @ x).sum())(ones))
    if name == "tensorflow":
        import tensorflow
        return float(tensorflow.reduce_sum(tensorflow.matmul(ones, ones)))
    if name == "torch":
        import torch
        x = torch.ones(300, 300, requires_grad=True)
        total = (x @ x).sum()
        total.backward()
        return float(total.detach())
    return 300.0**3


def save_and_restore(folder):
    import tidemark
    weights = np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024)
    # Some of it is compressed, the rest is stored as it is.
    noise = np.random.default_rng(1).integers(0, 256, 1 << 20, dtype=np.uint8)
    with tidemark.Checkpointer(folder / "store") as checkpointer:
        for step in (1, 2):
            save = checkpointer.save(step, {"weights": weights * step, "noise": noise, "epoch": step}, metrics={"loss": 1 / step})
            assert save.committed.result() == step
    state = {"weights": np.zeros_like(weights), "noise": np.zeros_like(noise), "epoch": 0}
    with tidemark.Checkpointer(folder / "store") as checkpointer:
        assert checkpointer.restore(state).step == 2
    assert np.array_equal(state["weights"], weights * 2) and np.array_equal(state["noise"], noise) and state["epoch"] == 2
    with tidemark.open(folder / "store", "1") as step:
        assert np.array_equal(step.get_slice("weights")[5:7], weights[5:7])


folder = pathlib.Path(sys.argv[1])
names = sys.argv[2:]
for name in names:
    importlib.import_module(name)
for name in names:
    assert use(name) == 300.0**3, name
save_and_restore(folder)
for name in names:
    assert use(name) == 300.0**3, name
print("restored")
